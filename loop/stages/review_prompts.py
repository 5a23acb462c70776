"""Asking a judge how good prompts are, and storing what it says of each.

A prompt whose review cannot be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Prompt, PromptReview
from ..run.handles import Prompts
from ..run.run import Run, Stage
from .ask_judge import JudgeInquiry, Posed, ask_judge, judge_line, judge_params


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewing:
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    run: Run
    iteration: int
    reviewer: Reviewer
    prompts: Prompts

    @property
    def identity(self) -> Json:
        """What a review depends on besides its prompt."""
        params = judge_params(self.run, self.run.models.reviewer, self.run.config.prompts.quality)
        return {"reviewer": self.reviewer.digest, **params}

    def pay(self, stage: Stage) -> None:
        """Review what the stage owes."""
        config = self.run.config.prompts.quality
        line = judge_line(self.run, self.run.models.reviewer, config)
        replies = range(config.attempts)

        def work(unit: Unit) -> list[JudgeInquiry[Prompt, ReviewedPrompt]]:
            prompts = self.prompts.chunks[unit.chunk]
            return [JudgeInquiry(subject=p, pose=self._pose, replies=replies) for p in prompts]

        ask_judge(line, stage, PromptReview, work=work, rows=self._rows)

    def _pose(self, prompt: Prompt, number: int) -> Posed[ReviewedPrompt]:
        name = row_id("review", prompt.prompt_id)
        return Posed(
            self.reviewer.ask(prompt.instruction, self.run.guard(name)),
            name,
            derive_seed(self.run.config.seed, "review", prompt.prompt_id, number),
        )

    def _rows(
        self, _unit: Unit, asked: Sequence[JudgeInquiry[Prompt, ReviewedPrompt]]
    ) -> list[PromptReview]:
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
            for one in asked
            for reading in one.readings
        ]
