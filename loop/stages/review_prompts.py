"""Asking a judge how good prompts are, and storing its reviews.

A prompt whose review cannot be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview
from ..data.receipts import KEPT
from ..run.handles import Prompts
from ..run.run import Run
from .judging import JudgedStage, JudgeRequest, Posed, judge_line, judge_params

REVIEW, QUALITY = "prompts:review", "prompts:quality"
"""The stage of the reviews, and the stage of their outcomes."""
UNJUDGED = f"{KEPT}: unjudged"


@dataclass(frozen=True, kw_only=True)
class Reviewing(JudgedStage[Prompt, ReviewedPrompt, PromptReview]):
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    row_type = PromptReview
    reviewer: Reviewer
    prompts: Prompts

    @classmethod
    def of(cls, run: Run, iteration: int, reviewer: Reviewer, prompts: Prompts) -> Self:
        """Return the stage in which the run's reviewer judges prompts."""
        config = run.config.prompts.quality
        return cls(
            run=run,
            iteration=iteration,
            line=judge_line(run, run.models.reviewer, config),
            attempts=config.attempts,
            reviewer=reviewer,
            prompts=prompts,
        )

    def _depends_on(self) -> Mapping[str, Json]:
        params = judge_params(self.run, self.judge, self.run.config.prompts.quality)
        return {"reviewer": self.reviewer.digest, **params}

    def _subjects(self, chunk: int) -> Sequence[Prompt]:
        return self.prompts.chunks[chunk]

    def _pose(self, subject: Prompt, attempt: int) -> Posed[ReviewedPrompt]:
        name = row_id("review", subject.prompt_id)
        question = self.reviewer.ask(subject.instruction, self.guard(name))
        seed = derive_seed(self.run.config.seed, "review", subject.prompt_id, attempt)
        return Posed(question, name, seed)

    def _ids(self, subject: Prompt) -> list[str]:
        return [subject.prompt_id]

    def _rows(self, asked: JudgeRequest[Prompt, ReviewedPrompt]) -> list[PromptReview]:
        (reading,) = asked.readings
        review = PromptReview(
            prompt_id=asked.subject.prompt_id,
            iteration=self.iteration,
            judge=self.judge.identity,
            aspects=reading.value.aspects,
            intention=reading.value.intention,
            status=reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
        return [review]


def fate(review: PromptReview, least: int) -> str:
    """Return the outcome of a prompt: `kept`, or the first aspect that is rated below `least`.

    Only judged prompts can be dropped: a prompt whose review could not be read is kept.
    """
    if review.status != SCORED:
        return UNJUDGED
    low = (a.name for a in review.aspects if a.rating is not None and a.rating < least)
    return next((f"low_{name}" for name in low), KEPT)
