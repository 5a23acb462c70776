"""The output formats of commands."""

from enum import StrEnum


class Form(StrEnum):
    """The values of `--format`."""

    AUTO = "auto"
    """A table on a terminal, JSON lines in a pipe or a file."""
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class FormError(ValueError):
    """A format that is not possible here."""

    code = "LPF-104"


class OutputError(RuntimeError):
    """Rows that could not be written to stdout."""

    code = "LPF-105"
