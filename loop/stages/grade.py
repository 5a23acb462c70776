"""The verbs that grade: each aspect of a prompt's completions, and each completion as a whole.

Every aspect has a stage of its own over the same chunks of prompts, so a changed template asks
about its aspect alone again.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...configs.recipes import Pooled
from ...critics.grading.grade_reply import Appraisal
from ...critics.grading.graded_aspects import FINE_GRAINED
from ...critics.grading.grader import Grader
from ...critics.judge import Reading
from ...critics.status import Status
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, FinishReason, Grade, GradedAspect, Receipt
from ..data.principles import Principle
from ..data.receipts import KEPT
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.needs import Asks, Needs
from ..run.run import Run, Verb
from ..run.stage import Stage
from ..run.stage_places import Places
from .ask_judge import (
    Posed,
    Replies,
    RepliesOf,
    ask_judge,
    judge_line,
    judge_params,
)
from .equal_answers import SharedInquiry, asked_once, equal_params, sharing_receipts
from .retry_unscored import judged

GRADE = Verb("grade", semantics=2)
NOT_WRITTEN: Mapping[FinishReason, str] = {
    "failed": Status.FAILED,
    "overlong": Status.OVERLONG,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""How candidates end of which there is no text: their grades say so, and nobody is asked."""
NOWHERE = -1

Group = tuple[Candidate, ...]
"""Candidates that are graded together."""
GroupInquiry = SharedInquiry[Group, Appraisal]


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
    grading = Grading(
        run=it.run,
        iteration=it.number,
        grader=grader,
        aspect=aspect,
        candidates=lambda chunk: it.chunk(candidates, chunk),
    )
    owed = it.work(GRADE, grading.params, candidates)
    return judged(it.run, it.number, f"grade:{candidates.label}:{aspect}", owed, grading)


@dataclass(frozen=True, kw_only=True)
class Grading:
    """A stage of grades in one aspect: one a candidate.

    `candidates` gives those of a chunk, when it is its turn.
    """

    run: Run
    iteration: int
    grader: Grader
    aspect: GradedAspect
    candidates: Callable[[int], Sequence[Candidate]]

    @property
    def attempts(self) -> int:
        """How many replies to a question are asked for at once."""
        return self.run.config.grading.attempts

    @property
    def params(self) -> Json:
        """What the keys of the stage hold: all that its rows depend on besides the candidates."""
        return {**self.identity, "attempts": self.attempts}

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """What a grade depends on besides what is graded together and the number of replies."""
        params = judge_params(self.run, self._judge, self.run.config.grading)
        config = self.run.config.grading
        cut = {} if config.cut_answers == "graded" else {"cut_answers": config.cut_answers}
        return {
            "aspect": self.aspect,
            "grader": self.grader.digest(self.aspect),
            **params,
            **equal_params(config.equal_answers),
            **cut,
        }

    @property
    def where(self) -> Places:
        """Where the judge is asked."""
        return self.run.places.of(self._judge)

    def pay(self, stage: Stage, replies: RepliesOf[Grade]) -> None:
        """Grade what the stage owes."""

        def rows(unit: Unit, asked: Sequence[GroupInquiry]) -> list[Grade]:
            return [
                row
                for one in asked
                for row in replies(unit).kept(self._ids(one)) or self._rows(one)
            ]

        ask_judge(
            judge_line(self.run, self._judge, self.run.config.grading),
            stage,
            Grade,
            work=lambda unit: self._asked(self.candidates(unit.chunk), replies(unit)),
            rows=rows,
            noted=self._noted,
        )

    def pose(self, group: Group, attempt: int) -> Posed[Appraisal]:
        """Return how candidates are asked about in an attempt: each has another random order."""
        shown = sorted(zip(self.places(group, attempt), group, strict=True), key=lambda s: s[0])
        principle = group[0].principle if self.aspect == "overall" else None
        told = principle and Principle.read(principle).text
        prompt, about = self.run.prompts[group[0].prompt_id], self._about(group)
        name, texts = row_id("ask", about), [candidate.text for _, candidate in shown]
        return Posed(
            self.grader.ask(self.aspect, prompt, texts, told, self.run.guard(name, self._judge)),
            name,
            derive_seed(self.run.config.seed, "grade", about, attempt),
        )

    def places(self, group: Group, attempt: int) -> list[int]:
        """Return the place, from 0, of each candidate in the question of an attempt.

        The order is drawn for these candidates alone, however they are stored.
        """
        ids = sorted(c.candidate_id for c in group)
        seed = derive_seed(self.run.config.seed, "grading order", self._about(group), attempt)
        random.Random(seed).shuffle(ids)
        return [ids.index(c.candidate_id) for c in group]

    @property
    def _judge(self) -> Served:
        return self.run.models.grader

    def _about(self, group: Group) -> Json:
        return [self.aspect, sorted(c.candidate_id for c in group)]

    def _id(self, candidate: Candidate, group: Group) -> str:
        return row_id("grade", [candidate.candidate_id, self._about(group), self.identity])

    def _ids(self, asked: GroupInquiry) -> Iterator[str]:
        """Give the ids of all grades that are made of a reply."""
        group = asked.subject
        return (self._id(c, group) for shown in group for c, _ in asked.sharing(shown))

    def _untold(self, candidate: Candidate) -> str | None:
        """Return why a candidate is not shown to the grader; None if it is."""
        told = NOT_WRITTEN.get(candidate.finish_reason)
        cut = candidate.finish_reason == "length"
        left_out = cut and self.run.config.grading.cut_answers == "unscored"
        return Status.TRUNCATED if left_out else told

    def _asked(
        self, candidates: Sequence[Candidate], replies: Replies[Grade]
    ) -> list[GroupInquiry]:
        """Ask about the candidates of each prompt, in the order in which prompts first appear."""
        alone = self.aspect == "overall"
        shown, equal = asked_once(
            [candidate for candidate in candidates if self._untold(candidate) is None],
            self.run.config.grading.equal_answers,
            besides=lambda candidate: candidate.principle if alone else None,
        )
        groups: dict[str, Group] = {}
        for candidate in shown:
            name = candidate.candidate_id if alone else candidate.prompt_id
            groups[name] = (*groups.get(name, ()), candidate)
        asked = [
            GroupInquiry(subject=group, pose=self.pose, equal=_of(group, equal))
            for group in groups.values()
        ]
        return [
            *(
                one
                if replies.kept(self._ids(one))
                else replace(one, most=replies.most, attempts=replies.had)
                for one in asked
            ),
            *(
                GroupInquiry(
                    subject=(candidate,), pose=self.pose, readings=[Reading(told, Appraisal())]
                )
                for candidate in candidates
                if (told := self._untold(candidate)) is not None
            ),
        ]

    def _noted(self, asked: Sequence[GroupInquiry]) -> list[Receipt]:
        """Return how many candidates were shown, how many only share, and why others were not."""
        fates: dict[str, list[str]] = {}
        for one in asked:
            for candidate in one.subject:
                fates.setdefault(self._untold(candidate) or KEPT, []).append(candidate.candidate_id)
        how = self.run.config.grading.equal_answers
        return sharing_receipts(self.iteration, f"grade:{self.aspect}", how, asked, fates)

    def _rows(self, asked: GroupInquiry) -> Iterator[Grade]:
        group, attempts = asked.subject, asked.attempts
        places = self.places(group, attempts - 1) if attempts else [NOWHERE]
        for shown, place in zip(group, places, strict=True):
            reading, prompt = asked.readings[place], self.run.prompts[shown.prompt_id]
            for candidate, shares in asked.sharing(shown):
                yield Grade(
                    grade_id=self._id(candidate, group),
                    candidate_id=candidate.candidate_id,
                    prompt_id=candidate.prompt_id,
                    iteration=self.iteration,
                    annotator=self._judge.identity,
                    aspect=self.aspect,
                    rating=reading.value.rating,
                    rationale=reading.value.rationale,
                    types=reading.value.types,
                    type_rationale=reading.value.type_rationale,
                    reference_used=self.grader.shows_reference(self.aspect, prompt),
                    order=place,
                    status=reading.status,
                    attempts=attempts,
                    text=asked.text,
                    same_as=self._id(shown, group) if shares else None,
                )


def _of(group: Group, equal: Mapping[str, Sequence[Candidate]]) -> dict[str, Sequence[Candidate]]:
    """Return which candidates are equal to one of a group."""
    return {c.candidate_id: equal[c.candidate_id] for c in group if c.candidate_id in equal}


ASKS: Asks = {grade: ("grading",), grade_overall: ("grading",)}
NEEDS: Needs = {grade: (Pooled,), grade_overall: (Pooled,)}
