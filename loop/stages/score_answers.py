"""The verb that lets a strong judge score answers by a form, each answer by itself.

Each aspect of the form is a grade with the judge's reason and its reply as it came. An answer
without text, or without the reference that its form compares it with, is unscored, and nobody is
asked about it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...critics.grading.grade_reply import Appraisal
from ...critics.judge import Reading
from ...critics.scoring.answer_forms import AnswerForm
from ...critics.scoring.answer_scorer import AnswerScorer
from ...critics.status import Status
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, Grade
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Run, Verb
from .ask_judge import JudgedStage, JudgeInquiry, Posed, judge_params
from .grade import NOT_WRITTEN, NOWHERE
from .retry_unscored import judged

SCORE_ANSWERS = Verb("score_answers")
AnswerInquiry = JudgeInquiry[Candidate, Appraisal]


def score_answers(it: Iteration, answers: Rows[Candidate], form: AnswerForm) -> Rows[Grade]:
    """Let the judge score each answer in the aspects of a form."""
    scoring = ScoringAnswers(
        run=it.run,
        iteration=it.number,
        form=form,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    owed = it.work(SCORE_ANSWERS, scoring.params, answers)
    label = f"{SCORE_ANSWERS.name}:{answers.label}:{form.name}"
    return Rows(row_type=Grade, stages=(judged(it.run, it.number, label, owed, scoring.stage),))


@dataclass(frozen=True, kw_only=True)
class ScoringAnswers:
    """A stage of scores by one form; `answers` gives those of a chunk, when it is its turn."""

    run: Run
    iteration: int
    form: AnswerForm
    answers: Callable[[int], Sequence[Candidate]]

    @property
    def stage(self) -> JudgedStage[Candidate, Appraisal, Grade]:
        """How the judge is asked about each answer."""
        return JudgedStage(
            run=self.run,
            judge=self.run.models.answer_judge,
            settings=self.run.config.assessment.judge,
            row_type=Grade,
            subjects=self.answers,
            pose=self.pose,
            ids=self._ids,
            rows=self._rows,
            unasked=self._unasked,
        )

    @property
    def params(self) -> Json:
        """What the keys of the stage hold: all that its rows depend on besides the answers."""
        return {**self.identity, "attempts": self.run.config.assessment.judge.attempts}

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """What a score depends on besides its answer and the number of replies."""
        models, settings = self.run.models, self.run.config.assessment.judge
        params = judge_params(self.run, models.answer_judge, settings)
        return {"form": self.form.name, "asked": self.form.digest, **params}

    def pose(self, answer: Candidate, attempt: int) -> Posed[Appraisal]:
        """Return how an answer is asked about in an attempt."""
        name = row_id("ask", self._about(answer))
        seed = derive_seed(self.run.config.seed, "score answers", self._about(answer), attempt)
        prompt = self.run.prompts[answer.prompt_id]
        key = self.run.guard(name, self.run.models.answer_judge)
        question = self._scorer.ask(prompt, answer.text, key)
        return Posed(question, name, seed)

    @property
    def _scorer(self) -> AnswerScorer:
        return AnswerScorer(form=self.form)

    def _about(self, answer: Candidate) -> Json:
        return [self.form.name, answer.candidate_id]

    def _aspects(self, answer: Candidate) -> tuple[str, ...]:
        return self.form.aspects_of(self.run.prompts[answer.prompt_id])

    def _ids(self, answer: Candidate) -> list[str]:
        about = self._about(answer)
        return [row_id("score", [about, name, self.identity]) for name in self._aspects(answer)]

    def _unasked(self, answer: Candidate) -> list[Reading[Appraisal]] | None:
        """Return the readings of an answer that nobody is asked about; None if the judge is."""
        lacks = self._scorer.lacks_reference(self.run.prompts[answer.prompt_id])
        why = Status.NO_REFERENCE.value if lacks else None
        if answer.finish_reason in NOT_WRITTEN:
            why = answer.finish_reason
        return None if why is None else [Reading(why, Appraisal())] * len(self._aspects(answer))

    def _rows(self, asked: AnswerInquiry) -> Iterator[Grade]:
        answer, ids = asked.subject, self._ids(asked.subject)
        failed = [Reading(Status.FAILED.value, Appraisal())] * len(ids)
        named = zip(self._aspects(answer), ids, asked.readings or failed, strict=True)
        for aspect, identity, reading in named:
            yield Grade(
                grade_id=identity,
                candidate_id=answer.candidate_id,
                prompt_id=answer.prompt_id,
                iteration=self.iteration,
                annotator=self.run.models.answer_judge.identity,
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
