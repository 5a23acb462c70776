"""The output formats of commands, and the groupings of results."""

from enum import StrEnum


class Form(StrEnum):
    """The values of `--format`."""

    AUTO = "auto"
    """A table on a terminal, JSON lines in a pipe or a file."""
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class ResultsGrouping(StrEnum):
    """The values of `--by` for the results of a status."""

    TASK = "task"
    FAMILY = "family"
    SOURCE = "source"


class FormError(ValueError):
    """A format that is not possible here."""

    code = "LPF-104"


class OutputError(RuntimeError):
    """Rows that could not be written to stdout."""

    code = "LPF-105"
