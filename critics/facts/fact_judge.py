"""What a judge is asked about facts: the statements of a passage, and what supports them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from ...configs.facts import FactsConfig
from ...stores.keys import digest
from ...stores.records import Prompt
from ..guard import BARE, GuardKey
from ..judge import Question, user_message
from ..templating import TemplateSets, defused, placeholders, render, tags
from .statement_list import StatementList, Statements
from .support_verdicts import StatementSupport, SupportVerdicts

STATEMENTS, SUPPORT = "statements", "support"
FACT_TEMPLATES = TemplateSets(
    folder=Path(__file__).parent / "templates",
    files={
        STATEMENTS: (frozenset({"instruction", "passage"}), frozenset()),
        SUPPORT: (frozenset({"instruction", "reference", "statements"}), frozenset({"count"})),
    },
    fallback="factscore",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactJudge:
    """The templates of the two questions."""

    templates: Mapping[str, str]

    @classmethod
    def from_config(cls, config: FactsConfig) -> Self:
        """Load the templates that `config` names.

        Raises:
            ConfigError: if they cannot be used.
        """
        return cls(templates=FACT_TEMPLATES.load(config.templates))

    def digest(self, name: str) -> str:
        """Return the hash of the template of a question."""
        return digest(self.templates[name])

    def ask_statements(
        self, prompt: Prompt, passage: str, key: GuardKey = BARE
    ) -> Question[Statements]:
        """Return what asks for the statements of a passage of an answer to `prompt`."""
        texts = {"instruction": prompt.instruction, "passage": passage}
        template = self.templates[STATEMENTS]
        judged = tuple(texts.values())
        guard = key.over(judged, [template])
        shown = {name: guard.shown(_safe(text, template)) for name, text in texts.items()}
        return Question(
            messages=user_message(render(template, shown)),
            expected=StatementList(len(passage.split())),
            own_lines=_fixed_lines(template),
            judged=judged,
        ).guarded(guard)

    def ask_support(
        self, prompt: Prompt, statements: Sequence[str], key: GuardKey = BARE
    ) -> Question[StatementSupport]:
        """Return what asks which of the statements the reference of `prompt` supports."""
        template = self.templates[SUPPORT]
        judged = (*statements, prompt.instruction, prompt.reference or "")
        guard = key.over(judged, [template])

        def shown(text: str) -> str:
            return guard.shown(_safe(text, template))

        numbered = enumerate(statements, start=1)
        values = {
            "instruction": shown(prompt.instruction),
            "reference": shown(prompt.reference or ""),
            "statements": "\n".join(f"Statement {n}: {shown(text)}" for n, text in numbered),
            "count": str(len(statements)),
        }
        return Question(
            messages=user_message(render(template, values)),
            expected=SupportVerdicts(len(statements)),
            own_lines=_fixed_lines(template),
            judged=judged,
        ).guarded(guard)


def _safe(text: str, template: str) -> str:
    return defused(text, tags(template))


@lru_cache
def _fixed_lines(template: str) -> frozenset[str]:
    """Return the lines of a template that stand in every question as they are."""
    lines = (line.strip() for line in template.splitlines())
    return frozenset(line for line in lines if not placeholders(line))
