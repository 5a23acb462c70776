# pyright: basic
"""Writing rows to stdout: a table for people; JSON, CSV or Parquet for programs.

A table shows some columns, shortened, with hidden characters made visible. The other formats hold
all columns in full, and are written batch by batch, so memory stays bounded. If the reader closes
the pipe (`| head`), they end quietly.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from tempfile import TemporaryFile

import polars as pl

from ....configs.secrecy import knows_keys, row_without_keys, without_keys
from ....stores.spreadsheet_cells import FORMULA, GUARD, NUMBER
from ...data.text import escape_hidden, visible
from ...run.terminal import say
from .forms import Form, FormError, OutputError

BATCH = 8192
CHUNK = 1 << 20
TABLE_ROWS = 1000
"""The most rows of a table: its columns must fit them all, so all are read first."""


def write_frame(
    frame: pl.DataFrame | pl.LazyFrame,
    form: Form = Form.AUTO,
    columns: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> None:
    """Write rows in a format; a table has only `columns`, if given.

    Raises:
        FormError: if two formats are requested, or Parquet on a terminal.
        OutputError: if stdout cannot be written, such as on a full disk.
    """
    if is_table(form, as_json=as_json):
        _write_table(frame.lazy(), columns)
        return
    if form is Form.PARQUET:
        _write_parquet(frame.lazy())
    else:
        _write_text(frame.lazy(), _json if as_json else _TEXTS[form])


def write_lines(lines: Iterable[str]) -> None:
    """Write lines as they come; on a terminal with hidden characters made visible.

    Raises:
        OutputError: if stdout cannot be written, such as on a full disk.
    """
    watched = sys.stdout.isatty()
    _pour(f"{visible(line) if watched else line}\n".encode() for line in lines)


def is_table(form: Form, *, as_json: bool) -> bool:
    """Whether the output is a table for people.

    Raises:
        FormError: if two formats are requested, or Parquet on a terminal.
    """
    if as_json and form is not Form.AUTO:
        raise FormError(f"--json and --format {form} exclude each other: give only one")
    watched = sys.stdout.isatty()
    if form is Form.PARQUET and watched:
        raise FormError("Parquet is not text: write it to a file, with `> FILE`")
    return form is Form.TABLE or (form is Form.AUTO and not as_json and watched)


Texts = Callable[[Iterable[pl.DataFrame]], Iterator[str]]


def _write_parquet(frame: pl.LazyFrame) -> None:
    shown = frame.map_batches(_without_keys, streamable=True) if knows_keys() else frame
    with TemporaryFile() as file:
        shown.sink_parquet(file)
        file.seek(0)
        _pour(iter(lambda: file.read(CHUNK), b""))


def _write_text(frame: pl.LazyFrame, texts: Texts) -> None:
    watched = sys.stdout.isatty()
    rows = 0

    def batches() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for batch in frame.collect_batches(chunk_size=BATCH):
            rows += batch.height
            yield batch.with_columns(_plain(batch.schema))
        if not rows:
            empty = pl.DataFrame(schema=frame.collect_schema())
            yield empty.with_columns(_plain(empty.schema))

    show = visible if watched else without_keys
    _pour(show(text).encode() for text in texts(batches()))
    if not rows:
        _say_count(rows)


def _without_keys(batch: pl.DataFrame) -> pl.DataFrame:
    """Return rows without one's own keys."""
    rows = batch.to_dicts()
    shown = row_without_keys(rows)
    return batch if shown == rows else pl.DataFrame(shown, schema=batch.schema)


def _json_lines(batches: Iterable[pl.DataFrame]) -> Iterator[str]:
    """Yield one JSON object a line."""
    for batch in batches:
        if batch.height:
            yield escape_hidden(batch.write_ndjson())


def _json(batches: Iterable[pl.DataFrame]) -> Iterator[str]:
    """Yield one JSON document: a list of objects."""
    before = "["
    for text in _json_lines(batches):
        yield before + "\n" + text.rstrip("\n").replace("\n", ",\n")
        before = ","
    yield "]\n" if before == "," else "[]\n"


def _csv(batches: Iterable[pl.DataFrame]) -> Iterator[str]:
    """Yield comma-separated values after one header, nested values as JSON, and no formulas."""
    heading = True
    for batch in batches:
        flat = batch.with_columns(_as_text(name, dtype) for name, dtype in batch.schema.items())
        yield flat.write_csv(include_header=heading)
        heading = False


_TEXTS: Mapping[Form, Texts] = {
    Form.AUTO: _json_lines,
    Form.JSONL: _json_lines,
    Form.CSV: _csv,
}


def _plain(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return, as text, the columns whose types JSON does not have."""
    binary = (name for name, dtype in schema.items() if dtype == pl.Binary)
    return [pl.col(name).bin.encode("base64") for name in binary]


def _as_text(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column in a form that CSV can hold."""
    column = pl.col(name)
    if dtype == pl.Duration:
        return column.dt.to_string("iso")
    if dtype == pl.String:
        formula = column.str.contains(FORMULA) & ~column.str.contains(NUMBER)
        return pl.when(formula).then(GUARD + column).otherwise(column).alias(name)
    if not dtype.is_nested():
        return column
    text = pl.struct(column.alias("_")).struct.json_encode().str.strip_prefix('{"_":').str.head(-1)
    return pl.when(column.is_not_null()).then(text).alias(name)


def _pour(chunks: Iterable[bytes]) -> None:
    """Write bytes to stdout as they come; a closed pipe ends the output without an error."""
    sys.stdout.flush()
    for chunk in chunks:
        try:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        except OSError as error:
            # Discard what Python would still write to stdout at exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            if isinstance(error, BrokenPipeError):
                return
            raise OutputError(f"stdout cannot be written: {error.strerror}") from error


def _say_count(rows: int) -> None:
    say(f"{rows:,} row{'' if rows == 1 else 's'}")


def _write_table(frame: pl.LazyFrame, columns: Sequence[str]) -> None:
    """Print a table, shortened to the terminal's size, and the number of rows.

    Rows that lack one of the columns, as the steps of some trainings do, are printed with all of
    theirs.
    """
    from .row_table import print_table  # of rich, which the other formats do not need

    found = frame.head(TABLE_ROWS + 1).collect()
    there = columns if set(columns) <= set(found.columns) else ()
    shown = found.head(TABLE_ROWS).select(there or pl.all())
    print_table(shown)
    if found.height > TABLE_ROWS:
        say(f"the first {TABLE_ROWS:,} rows; `--format jsonl` writes them all")
    else:
        _say_count(found.height)
