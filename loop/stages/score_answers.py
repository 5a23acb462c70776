"""The verb that scores answers with a strong judge and a form, each answer separately.

Each aspect of the form is a grade with the judge's reason and its reply. An answer without text, or
without the reference that its form compares it with, is stored unscored without a question.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...critics.grading.grade_reply import Appraisal
from ...critics.judge import Reading
from ...critics.scoring.answer_forms import AnswerForm
from ...critics.scoring.answer_scorer import AnswerScorer
from ...critics.status import Status
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, Grade
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .grade import NOT_WRITTEN, NOWHERE
from .judging import JudgedStage, JudgeRequest, Posed, judge_line, judge_params
from .retry_unscored import run_judgements

SCORE_ANSWERS = Verb("score_answers")


def score_answers(it: Iteration, answers: Rows[Candidate], form: AnswerForm) -> Rows[Grade]:
    """Score each answer in the aspects of a form by the strong judge."""
    settings = it.run.config.assessment.judge
    scoring = ScoringAnswers(
        run=it.run,
        iteration=it.number,
        line=judge_line(it.run, it.run.models.answer_judge, settings),
        attempts=settings.attempts,
        form=form,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    work = it.work(SCORE_ANSWERS, scoring.params, answers)
    stage = run_judgements(scoring, f"{SCORE_ANSWERS.name}:{answers.label}:{form.name}", work)
    return Rows(row_type=Grade, stages=(stage,))


@dataclass(frozen=True, kw_only=True)
class ScoringAnswers(JudgedStage[Candidate, Appraisal, Grade]):
    """A stage of scores by one form; `answers` returns the answers of a chunk when it begins."""

    row_type = Grade
    form: AnswerForm
    answers: Callable[[int], Sequence[Candidate]]

    def _depends_on(self) -> Mapping[str, Json]:
        params = judge_params(self.run, self.judge, self.run.config.assessment.judge)
        return {"form": self.form.name, "asked": self.form.digest, **params}

    def _subjects(self, chunk: int) -> Sequence[Candidate]:
        return self.answers(chunk)

    def _pose(self, subject: Candidate, attempt: int) -> Posed[Appraisal]:
        about = self._about(subject)
        name, seed = row_id("ask", about), (self.run.config.seed, "score answers", about, attempt)
        prompt = self.run.prompts[subject.prompt_id]
        question = self._scorer.ask(prompt, subject.text, self.guard(name))
        return Posed(question, name, derive_seed(*seed))

    def _ids(self, subject: Candidate) -> list[str]:
        about = self._about(subject)
        return [row_id("score", [about, name, self.identity]) for name in self._aspects(subject)]

    def _decide_without_judge(self, subject: Candidate) -> list[Reading[Appraisal]] | None:
        lacks = self._scorer.lacks_reference(self.run.prompts[subject.prompt_id])
        why = Status.NO_REFERENCE.value if lacks else None
        if subject.finish_reason in NOT_WRITTEN:
            why = subject.finish_reason
        return None if why is None else [Reading(why, Appraisal())] * len(self._aspects(subject))

    def _rows(self, asked: JudgeRequest[Candidate, Appraisal]) -> Iterator[Grade]:
        answer = asked.subject
        named = zip(self._aspects(answer), self._ids(answer), asked.readings, strict=True)
        for aspect, identity, reading in named:
            yield Grade(
                grade_id=identity,
                candidate_id=answer.candidate_id,
                prompt_id=answer.prompt_id,
                iteration=self.iteration,
                annotator=self.judge.identity,
                aspect=self.form.metric(aspect),
                rating=reading.value.rating,
                rationale=reading.value.rationale,
                types=(),
                type_rationale="",
                reference_used=self.form.needs_reference,
                order=0 if asked.attempts else NOWHERE,
                status=reading.status,
                attempts=asked.attempts,
                text=asked.text,
            )

    @property
    def _scorer(self) -> AnswerScorer:
        return AnswerScorer(form=self.form)

    def _about(self, answer: Candidate) -> Json:
        return [self.form.name, answer.candidate_id]

    def _aspects(self, answer: Candidate) -> tuple[str, ...]:
        return self.form.aspects_of(self.run.prompts[answer.prompt_id])
