"""The verbs that grade: aspects of a prompt's completions, whole completions, and answers by forms.

Every aspect has a separate stage over the same chunks of prompts, so changing one template regrades
only its aspect. A form's aspects are asked about together, each answer separately; the judge's
reason and reply are stored with each grade. An answer without text, or without the reference that
its form compares it with, is stored unscored without a question.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.recipes import Pooled
from ...critics.grading.grade_reply import FINE_GRAINED, Appraisal
from ...critics.grading.grader import Grader
from ...critics.scoring.answer_forms import AnswerForm, ask_scores
from ...critics.status import Status
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, FilterCount, FinishReason, Grade, GradedAspect
from ..data.filter_counts import KEPT
from ..data.principles import Principle
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import GRADING, SCORING_JUDGE
from ..run.run import Verb
from .judging import (
    PENDING,
    Alike,
    JudgedStage,
    JudgeRequest,
    Posed,
    equal_params,
    group_equal,
    judge_client,
    judge_params,
    sharing_counts,
)

GRADE, SCORE_ANSWERS = Verb("grade", semantics=2), Verb("score_answers")
NOT_WRITTEN: Mapping[FinishReason, str] = {
    "failed": Status.FAILED,
    "overlong": Status.OVERLONG,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""The statuses of candidates without text, by finish reason; these are not graded."""
NOWHERE = -1
"""The place of a candidate that is not in any question."""

Group = tuple[Alike, ...]
"""Candidates that are graded together; equal ones count as one."""


def grade(it: Iteration, candidates: Rows[Candidate]) -> Rows[Grade]:
    """Grade the candidates of each prompt together, aspect by aspect, from 1 to 5.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    it.require(Pooled, "grade")
    stages = tuple(_grade_aspect(it, aspect, candidates) for aspect in FINE_GRAINED)
    return Rows(row_type=Grade, stages=stages, called=f"grade:{candidates.label}")


def grade_overall(it: Iteration, candidates: Rows[Candidate]) -> Rows[Grade]:
    """Critique each candidate separately, and score it from 1 to 10.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    it.require(Pooled, "grade_overall")
    return Rows(row_type=Grade, stages=(_grade_aspect(it, "overall", candidates),))


def score_answers(it: Iteration, answers: Rows[Candidate], form: AnswerForm) -> Rows[Grade]:
    """Score each answer in the aspects of a form by the strong judge."""
    settings = it.run.config.assessment.judge
    scoring = ScoringAnswers(
        run=it.run,
        iteration=it.number,
        client=judge_client(it.run, it.run.models.judge(SCORING_JUDGE), settings),
        attempts=settings.attempts,
        form=form,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    work = it.work(SCORE_ANSWERS, scoring.params, answers)
    stage = scoring.plan(f"{SCORE_ANSWERS.name}:{answers.label}:{form.name}", work)
    return Rows(row_type=Grade, stages=(stage,))


def _grade_aspect(it: Iteration, aspect: GradedAspect, candidates: Rows[Candidate]) -> Planned:
    """Plan and run the stage of one aspect."""
    grader, config = it.run.grader, it.run.config.grading
    if grader is None:
        raise RuntimeError("this run was opened without a grader: see `judges_of`")
    grading = Grading(
        run=it.run,
        iteration=it.number,
        client=judge_client(it.run, it.run.models.judge(GRADING), config),
        attempts=config.attempts,
        grader=grader,
        aspect=aspect,
        candidates=lambda chunk: it.chunk(candidates, chunk),
    )
    work = it.work(GRADE, grading.params, candidates)
    return grading.plan(f"grade:{candidates.label}:{aspect}", work)


@dataclass(frozen=True, kw_only=True)
class Grading(JudgedStage[Group, Appraisal, Grade]):
    """A stage of grades in one aspect, one per candidate; `candidates` returns a chunk's."""

    row_type = Grade
    grader: Grader
    aspect: GradedAspect
    candidates: Callable[[int], Sequence[Candidate]]

    def _depends_on(self) -> Mapping[str, Json]:
        config = self.run.config.grading
        cut = {} if config.cut_answers == "graded" else {"cut_answers": config.cut_answers}
        return {
            "aspect": self.aspect,
            "grader": self.grader.digest(self.aspect),
            **judge_params(self.run, self.judge, config),
            **equal_params(config.equal_answers),
            **cut,
        }

    def _subjects(self, chunk: int) -> Iterator[tuple[Group, list[Grade]]]:
        candidates, alone = self.candidates(chunk), self.aspect == "overall"
        groups = dict[str, list[Alike]]()
        for alike in group_equal(
            [candidate for candidate in candidates if self._why_not_shown(candidate) is None],
            self.run.config.grading.equal_answers,
            also_by=lambda candidate: candidate.principle if alone else None,
        ):
            name = alike[0].candidate_id if alone else alike[0].prompt_id
            groups.setdefault(name, []).append(alike)
        for group in map(tuple, groups.values()):
            yield group, self._rows(group, PENDING)
        for candidate in candidates:
            if (why := self._why_not_shown(candidate)) is not None:
                group = ((candidate,),)
                yield group, self._rows(group, why)

    def _rows(self, group: Group, status: str) -> list[Grade]:
        """Return the rows of a group before it is graded."""
        shows = self.grader.shows_reference(self.aspect, self.run.prompts[group[0][0].prompt_id])
        rows = list[Grade]()
        for first, *others in group:
            row = self._row(first, group, status, shows=shows)
            same = (self._row(other, group, status, shows=shows) for other in others)
            rows += [row, *(replace(other, same_as=row.grade_id) for other in same)]
        return rows

    def _row(self, candidate: Candidate, group: Group, status: str, *, shows: bool) -> Grade:
        name = row_id("grade", [candidate.candidate_id, self._about(group), self.identity])
        return ungraded(self, name, candidate, self.aspect, status, reference_used=shows)

    def _pose(self, subject: Group, attempt: int) -> Posed[Appraisal]:
        places, first = self._orders(subject, attempt), subject[0][0]
        shown = sorted(zip(places, subject, strict=True), key=lambda placed: placed[0])
        texts = [alike[0].text for _, alike in shown]
        # A principle excuses its consequences, but only in the completion that followed it.
        principle = first.principle if self.aspect == "overall" else None
        principle_text = principle and Principle.read(principle).text
        about = self._about(subject)
        name, prompt = row_id("ask", about), self.run.prompts[first.prompt_id]
        question = self.grader.ask(self.aspect, prompt, texts, principle_text, self.guard(name))
        return Posed(question, name, derive_seed(self.run.config.seed, "grade", about, attempt))

    def _fill(self, row: Grade, value: Appraisal, place: int) -> Grade:
        return replace(super()._fill(row, value, place), order=place)

    def _places(self, request: JudgeRequest[Group, Appraisal, Grade]) -> list[int]:
        orders = self._orders(request.subject, request.attempts - 1)
        paired = zip(request.subject, orders, strict=True)
        return [place for alike, place in paired for _ in alike]

    def _filter_counts_of(
        self, requests: Sequence[JudgeRequest[Group, Appraisal, Grade]]
    ) -> list[FilterCount]:
        groups = [alike for one in requests for alike in one.subject]
        fates = dict[str, list[str]]()
        for first, *_ in groups:
            fates.setdefault(self._why_not_shown(first) or KEPT, []).append(first.candidate_id)
        how = self.run.config.grading.equal_answers
        return sharing_counts(self.iteration, f"grade:{self.aspect}", how, groups, fates)

    def _orders(self, group: Group, attempt: int) -> list[int]:
        """Return the place, from 0, of each candidate in the question of an attempt."""
        ids = sorted(alike[0].candidate_id for alike in group)
        seed = derive_seed(self.run.config.seed, "grading order", self._about(group), attempt)
        random.Random(seed).shuffle(ids)
        return [ids.index(alike[0].candidate_id) for alike in group]

    def _about(self, group: Group) -> Json:
        return [self.aspect, sorted(alike[0].candidate_id for alike in group)]

    def _why_not_shown(self, candidate: Candidate) -> str | None:
        """Return why a candidate is not shown to the grader; None if it is."""
        reason = NOT_WRITTEN.get(candidate.finish_reason)
        cut = candidate.finish_reason == "length"
        left_out = cut and self.run.config.grading.cut_answers == "unscored"
        return Status.TRUNCATED if left_out else reason


@dataclass(frozen=True, kw_only=True)
class ScoringAnswers(JudgedStage[Candidate, Appraisal, Grade]):
    """A stage of scores by one form; `answers` returns the answers of a chunk when it begins."""

    row_type = Grade
    form: AnswerForm
    answers: Callable[[int], Sequence[Candidate]]

    def _depends_on(self) -> Mapping[str, Json]:
        params = judge_params(self.run, self.judge, self.run.config.assessment.judge)
        return {"form": self.form.name, "asked": self.form.digest, **params}

    def _subjects(self, chunk: int) -> Iterator[tuple[Candidate, list[Grade]]]:
        for answer in self.answers(chunk):
            prompt = self.run.prompts[answer.prompt_id]
            lacks = self.form.lacks_reference(prompt)
            status = Status.NO_REFERENCE.value if lacks else PENDING
            if answer.finish_reason in NOT_WRITTEN:
                status = answer.finish_reason
            aspects = self.form.aspects_of(prompt)
            yield answer, [self._row(answer, aspect, status) for aspect in aspects]

    def _row(self, answer: Candidate, aspect: str, status: str) -> Grade:
        name = row_id("score", [[self.form.name, answer.candidate_id], aspect, self.identity])
        metric, used = self.form.metric(aspect), self.form.needs_reference
        return ungraded(self, name, answer, metric, status, reference_used=used)

    def _pose(self, subject: Candidate, attempt: int) -> Posed[Appraisal]:
        about: Json = [self.form.name, subject.candidate_id]
        name, prompt = row_id("ask", about), self.run.prompts[subject.prompt_id]
        question = ask_scores(self.form, prompt, subject.text, self.guard(name))
        seed = derive_seed(self.run.config.seed, "score answers", about, attempt)
        return Posed(question, name, seed)

    def _fill(self, row: Grade, value: Appraisal, place: int) -> Grade:
        return replace(super()._fill(row, value, place), order=0)


def ungraded(
    stage: Grading | ScoringAnswers,
    name: str,
    candidate: Candidate,
    aspect: str,
    status: str,
    *,
    reference_used: bool,
) -> Grade:
    """Return a stage's grade of a candidate before the judge is asked."""
    return Grade(
        grade_id=name,
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=stage.iteration,
        annotator=stage.judge.identity,
        aspect=aspect,
        rating=None,
        rationale="",
        types=(),
        type_rationale="",
        reference_used=reference_used,
        order=NOWHERE,
        status=status,
        attempts=0,
        text="",
    )
