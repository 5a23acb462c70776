"""What `lpfloop.open` returns: a run to read from Python, while it is written or afterwards."""

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from ...configs.load import resolved
from ...stores.address import lake_folder
from ...stores.derived import derived_names, scan_derived
from ...stores.installation import pip_install
from ...stores.journal_reader import JOURNAL
from ...stores.lake import RunReader
from ...stores.records import Scope
from .query.model_figures import results_by
from .query.model_names import PUBLISHED, model_of
from .query.runs import NoSuchRunError, open_run
from .query.sql import TIMEOUT, query
from .trace.diff import DiffRequest, diff
from .trace.diff_page import Diff
from .trace.find_row import find
from .trace.graph import Lineage
from .trace.lineage import lineage
from .trace.published_model import PublishedModel, configuration, published_model
from .trace.show import ShownRow, shown

if TYPE_CHECKING:
    from datasets import Dataset  # pyright: ignore[reportMissingTypeStubs]


class RowsFrame(pl.LazyFrame):
    """Rows of a run: a Polars lazy frame that can also become a `datasets.Dataset`.

    The results of `filter`, `select`, `join`, `sort` and the like can, too.
    """

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {dtype}" for name, dtype in self.collect_schema().items())
        return f"<rows, not read yet, with the columns {columns}; .collect() reads them>"

    @classmethod
    def of(cls, frame: pl.LazyFrame) -> "RowsFrame":
        """Return a lazy frame as rows."""
        rows = cls.__new__(cls)
        vars(rows).update(vars(frame))
        return rows

    def to_hf(self) -> "Dataset":
        """Return the rows as a `datasets.Dataset`, as TRL and others take them.

        Raises:
            ImportError: if `datasets` is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise ImportError(f"to_hf() needs datasets: {pip_install('datasets')}") from error
        return Dataset.from_polars(self.collect())


class ReadOnlyRun:
    """A run, read-only. Each call sees all units committed by then, and only whole ones."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def __enter__(self) -> Self:
        """Return the run; leaving closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"lpfloop.open({str(self.folder)!r})"

    def close(self) -> None:
        """Close the run's journal."""
        self._reader.close()

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._reader.folder

    def prompts(self) -> RowsFrame:
        """Return the prompts x."""
        return self._rows("prompts", None)

    def candidates(self, iteration: int | None = None) -> RowsFrame:
        """Return the candidates: samples, refinements, greedy answers, imported texts."""
        return self._rows("candidates", iteration)

    def critiques(self, iteration: int | None = None) -> RowsFrame:
        """Return the critiques f(x, y), each with its aspects."""
        return self._rows("critiques", iteration)

    def ratings(self, iteration: int | None = None) -> RowsFrame:
        """Return one row for each aspect that a critique rates."""
        tasks = self.prompts().select("prompt_id", "task").unique("prompt_id")
        aspect = pl.col("aspects").struct
        return RowsFrame.of(
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

    def rewards(self, iteration: int | None = None) -> RowsFrame:
        """Return the rewards r(x, y)."""
        return self._rows("rewards", iteration)

    def preferences(self, iteration: int | None = None) -> RowsFrame:
        """Return which of two candidates an annotator prefers."""
        return self._rows("preferences", iteration)

    def grades(self, iteration: int | None = None) -> RowsFrame:
        """Return the ratings from 1 to 5 in four aspects, and critiques with a score to 10."""
        return self._rows("grades", iteration)

    def breakdowns(self, iteration: int | None = None) -> RowsFrame:
        """Return the statements of each passage of the answers to prompts of facts."""
        return self._rows("breakdowns", iteration)

    def claims(self, iteration: int | None = None) -> RowsFrame:
        """Return the statements of answers, and whether the reference supports them."""
        return self._rows("claims", iteration)

    def prompt_reviews(self, iteration: int | None = None) -> RowsFrame:
        """Return the reviews of the prompts' own quality."""
        return self._rows("prompt_reviews", iteration)

    def receipts(self, iteration: int | None = None) -> RowsFrame:
        """Return what each filter kept and dropped, and why."""
        return self._rows("receipts", iteration)

    def pairs(self, iteration: int | None = None, *, derived: str | None = None) -> RowsFrame:
        """Return the pairs; `derived` names a table of `lpfloop rederive`."""
        return self._rows("pairs", iteration, derived)

    def demonstrations(
        self, iteration: int | None = None, *, derived: str | None = None
    ) -> RowsFrame:
        """Return the demonstrations; `derived` names a table of `lpfloop rederive`."""
        return self._rows("demonstrations", iteration, derived)

    def yields(self, iteration: int | None = None, *, derived: str | None = None) -> RowsFrame:
        """Return how many pairs or demonstrations each prompt gave, or why none."""
        return self._rows("yields", iteration, derived)

    def checkpoints(self) -> RowsFrame:
        """Return the checkpoints M_t."""
        return self._rows("checkpoints", None)

    def reward_models(self) -> RowsFrame:
        """Return the reward models that were trained here."""
        return self._rows("reward_models", None)

    def rollouts(self, iteration: int | None = None) -> RowsFrame:
        """Return an online method's numbers for each candidate: step, reward, KL and more."""
        return self._rows("rollouts", iteration)

    def statistics(self, iteration: int | None = None) -> RowsFrame:
        """Return the numbers about each step of the trainings."""
        return self._rows("statistics", iteration)

    def evaluations(self, iteration: int | None = None) -> RowsFrame:
        """Return the numbers about the checkpoints."""
        return self._rows("evaluations", iteration)

    def results(self, *, split: str | None = None, by: Scope = "task") -> pl.DataFrame:
        """Return the figures of every model with their changes since the first, one row each.

        `by` is task or family; `split` is dev or held-out, by default what `lpfloop status` shows.

        Raises:
            NotMeasuredError: if nothing was measured there.
        """
        return results_by(self._reader, by, split).frame

    def scores(self, iteration: int | None = None) -> RowsFrame:
        """Return the prompt-level rows behind the evaluations."""
        return self._rows("scores", iteration)

    def model(self, which: str = PUBLISHED, *, by: str | None = None) -> PublishedModel:
        """Return a model of the run: `M_2`, `latest`, `best` (by a figure), or a checkpoint's id.

        By default it is the best that the loop keeps; the latest where it has no verdicts.

        Raises:
            NoSuchRunError: if the run has no such model.
            NoSuchFigureError: if nothing was measured that tells the best.
        """
        return published_model(self._reader, model_of(self._reader, which, by))

    @property
    def config(self) -> dict[str, Any]:
        """The run's configuration as plain data, without secrets."""
        return resolved(configuration(self._reader))

    def derived(self) -> list[str]:
        """Return the names of the run's derived tables."""
        return derived_names(self.folder)

    def sql(self, text: str, *, timeout: float = TIMEOUT) -> pl.DataFrame:
        """Answer a SELECT over this run's tables, by DuckDB.

        Raises:
            SqlError: if it cannot be answered, or computes for over `timeout` seconds (0: no
                limit).
        """
        return query(self.folder.parent.parent, text, (self.name,), timeout=timeout)

    def show(self, identity: str, *, iteration: int | None = None) -> ShownRow:
        """Return the row of an id with all that belongs to it; a notebook shows it as HTML.

        Raises:
            NoSuchIdError: if the run does not have it.
        """
        return shown(self._reader, find(self._reader, identity), iteration)

    def lineage(self, identity: str) -> Lineage:
        """Return what an id comes from, and what was made from it.

        Raises:
            NoSuchIdError: if the run does not have it.
        """
        return lineage(self._reader, find(self._reader, identity))

    def diff(
        self,
        before: int | None = None,
        after: int | None = None,
        *,
        task: str | None = None,
        metric: str | None = None,
        other: "ReadOnlyRun | None" = None,
    ) -> Diff:
        """Compare two iterations prompt by prompt; by default M_0 and the last that was measured.

        Raises:
            DiffError: if they cannot be compared.
        """
        wanted = DiffRequest(before=before, after=after, task=task, metric=metric, answers=True)
        second = None if other is None else other._reader  # noqa: SLF001 -- of the same class
        return diff(self._reader, wanted, second)

    def _rows(self, table: str, iteration: int | None, derived: str | None = None) -> RowsFrame:
        if derived is None:
            return RowsFrame.of(self._reader.scan(table, iteration=iteration))
        rows = scan_derived(self.folder, derived, table)
        return RowsFrame.of(
            rows if iteration is None else rows.filter(pl.col("iteration") == iteration)
        )


def open_folder_or_name(run: str | Path | None, lake: str | Path | None) -> ReadOnlyRun:
    """Open the run in the folder `run`, or of that name in a lake.

    Raises:
        NoSuchRunError: if there is none.
    """
    if run is not None and lake is None and (Path(run) / JOURNAL).is_file():
        return ReadOnlyRun(RunReader(Path(run)))
    root = lake_folder(str(lake or os.environ.get("LPFLOOP_LAKE") or "lake"))
    if run is not None and lake is None and os.sep in str(run):
        raise NoSuchRunError(
            f"there is no run at {run}: give a run's folder, or its name and lake="
        )
    return ReadOnlyRun(open_run(root, None if run is None else str(run)))
