"""The output formats of commands, and what failures can be counted by."""

from enum import StrEnum


class Form(StrEnum):
    """The values of `--format`."""

    AUTO = "auto"
    """A table on a terminal, JSON lines in a pipe or a file."""
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class By(StrEnum):
    """The values of `--by` for failures."""

    ASPECT = "aspect"
    TASK = "task"
    STATUS = "status"


class Grouping(StrEnum):
    """The values of `--by` for results."""

    TASK = "task"
    FAMILY = "family"


class MeasuredSplit(StrEnum):
    """The values of `--split`."""

    DEV = "dev"
    HELD_OUT = "held-out"


class FormError(ValueError):
    """A format that is not possible here."""


class OutputError(RuntimeError):
    """Rows that could not be written to stdout."""
