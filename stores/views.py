# pyright: basic
"""What queries have beyond a run's row tables: views of these tables, units and events."""

from collections.abc import Callable, Iterator, Mapping

import polars as pl
from polars.io.plugins import register_io_source

from .journal_reader import Reader

VIEWS: Mapping[str, str] = {
    "ratings": """
        select run, critique_id, candidate_id, prompt_id, task, iteration, critic,
            rated.name as aspect, rated.rating as rating, rated.comment as comment
        from (
            select critiques.*, task, unnest(aspects) as rated
            from critiques left join (
                select run, prompt_id, any_value(task) as task from prompts group by run, prompt_id
            ) using (run, prompt_id)
        )
    """,
    "failures": """
        select run, iteration, prompt_id, candidate_id,
            case reason.rating when -1 then 'failure' when 0 then 'moderate' else status end
                as status,
            reason.name as aspect, reason.rating as rating,
            coalesce(nullif(reason.comment, ''), text) as text
        from (
            select *, unnest(
                case when status = 'scored' then list_filter(aspects, lambda a: a.rating < 1)
                    else [null] end
            ) as reason
            from critiques
        )
        union all by name
        select run, iteration, prompt_id, candidate_id, finish_reason as status, text
        from candidates where finish_reason != 'stop'
    """,
}
"""Views of the row tables, in SQL.

`ratings` has one row for each aspect that a critique rates. `failures` has one row for each reason
why a candidate is no success: an aspect rated -1 (`failure`) or 0 (`moderate`), a critique that
could not be read, or an answer that is not whole. Its text is the aspect's comment, the unread
reply, or the answer.
"""

JOURNAL_TABLES: Mapping[str, Mapping[str, pl.DataType]] = {
    "units": {
        "key": pl.String(),
        "iteration": pl.Int64(),
        "stage": pl.String(),
        "chunk": pl.Int64(),
        "done": pl.Boolean(),
        "rows": pl.Int64(),
        "telemetry": pl.String(),
    },
    "events": {"time": pl.Datetime("ms"), "kind": pl.String(), "detail": pl.String()},
}
"""The tables that a run's journal holds, with their columns; times are UTC."""


def journal_table(journal: Reader, table: str) -> pl.DataFrame:
    """Return the rows of one of the `JOURNAL_TABLES`."""
    if table == "units":
        rows = [(*unit[:4], bool(unit[4]), *unit[5:]) for unit in journal.all_units()]
    else:
        rows = [(round(at * 1000), kind, detail) for at, kind, detail in journal.all_events()]
    return pl.DataFrame(rows, schema=dict(JOURNAL_TABLES[table]), orient="row")


def lazy_rows(schema: Mapping[str, pl.DataType], rows: Callable[[], pl.LazyFrame]) -> pl.LazyFrame:
    """Return a lazy frame that calls `rows` at each scan, and not before."""

    def scan(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        frame = rows()
        if predicate is not None:
            frame = frame.filter(predicate)
        frame = frame.select(columns or pl.all())
        yield (frame if limit is None else frame.head(limit)).collect()

    return register_io_source(scan, schema=dict(schema))
