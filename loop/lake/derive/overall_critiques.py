"""Deriving demonstrations from a run's overall grades, from which a critique model learns.

The questions are from the run's own grader; for an imported run, which lacks one, from the shipped
templates, so that the model can be any run's grader by default.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from ....configs.load import stored_config
from ....configs.schema import GradingConfig
from ....critics.grading.grader import Grader
from ....stores.derived import Draft
from ....stores.frames import frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Candidate, Demonstration, Grade, Prompt
from ....stores.schemas import TABLES
from ...data.lessons import GRADED_CRITIQUE, Lessons, graded_lessons
from ...run.outcomes import NothingToTrainOn
from .derivation_request import DerivationRequest
from .stored_blocks import GRADED

GRADES_A_BLOCK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallCritiques:
    """The overall grades of some iterations, to be made into demonstrations."""

    run: RunReader
    grader: Grader
    iterations: tuple[int, ...]

    @property
    def lineage(self) -> dict[str, Json]:
        """The sources and the way of the derivation."""
        return {
            "verb": "rebuild-pairs",
            "run": self.run.folder.name,
            "table": TABLES[Demonstration],
            "rule": GRADED_CRITIQUE,
            "top_k": None,
            "seed": None,
            "iterations": list(self.iterations),
            "critiques": None,
            "grader": self.grader.digest("overall"),
            "reads": [s for n in self.iterations for s in GRADED.stages(self.run, n)],
        }

    def make(self, draft: Draft) -> Mapping[str, Json]:
        """Add the rows to a draft; return the number of critiques by outcome.

        Raises:
            NothingToTrainOn: if it makes zero rows.
        """
        found = Counter[str]()
        for number in self.iterations:
            for candidates, made in self._lessons(number):
                for row_type, rows in made.tables(candidates).items():
                    draft.add(TABLES[row_type], rows)
                found.update({fate: len(ids) for fate, ids in made.fates.items()})
        if not draft.rows.get(TABLES[Demonstration]):
            fates = ", ".join(f"{count} {fate}" for fate, count in found.items()) or "none is there"
            raise NothingToTrainOn(
                f"rule {GRADED_CRITIQUE} produces no demonstrations from run "
                f"{self.run.folder.name}; critiques with an overall score by outcome: {fates}"
            )
        return {"outcomes": dict(sorted(found.items()))}

    def _lessons(self, iteration: int) -> Iterator[tuple[pl.DataFrame, Lessons]]:
        """Give the lessons of an iteration, and the candidates that they are about, by blocks."""
        is_overall = pl.col("aspect") == "overall"
        grades = self.run.scan("grades", iteration=iteration).filter(is_overall).collect()
        for block in grades.iter_slices(GRADES_A_BLOCK):
            candidates = self._rows("candidates", "candidate_id", block)
            prompts = self._rows("prompts", "prompt_id", block)
            by_id = {prompt.prompt_id: prompt for prompt in frame_rows(Prompt, prompts)}
            drafts, grade_rows = frame_rows(Candidate, candidates), frame_rows(Grade, block)
            yield candidates, graded_lessons(self.grader, by_id, drafts, grade_rows, iteration)

    def _rows(self, table: str, name: str, block: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a table that a block of grades is about, each once."""
        rows = self.run.scan(table).filter(pl.col(name).is_in(block[name].unique().to_list()))
        return rows.collect().unique(name, keep="first", maintain_order=True)


def overall_critiques(run: RunReader, request: DerivationRequest) -> OverallCritiques:
    """Plan demonstrations of a run's overall grades.

    Raises:
        DerivedError: for a request that does not fit, or a run without grades.
    """
    is_own = request.table == TABLES[Demonstration]
    request.refuse_others("overall grades", *(["--table"] if is_own else []))
    stored = run.journal.meta("config")
    grading = GradingConfig() if stored is None else _grading(stored)
    iterations = GRADED.iterations(run, request.iteration)
    return OverallCritiques(
        run=run, grader=Grader.from_config(grading), iterations=tuple(iterations)
    )


def _grading(stored: str) -> GradingConfig:
    return stored_config(json.loads(stored), (), {}, to_run=False).grading
