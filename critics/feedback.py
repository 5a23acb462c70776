"""The fine-grained feedback model f (RLRF, Section 3.1): what it is asked, how its reply is read.

A task with a fixed aspect is judged on it (Table 9), with the reference where there is one; any
other task on the three aspects that the model itself selects (Table 8). This module knows no
engine: it makes messages and reads texts, so that asking, retrying and storing stay in the loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..configs.schema import ConfigError, CriticConfig
from ..stores.keys import digest
from ..stores.records import FinishReason, Message, Prompt
from .aspects import Aspect, load_aspects, render_aspects
from .critique_reply import Expected, Reading, read_reply
from .templating import Templates, load_templates, render

SELECTED = 3
"""How many aspects the model selects for a task without a fixed one."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to send to the feedback model about one candidate, and what its reply must hold."""

    messages: tuple[Message, ...]
    expected: Expected
    reference_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackCritic:
    """Templates and aspects; `task_aspects` maps a task to the one aspect it is judged on."""

    templates: Templates
    aspects: tuple[Aspect, ...]
    task_aspects: Mapping[str, str]
    use_reference: bool

    @classmethod
    def from_config(cls, config: CriticConfig) -> Self:
        """Load the templates and aspects that `config` names.

        Raises:
            ConfigError: if they can not be used, or a task is mapped to an aspect that does not
            exist.
        """
        aspects = load_aspects(config.aspects)
        names = [aspect.name for aspect in aspects]
        for task, aspect in config.task_aspects.items():
            if aspect not in names:
                raise ConfigError(
                    f"critic.task_aspects.{task}: {config.aspects} has no aspect {aspect!r}; "
                    f"it has {', '.join(names)}"
                )
        if len(names) < SELECTED:
            raise ConfigError(f"critic.aspects: {config.aspects} has fewer than {SELECTED} aspects")
        return cls(
            templates=load_templates(config.templates),
            aspects=aspects,
            task_aspects=dict(config.task_aspects),
            use_reference=config.use_reference,
        )

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes questions: templates, aspects, tasks, references."""
        rubric = [[a.name, a.criteria, a.failure, a.moderate, a.success] for a in self.aspects]
        return digest([self.templates.digest, rubric, dict(self.task_aspects), self.use_reference])

    def ask(self, prompt: Prompt, answer: str) -> Question:
        """Return what to ask about `answer`."""
        values = {"instruction": prompt.instruction, "answer": answer}
        fixed = self.task_aspects.get(prompt.task)
        if fixed is None:
            values["aspects"] = render_aspects(self.aspects)
            text = render(self.templates.critique_general, values)
            return Question(_user(text), self.expected(prompt), reference_used=False)
        values["aspect"] = fixed
        values["aspects"] = render_aspects(tuple(a for a in self.aspects if a.name == fixed))
        template = self.templates.critique_single
        reference_used = self.use_reference and bool(prompt.reference and prompt.reference.strip())
        if reference_used:
            values["reference"] = prompt.reference or ""
            template = self.templates.critique_reference
        return Question(_user(render(template, values)), self.expected(prompt), reference_used)

    def expected(self, prompt: Prompt) -> Expected:
        """Return what a reply about an answer to `prompt` must hold."""
        fixed = self.task_aspects.get(prompt.task)
        if fixed is not None:
            return Expected.all_of(fixed)
        return Expected(tuple(aspect.name for aspect in self.aspects), SELECTED)

    def read(self, question: Question, text: str, finish_reason: FinishReason) -> Reading:
        """Read the reply to `question`."""
        return read_reply(text, finish_reason, question.expected)

    def reflect(self, prompt: Prompt, answer: str, feedback_text: str) -> tuple[Message, ...]:
        """Return what asks the policy to refine `answer` by its critique (Section 3.2)."""
        values = {"instruction": prompt.instruction, "answer": answer, "feedback": feedback_text}
        return _user(render(self.templates.reflection, values))


def _user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)
