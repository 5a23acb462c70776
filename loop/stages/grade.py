"""The verbs that grade: each aspect of a prompt's completions, and each completion as a whole.

Every aspect has a stage of its own over the same chunks of prompts, so a changed template asks
about its aspect alone again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...configs.load import semantic
from ...configs.recipes import Graded
from ...critics.grading.grade_reply import Appraisal
from ...critics.grading.graded_aspects import FINE_GRAINED
from ...critics.grading.grader import Grader
from ...critics.judge import Reading
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import Candidate, Grade, GradedAspect
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.needs import Needs
from ..run.reporter import Advance
from ..run.run import Run, Stage, Verb
from .ask_judge import ask_judge
from .grade_request import READ, GradingInquiry, grouped

GRADE = Verb("grade")
NOT_WRITTEN = frozenset({"failed", "overlong"})
"""How candidates end of which there is no text: their grades say so, and nobody is asked."""


def grade(it: Iteration, candidates: Rows[Candidate]) -> Rows[Grade]:
    """Grade the candidates of each prompt together, aspect by aspect, from 1 to 5.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    stages = tuple(_graded(it, aspect, candidates) for aspect in FINE_GRAINED)
    return Rows(row_type=Grade, stages=stages, called=f"grade:{candidates.label}")


def grade_overall(it: Iteration, candidates: Rows[Candidate]) -> Rows[Grade]:
    """Critique each candidate by itself, and score it from 1 to 10.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    return Rows(row_type=Grade, stages=(_graded(it, "overall", candidates),))


def _graded(it: Iteration, aspect: GradedAspect, candidates: Rows[Candidate]) -> Planned:
    """Pay the stage of one aspect."""
    grader = it.run.grader
    if grader is None:
        raise RuntimeError("this run was opened without a grader: see `grader_of`")
    grading = Grading(run=it.run, iteration=it.number, grader=grader, aspect=aspect)
    owed = it.work(GRADE, grading.identity, candidates)
    label = f"grade:{candidates.label}:{aspect}"
    with it.run.stage(it.number, label, owed, judge=True) as stage:
        grading.pay(stage, lambda chunk: it.chunk(candidates, chunk))
    return stage.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """A stage of grades in one aspect: one a candidate."""

    run: Run
    iteration: int
    grader: Grader
    aspect: GradedAspect

    @property
    def identity(self) -> Json:
        """What a grade depends on besides the candidates that are graded together."""
        config = self.run.config.grading
        return {
            "aspect": self.aspect,
            "grader": self.grader.digest(self.aspect),
            "served": self._judge.params,
            "sampling": semantic(config.sampling),
            "attempts": config.attempts,
            "retry_temperature": config.retry_temperature,
        }

    def pay(self, stage: Stage, candidates: Callable[[int], Sequence[Candidate]]) -> None:
        """Grade what the stage owes; `candidates` gives those of a chunk."""
        config = self.run.config.grading

        def commit(unit: Unit, put: Sequence[GradingInquiry], cost: Advance) -> None:
            rows = [row for inquiry in put for row in self._rows(inquiry)]
            unscored = sum(row.status not in READ for row in rows)
            stage.commit(unit, {Grade: rows}, replace(cost, rows=len(rows), unscored=unscored))

        ask_judge(
            self.run,
            stage,
            self._judge,
            config,
            work=lambda unit: self._inquiries(candidates(unit.chunk)),
            commit=commit,
        )

    @property
    def _judge(self) -> Served:
        return self.run.models.grader or self.run.models.feedback

    def _inquiries(self, candidates: Sequence[Candidate]) -> list[GradingInquiry]:
        written = [c for c in candidates if c.finish_reason not in NOT_WRITTEN]
        alone = self.aspect == "overall"
        groups = [(candidate,) for candidate in written] if alone else grouped(written)
        inquiries = [self._inquiry(group) for group in groups]
        return inquiries + [
            replace(self._inquiry((c,)), verdicts=(Reading(c.finish_reason, Appraisal()),))
            for c in candidates
            if c.finish_reason in NOT_WRITTEN
        ]

    def _inquiry(self, group: tuple[Candidate, ...]) -> GradingInquiry:
        return GradingInquiry(
            grader=self.grader,
            seed=self.run.config.seed,
            aspect=self.aspect,
            prompt=self.run.prompts[group[0].prompt_id],
            candidates=group,
            most=self.run.config.grading.attempts,
        )

    def _rows(self, inquiry: GradingInquiry) -> list[Grade]:
        return [
            self._row(inquiry, candidate, verdict, place)
            for candidate, verdict, place in zip(
                inquiry.candidates, inquiry.verdicts, inquiry.places, strict=True
            )
        ]

    def _row(
        self, inquiry: GradingInquiry, candidate: Candidate, read: Reading[Appraisal], place: int
    ) -> Grade:
        said = read.value
        return Grade(
            grade_id=row_id("grade", [candidate.candidate_id, inquiry.about, self.identity]),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            annotator=self._judge.identity,
            aspect=self.aspect,
            rating=said.rating,
            rationale=said.rationale,
            types=said.types,
            type_rationale=said.type_rationale,
            reference_used=self.grader.shows_reference(self.aspect, inquiry.prompt),
            order=place,
            status=read.status,
            attempts=inquiry.attempts,
            text=inquiry.text,
        )


NEEDS: Needs = {grade: (Graded,), grade_overall: (Graded,)}
