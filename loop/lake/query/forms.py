"""The forms in which a command writes rows, and what it can count them by."""

from enum import StrEnum


class Form(StrEnum):
    """What `--format` may be."""

    AUTO = "auto"
    """A table on a terminal, JSON lines in a pipe or a file."""
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class By(StrEnum):
    """What failures are counted by."""

    ASPECT = "aspect"
    TASK = "task"
    STATUS = "status"


class FormError(ValueError):
    """A form that can not be had here."""


class OutputError(RuntimeError):
    """Rows that could not be written where they were to go."""
