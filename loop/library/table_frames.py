"""The tables of a run as lazy frames, one method each."""

from pathlib import Path

import polars as pl

from ...stores.derived import derived_names, scan_derived
from ...stores.lake import RunReader
from .rows_frame import RowsFrame


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

    def scores(self, iteration: int | None = None) -> RowsFrame:
        """Return the prompt-level rows behind the evaluations."""
        return self._rows("scores", iteration)

    def derived(self) -> list[str]:
        """Return the names of the run's derived tables."""
        return derived_names(self.folder)

    def _rows(self, table: str, iteration: int | None, derived: str | None = None) -> RowsFrame:
        if derived is None:
            return RowsFrame.of(self._reader.scan(table, iteration=iteration), table)
        rows = scan_derived(self.folder, derived, table)
        if iteration is None:
            return RowsFrame.of(rows, table)
        return RowsFrame.of(rows.filter(pl.col("iteration") == iteration))
