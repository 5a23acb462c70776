"""Asking a judge how good prompts are, and storing what it says of each.

A prompt whose review can not be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...critics.judge import Question, Reading, Status, unread
from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview, storable
from ..run.handles import Prompts
from ..run.models import Served
from ..run.reporter import Advance
from ..run.run import Run, Stage
from .ask_judge import ask_judge


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A prompt under review, with what the latest reply says of it."""

    question: Question[ReviewedPrompt]
    seed: int
    prompt: Prompt
    most: int
    reading: Reading[ReviewedPrompt]
    attempts: int = 0
    text: str = ""

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask any more."""
        return self.reading.status == SCORED or self.attempts >= self.most

    def request(self) -> Request:
        """Return the next request; each attempt has its own seed."""
        return Request(
            request_id=row_id("review", self.prompt.prompt_id),
            messages=self.question.messages,
            seed=derive_seed(self.seed, "review", self.prompt.prompt_id, self.attempts),
        )

    def heard(self, answer: Completion) -> "Sequence[_Asked]":
        """Return it after a reply."""
        text = storable(answer.text)
        (reading,) = self.question.read(text, answer.finish_reason)
        return [replace(self, attempts=self.attempts + 1, text=text, reading=reading)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewing:
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    run: Run
    iteration: int
    reviewer: Reviewer
    served: Served
    prompts: Prompts

    @property
    def identity(self) -> Json:
        """What a review depends on besides its prompt."""
        config = self.run.config.prompts.quality
        return {
            "reviewer": self.reviewer.digest,
            "served": self.served.params,
            "sampling": config.sampling.model_dump(mode="json"),
            "attempts": config.attempts,
            "retry_temperature": config.retry_temperature,
        }

    def pay(self, stage: Stage) -> None:
        """Review what the stage owes."""
        config = self.run.config.prompts.quality

        def commit(unit: Unit, asked: Sequence[_Asked], cost: Advance) -> None:
            rows = [self._row(a) for a in asked]
            unscored = sum(row.status != SCORED for row in rows)
            advance = replace(cost, rows=len(rows), unscored=unscored)
            stage.commit(unit, {PromptReview: rows}, advance)

        ask_judge(
            self.run,
            stage,
            self.served,
            config,
            work=lambda unit: [self._asked(p) for p in self.prompts.chunks[unit.chunk]],
            commit=commit,
        )

    def _asked(self, prompt: Prompt) -> _Asked:
        question = self.reviewer.ask(prompt.instruction)
        (unasked,) = unread(Status.FAILED, question.expected)
        return _Asked(
            question=question,
            seed=self.run.config.seed,
            prompt=prompt,
            most=self.run.config.prompts.quality.attempts,
            reading=unasked,
        )

    def _row(self, asked: _Asked) -> PromptReview:
        return PromptReview(
            prompt_id=asked.prompt.prompt_id,
            iteration=self.iteration,
            judge=self.served.identity,
            aspects=asked.reading.value.aspects,
            intention=asked.reading.value.intention,
            status=asked.reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
