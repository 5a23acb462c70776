"""The fine-grained feedback model f (RLRF, Section 3.1): its questions about a candidate.

A task with a fixed aspect is judged on it (Table 9), with the reference if the prompt has one; any
other task on the three aspects that the model itself selects (Table 8). The shipped templates
`paper` reword these prompts, and the prompt for reflection (Table 10).

The aspects have three-level rubrics (Table 7), from a YAML file (`configs.pools`) that lists
`aspects`, each with a `name`, `criteria` and `levels` (-1, 0 and 1). A file that extends a shipped
one may state some of the levels of an aspect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints

from ..configs.pools import Pools
from ..configs.schema import ConfigError, CriticConfig
from ..configs.section import Section
from ..stores.keys import Json, digest
from ..stores.records import Message, Prompt
from .guard import BARE, GuardKey
from .judge import Question, build_question, user_message
from .rating_dictionary import AspectRatings, RatedAspects
from .templating import TemplateSets, render

SELECTED = 3
"""How many aspects the model selects for a task without a fixed one."""
ANSWERED = frozenset({"instruction", "answer"})
ONE_ASPECT = frozenset({"aspects", "aspect"})
CRITIQUE_TEMPLATES = TemplateSets(
    folder=Path(__file__).parent / "templates",
    files={
        "critique_general": (ANSWERED, frozenset({"aspects"})),
        "critique_single": (ANSWERED, ONE_ASPECT),
        "critique_reference": (ANSWERED | {"reference"}, ONE_ASPECT),
        "reflection": (ANSWERED | {"feedback"}, frozenset()),
    },
    fallback="paper",
)


RUBRICS = Pools(
    folder=Path(__file__).parent / "rubrics", item="aspect", nested=frozenset({"levels"})
)

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Name = Annotated[Words, Field(pattern=r"^[^{}\[\]\"'\\`:\n\r]*$")]
"""A name is a key of the dictionary in the critic's reply, and a heading there."""


class Levels(Section):
    """The descriptions of -1 (failure), 0 (moderate) and 1 (success)."""

    failure: Words = Field(alias="-1")
    moderate: Words = Field(alias="0")
    success: Words = Field(alias="1")


class Aspect(Section):
    """One aspect: the question and the meaning of each rating."""

    name: Name
    criteria: Words
    levels: Levels

    @property
    def texts(self) -> tuple[str, str, str, str, str]:
        """Its name and criteria, and the levels from the worst to the best."""
        levels = self.levels
        return (self.name, self.criteria, levels.failure, levels.moderate, levels.success)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackCritic:
    """Templates and aspects; `task_aspects` maps a task to the one aspect it is judged on."""

    templates: Mapping[str, str]
    aspects: tuple[Aspect, ...]
    task_aspects: Mapping[str, str]
    use_reference: bool

    @classmethod
    def from_config(cls, config: CriticConfig) -> Self:
        """Load the templates and aspects that `config` names.

        Raises:
            ConfigError: if they cannot be used, or a task is mapped to an aspect that does not
            exist.
        """
        aspects = load_aspects(config.aspects)
        names = [aspect.name for aspect in aspects]
        for task, aspect in config.task_aspects.items():
            if aspect not in names:
                raise ConfigError(
                    f"critic.task_aspects.{task}: {config.aspects} lacks the aspect {aspect!r}; it "
                    f"has {', '.join(names)}"
                )
        if len(names) < SELECTED:
            raise ConfigError(f"critic.aspects: {config.aspects} has fewer than {SELECTED} aspects")
        return cls(
            templates=CRITIQUE_TEMPLATES.load(config.templates),
            aspects=aspects,
            task_aspects=dict(config.task_aspects),
            use_reference=config.use_reference,
        )

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes questions: templates, aspects, tasks, references."""
        templates = digest(list(self.templates.values()))
        rubric = [aspect.texts for aspect in self.aspects]
        return digest([templates, rubric, dict(self.task_aspects), self.use_reference])

    @property
    def fingerprint(self) -> Mapping[str, Json]:
        """The hashes that must not change during a run."""
        return {"templates": self.digest}

    def ask(self, prompt: Prompt, answer: str, key: GuardKey = BARE) -> Question[AspectRatings]:
        """Return the question about `answer`."""
        texts = {"instruction": prompt.instruction, "answer": answer}
        fixed = self.task_aspects.get(prompt.task)
        shown = tuple(aspect for aspect in self.aspects if fixed in (None, aspect.name))
        values = {"aspects": render_aspects(shown)}
        template = "critique_general"
        if fixed is not None:
            values["aspect"] = fixed
            template = "critique_single"
        if self.shows_reference(prompt):
            texts["reference"] = prompt.reference or ""
            template = "critique_reference"
        return build_question(
            self.templates[template], texts, self.expected_reply(prompt), key, values=values
        )

    def shows_reference(self, prompt: Prompt) -> bool:
        """Whether questions about answers to `prompt` show its reference."""
        there = bool(prompt.reference and prompt.reference.strip())
        return self.use_reference and there and prompt.task in self.task_aspects

    def expected_reply(self, prompt: Prompt) -> RatedAspects:
        """Return the reply expected about an answer to `prompt`."""
        fixed = self.task_aspects.get(prompt.task)
        if fixed is not None:
            return RatedAspects.all_of(fixed)
        return RatedAspects(tuple(aspect.name for aspect in self.aspects), SELECTED)

    def reflect(self, prompt: Prompt, answer: str, feedback_text: str) -> tuple[Message, ...]:
        """Return the request to refine `answer` by its critique (Section 3.2)."""
        values = {"instruction": prompt.instruction, "answer": answer, "feedback": feedback_text}
        return user_message(render(self.templates["reflection"], values))


def load_aspects(name_or_path: str) -> tuple[Aspect, ...]:
    """Read a shipped aspects file by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a list of whole aspects; names file and field.
    """
    return tuple(RUBRICS.read(RUBRICS.place(name_or_path), Aspect))


def render_aspects(aspects: tuple[Aspect, ...]) -> str:
    """Write aspects as templates show them: name, criteria, scoring; several are numbered."""
    return "\n\n".join(
        f"{f'{number}. ' if len(aspects) > 1 else ''}Skill: {name}\n"
        f"Criteria: {criteria}\n"
        f'Scoring: "-1": {failure} "0": {moderate} "1": {success}'
        for number, aspect in enumerate(aspects, start=1)
        for name, criteria, failure, moderate, success in (aspect.texts,)
    )
