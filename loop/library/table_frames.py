"""The tables of a run as lazy frames: `rows` for any of them, and a short name for some.

Filters are those of the commands. A filter by a word that the run does not have is an error. `text`
is a part of a text in any case, or a regular expression between slashes. `sort` is a column, in
descending order after a dash.
"""

from pathlib import Path
from typing import Unpack

import polars as pl

from ...stores.derived import scan_derived
from ...stores.lake import RunReader
from ..lake.query import tables
from ..lake.query.filters import Filters


class RunTables:
    """The tables of a run. Each call sees all units committed by then, and only whole ones."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._reader.folder

    @property
    def lake(self) -> Path:
        """The folder of the lake that the run is in."""
        return self.folder.parent.parent

    def rows(
        self,
        table: str,
        iteration: int | None = None,
        *,
        derived: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> pl.LazyFrame:
        """Return the rows of a table, by default all of them in the order of the stored rows.

        Candidates have their task and their reward, too. `derived` names a table of
        `lpfloop.rebuild_pairs`. Lengths of candidates are in tokens, others in characters. Of
        candidates, `aspect`, `rating` and `unscored` ask their critiques; of pairs, those of the
        rejected answer, while reward and length are the chosen answer's.

        Raises:
            ListError: if there is no such table, filter or column, or the run has no such word.
        """
        if not (filters or sort or limit or tables.table_of(table).added):
            return self._stored_rows(table, iteration, derived)
        return tables.rows(
            self._reader,
            table,
            filters,
            iteration=iteration,
            derived=derived,
            sort=sort,
            limit=limit,
        )

    def prompts(self) -> pl.LazyFrame:
        """Return the prompts x."""
        return self.rows("prompts")

    def candidates(
        self,
        iteration: int | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> pl.LazyFrame:
        """Return the candidates: samples, refinements, greedy answers, imported texts."""
        return self.rows("candidates", iteration, sort=sort, limit=limit, **filters)

    def critiques(
        self,
        iteration: int | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> pl.LazyFrame:
        """Return the critiques f(x, y), each with its aspects."""
        return self.rows("critiques", iteration, sort=sort, limit=limit, **filters)

    def ratings(self, iteration: int | None = None) -> pl.LazyFrame:
        """Return one row for each aspect that a critique rates."""
        tasks = self.prompts().select("prompt_id", "task").unique("prompt_id")
        aspect = pl.col("aspects").struct
        return (
            self.critiques(iteration)
            .explode("aspects", empty_as_null=False)
            .select(
                "critique_id",
                "candidate_id",
                "prompt_id",
                "iteration",
                "critic",
                aspect.field("name").alias("aspect"),
                aspect.field("rating"),
                aspect.field("comment"),
            )
            .join(tasks, on="prompt_id", how="left")
        )

    def pairs(
        self,
        iteration: int | None = None,
        *,
        derived: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> pl.LazyFrame:
        """Return the pairs; `derived` names a table of `lpfloop.rebuild_pairs`."""
        return self.rows("pairs", iteration, derived=derived, sort=sort, limit=limit, **filters)

    def _stored_rows(self, table: str, iteration: int | None, derived: str | None) -> pl.LazyFrame:
        if derived is None:
            return self._reader.scan(table, iteration=iteration)
        rows = scan_derived(self.folder, derived, table)
        return rows if iteration is None else rows.filter(pl.col("iteration") == iteration)
