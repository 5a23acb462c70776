"""The tables of a run as lazy frames, one method each; some with the filters of their commands.

A filter by a word that the run does not have is an error, as with the commands. `text` is a part of
a text in any case, or a regular expression between slashes; `sort` a column, descending after a
dash.
"""

from collections.abc import Callable
from pathlib import Path

import polars as pl

from ...stores.derived import scan_derived
from ...stores.frames import empty
from ...stores.lake import RunReader
from ..lake.query import row_lists
from ..lake.query.row_lists import RowSelection
from .rows_frame import RowsFrame

Listed = Callable[[RunReader, RowSelection], pl.LazyFrame]


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

    def candidates(
        self,
        iteration: int | None = None,
        *,
        task: str | None = None,
        kind: str | None = None,
        aspect: str | None = None,
        rating: int | None = None,
        unscored: bool = False,
        min_reward: float | None = None,
        max_reward: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        text: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> RowsFrame:
        """Return the candidates: samples, refinements, greedy answers, imported texts.

        Each has its task and its reward beside the stored columns. The length is in tokens;
        `aspect`, `rating` and `unscored` are about their critiques.

        Raises:
            ListError: if the run has no such word, or no such column to sort by.
        """
        wanted = RowSelection(
            iteration=iteration,
            task=task,
            kind=kind,
            aspect=aspect,
            rating=rating,
            unscored=unscored,
            min_reward=min_reward,
            max_reward=max_reward,
            min_length=min_length,
            max_length=max_length,
            text=text,
            sort=sort,
            limit=limit,
        )
        return RowsFrame.of(row_lists.candidates(self._reader, wanted), "candidates")

    def critiques(
        self,
        iteration: int | None = None,
        *,
        task: str | None = None,
        kind: str | None = None,
        aspect: str | None = None,
        rating: int | None = None,
        unscored: bool = False,
        min_reward: float | None = None,
        max_reward: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        text: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> RowsFrame:
        """Return the critiques f(x, y), each with its aspects.

        The length is in characters; kind and reward are the candidate's.

        Raises:
            ListError: if the run has no such word, or no such column to sort by.
        """
        wanted = RowSelection(
            iteration=iteration,
            task=task,
            kind=kind,
            aspect=aspect,
            rating=rating,
            unscored=unscored,
            min_reward=min_reward,
            max_reward=max_reward,
            min_length=min_length,
            max_length=max_length,
            text=text,
            sort=sort,
            limit=limit,
        )
        return self._listed("critiques", row_lists.critiques, wanted)

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

    def grades(
        self,
        iteration: int | None = None,
        *,
        task: str | None = None,
        aspect: str | None = None,
        rating: int | None = None,
        unscored: bool = False,
        min_length: int | None = None,
        max_length: int | None = None,
        text: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> RowsFrame:
        """Return the ratings from 1 to 5 in four aspects, and critiques with a score to 10.

        Raises:
            ListError: if the run has no such word, or no such column to sort by.
        """
        wanted = RowSelection(
            iteration=iteration,
            task=task,
            aspect=aspect,
            rating=rating,
            unscored=unscored,
            min_length=min_length,
            max_length=max_length,
            text=text,
            sort=sort,
            limit=limit,
        )
        return self._listed("grades", row_lists.grades, wanted)

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

    def pairs(
        self,
        iteration: int | None = None,
        *,
        derived: str | None = None,
        task: str | None = None,
        rule: str | None = None,
        aspect: str | None = None,
        rating: int | None = None,
        min_margin: float | None = None,
        min_reward: float | None = None,
        max_reward: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        text: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> RowsFrame:
        """Return the pairs; `derived` names a table of `lpfloop.rederive`.

        Reward and length in characters are the chosen answer's, ratings the rejected one's.

        Raises:
            ListError: if the run has no such word, or no such column to sort by.
        """
        wanted = RowSelection(
            iteration=iteration,
            task=task,
            rule=rule,
            aspect=aspect,
            rating=rating,
            min_margin=min_margin,
            min_reward=min_reward,
            max_reward=max_reward,
            min_length=min_length,
            max_length=max_length,
            text=text,
            sort=sort,
            limit=limit,
        )
        if wanted == RowSelection(iteration=iteration):
            return self._rows("pairs", iteration, derived)
        return RowsFrame.of(row_lists.pairs(self._reader, wanted, derived))

    def demonstrations(
        self, iteration: int | None = None, *, derived: str | None = None
    ) -> RowsFrame:
        """Return the demonstrations; `derived` names a table of `lpfloop rederive`."""
        return self._rows("demonstrations", iteration, derived)

    def unpaired_answers(
        self, iteration: int | None = None, *, derived: str | None = None
    ) -> RowsFrame:
        """Return the successes and failures; `derived` names a table of `lpfloop rederive`."""
        return self._rows("unpaired_answers", iteration, derived)

    def yields(self, iteration: int | None = None, *, derived: str | None = None) -> RowsFrame:
        """Return how many rows to train on each prompt gave, or why none."""
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

    def _listed(self, table: str, listed: Listed, wanted: RowSelection) -> RowsFrame:
        """Return all rows of a table, or those that a list selects; the columns are the same."""
        if wanted == RowSelection(iteration=wanted.iteration):
            return self._rows(table, wanted.iteration)
        return RowsFrame.of(listed(self._reader, wanted).select(empty(table).columns))

    def _rows(self, table: str, iteration: int | None, derived: str | None = None) -> RowsFrame:
        if derived is None:
            return RowsFrame.of(self._reader.scan(table, iteration=iteration), table)
        rows = scan_derived(self.folder, derived, table)
        if iteration is None:
            return RowsFrame.of(rows, table)
        return RowsFrame.of(rows.filter(pl.col("iteration") == iteration))
