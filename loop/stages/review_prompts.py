"""Asking a judge how good prompts are, and storing what it says of each.

A prompt whose review cannot be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview
from ..data.receipts import KEPT
from ..run.handles import Prompts
from ..run.run import Run
from ..run.stage import Stage
from ..run.stage_places import Places
from .ask_judge import (
    JudgeInquiry,
    Posed,
    Replies,
    RepliesOf,
    ask_judge,
    judge_line,
    judge_params,
)

REVIEW, QUALITY = "prompts:review", "prompts:quality"
"""The stage of the reviews, and that of what they say of the prompts."""
UNJUDGED = f"{KEPT}: unjudged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewing:
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    run: Run
    iteration: int
    reviewer: Reviewer
    prompts: Prompts

    @property
    def attempts(self) -> int:
        """How many replies to a question are asked for at once."""
        return self.run.config.prompts.quality.attempts

    @property
    def params(self) -> Json:
        """What a review depends on besides its prompt."""
        params = judge_params(self.run, self.run.models.reviewer, self.run.config.prompts.quality)
        return {"reviewer": self.reviewer.digest, "attempts": self.attempts, **params}

    @property
    def where(self) -> Places:
        """Where the judge is asked."""
        return self.run.places.of(self.run.models.reviewer)

    def pay(self, stage: Stage, replies: RepliesOf[PromptReview]) -> None:
        """Review what the stage owes."""
        config = self.run.config.prompts.quality
        ask_judge(
            judge_line(self.run, self.run.models.reviewer, config),
            stage,
            PromptReview,
            work=lambda unit: self._asked(self.prompts.chunks[unit.chunk], replies(unit)),
            rows=lambda unit, asked: [
                row
                for one in asked
                for row in replies(unit).kept([one.subject.prompt_id]) or self._rows(one)
            ],
        )

    def _asked(
        self, prompts: Sequence[Prompt], replies: Replies[PromptReview]
    ) -> list[JudgeInquiry[Prompt, ReviewedPrompt]]:
        return [
            JudgeInquiry(subject=prompt, pose=self._pose)
            if replies.kept([prompt.prompt_id])
            else JudgeInquiry(
                subject=prompt, pose=self._pose, most=replies.most, attempts=replies.had
            )
            for prompt in prompts
        ]

    def _pose(self, prompt: Prompt, number: int) -> Posed[ReviewedPrompt]:
        name = row_id("review", prompt.prompt_id)
        return Posed(
            self.reviewer.ask(prompt.instruction, self.run.guard(name, self.run.models.reviewer)),
            name,
            derive_seed(self.run.config.seed, "review", prompt.prompt_id, number),
        )

    def _rows(self, one: JudgeInquiry[Prompt, ReviewedPrompt]) -> list[PromptReview]:
        return [
            PromptReview(
                prompt_id=one.subject.prompt_id,
                iteration=self.iteration,
                judge=self.run.models.reviewer.identity,
                aspects=reading.value.aspects,
                intention=reading.value.intention,
                status=reading.status,
                attempts=one.attempts,
                text=one.text,
            )
            for reading in one.readings
        ]


def fate(review: PromptReview, least: int) -> str:
    """Return what becomes of a prompt: `kept`, or the first aspect that is rated below `least`.

    A filter drops what it has judged: a prompt whose review could not be read is kept.
    """
    if review.status != SCORED:
        return UNJUDGED
    low = (a.name for a in review.aspects if a.rating is not None and a.rating < least)
    return next((f"low_{name}" for name in low), KEPT)
