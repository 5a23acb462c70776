"""Asking a judge how good prompts are, and storing what it says of each.

A prompt whose review can not be read within `prompts.quality.attempts` replies is stored unscored,
with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...critics.critique_reply import Reading, Status
from ...critics.quality.prompt_review import Reviewer, unread
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview, storable
from ..run.handles import Prompts
from ..run.models import Served
from ..run.reporter import Advance
from ..run.run import Run, Stage
from .ask_judge import ask_judge

UNASKED = unread(Status.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A prompt under review, with what the latest reply says of it."""

    reviewer: Reviewer
    seed: int
    prompt: Prompt
    most: int
    attempts: int = 0
    text: str = ""
    reading: Reading = UNASKED
    intention: str | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask any more."""
        return self.reading.status == SCORED or self.attempts >= self.most

    def request(self) -> Request:
        """Return the next request; each attempt has its own seed."""
        return Request(
            request_id=row_id("review", self.prompt.prompt_id),
            messages=self.reviewer.ask(self.prompt.instruction),
            seed=derive_seed(self.seed, "review", self.prompt.prompt_id, self.attempts),
        )

    def heard(self, answer: Completion) -> "Sequence[_Asked]":
        """Return it after a reply."""
        text = storable(answer.text)
        reading, intention = self.reviewer.read(text, answer.finish_reason)
        attempts = self.attempts + 1
        return [replace(self, attempts=attempts, text=text, reading=reading, intention=intention)]


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
        most = self.run.config.prompts.quality.attempts
        return _Asked(reviewer=self.reviewer, seed=self.run.config.seed, prompt=prompt, most=most)

    def _row(self, asked: _Asked) -> PromptReview:
        return PromptReview(
            prompt_id=asked.prompt.prompt_id,
            iteration=self.iteration,
            judge=self.served.identity,
            aspects=asked.reading.aspects,
            intention=asked.intention,
            status=asked.reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
