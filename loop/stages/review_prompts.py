"""Asking a judge how good prompts are, and storing what it says of each.

A prompt whose review cannot be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from dataclasses import dataclass

from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview
from ..data.receipts import KEPT
from ..run.handles import Prompts
from ..run.run import Run
from .ask_judge import JudgedStage, JudgeInquiry, Posed, judge_params

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
    def stage(self) -> JudgedStage[Prompt, ReviewedPrompt, PromptReview]:
        """How the judge is asked about each prompt."""
        return JudgedStage(
            run=self.run,
            judge=self.run.models.reviewer,
            settings=self.run.config.prompts.quality,
            row_type=PromptReview,
            subjects=lambda chunk: self.prompts.chunks[chunk],
            pose=self._pose,
            ids=lambda prompt: [prompt.prompt_id],
            rows=self._rows,
        )

    @property
    def params(self) -> Json:
        """What a review depends on besides its prompt."""
        config = self.run.config.prompts.quality
        params = judge_params(self.run, self.run.models.reviewer, config)
        return {"reviewer": self.reviewer.digest, "attempts": config.attempts, **params}

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
