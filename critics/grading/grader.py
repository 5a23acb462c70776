"""The grader: what it is asked about completions, and what its replies say (UltraFeedback, 2.4).

All completions of a prompt are rated in one aspect together, in an order that the caller chooses;
the critique with its overall score is about one completion. This module knows no engine: it makes
messages and reads texts, so that asking, retrying and storing stay in the loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ...configs.schema import GradingConfig
from ...stores.keys import digest
from ...stores.records import FinishReason, GradedAspect, Message, Prompt
from ..templating import render
from .grade_reply import Expected, Verdict, read
from .grade_templates import GradingTemplates, form_text, load_gradings
from .graded_aspects import SCALES


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """Templates of questions; `use_reference` shows prompts' references where a template can."""

    templates: GradingTemplates
    use_reference: bool

    @classmethod
    def from_config(cls, config: GradingConfig) -> Self:
        """Load the templates that `config` names.

        Raises:
            ConfigError: if they can not be used.
        """
        return cls(templates=load_gradings(config.templates), use_reference=config.use_reference)

    def digest(self, aspect: GradedAspect) -> str:
        """Return the hash of all that shapes questions about an aspect, and how they are read."""
        scale = SCALES[aspect]
        read_by = [scale.best, scale.types, scale.may_not_apply]
        shown = self.use_reference and self.templates.shows("reference", aspect)
        return digest([self.templates.digest(aspect), shown, read_by])

    def shows_reference(self, aspect: GradedAspect, prompt: Prompt) -> bool:
        """Whether questions about an aspect of answers to `prompt` show its reference."""
        there = bool(prompt.reference and prompt.reference.strip())
        return self.use_reference and there and self.templates.shows("reference", aspect)

    def ask(
        self, aspect: GradedAspect, prompt: Prompt, answers: Sequence[str]
    ) -> tuple[Message, ...]:
        """Return what asks to rate all `answers` to `prompt` in one of the four aspects."""
        shown = [self.templates.shown_text(n, a, aspect) for n, a in enumerate(answers, start=1)]
        values = {
            "instruction": self.templates.harmless(prompt.instruction, aspect),
            "texts": "\n\n".join(shown),
            "count": str(len(answers)),
            "form": form_text(aspect),
            "reference": self._reference(aspect, prompt),
        }
        return _user(render(self.templates.questions[aspect], values))

    def ask_overall(
        self, prompt: Prompt, answer: str, principle: str | None
    ) -> tuple[Message, ...]:
        """Return what asks for a critique of `answer`, and for its overall score.

        `principle` is what the answer was told to heed, which excuses what follows from it.
        """
        noted = "" if principle is None else self.templates.shown_principle(principle)
        values = {
            "instruction": self.templates.harmless(prompt.instruction, "overall"),
            "answer": self.templates.harmless(answer, "overall"),
            "principle": noted,
            "form": form_text("overall"),
            "reference": self._reference("overall", prompt),
        }
        return _user(render(self.templates.questions["overall"], values))

    def read(
        self, aspect: GradedAspect, text: str, finish_reason: FinishReason, count: int
    ) -> list[Verdict]:
        """Read the reply about `count` completions: a verdict on each, in the order shown."""
        own_lines = self.templates.own_lines(aspect)
        return read(text, finish_reason, Expected(aspect=aspect, count=count, own_lines=own_lines))

    def _reference(self, aspect: GradedAspect, prompt: Prompt) -> str:
        if not self.shows_reference(aspect, prompt):
            return ""
        return self.templates.shown_reference(prompt.reference or "", aspect)


def _user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)
