"""The question to a judge about a prompt, and the reading of its reply (ChatGLM-RLHF, Section 3.2).

Three aspects, each -1, 0 or 1: is the intention clear, is the text understandable, can it be
answered. The ratings are in a last dictionary. With a taxonomy, the classes of which each should
have prompts, the judge also names the class of the intention, on a line `Class: NAME` in English or
Chinese. A reply that lacks the dictionary, or the class if the question requests one, is unread.

A taxonomy (`configs.pools`) lists `intentions`, each with a `name` and a `description`, which the
judge reads.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import Field

from ...configs.judging import PromptQuality
from ...configs.pools import Pools
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import digest
from ..feedback import AspectRatings, RatedAspects
from ..guard import BARE, GuardKey, TemplateSets
from ..judge import ExampleReply, Expected, JudgeReply, Question, Reading, build_question
from ..reply_schema import ReplySchema, draw_value, object_of, one_of
from ..status import Status, UnreadError

ASPECTS = ("intention", "semantics", "answerability")
RATINGS = RatedAspects.all_of(*ASPECTS)

HERE = Path(__file__).parent
TAXONOMIES = Pools(folder=HERE / "intentions", item="intention")
REVIEW_TEMPLATES = TemplateSets(
    folder=HERE / "templates",
    files={
        "review": (frozenset({"prompt"}), frozenset()),
        "review_with_class": (frozenset({"prompt", "classes"}), frozenset()),
    },
)
CLASS_FIELD = "class"
"""The class, in an object."""
CLASS = re.compile(r"^[\s*#>`-]*(?:class|类别)[\s*`]*[:：](.*)$", re.IGNORECASE | re.MULTILINE)
"""The line with the class, also as a template in Chinese asks for it, perhaps with a wide colon."""
MARKS = " \t\r*`\"'.。“”「」"


class Intention(Section):
    """One class; its name fills a line of the judge's reply, so it must not contain marks."""

    name: str = Field(pattern=r"^\w[\w -]*$", max_length=80)
    description: str = Field(min_length=1, pattern=r"^[^\n\r]*$")


@dataclass(frozen=True, slots=True)
class ReviewedPrompt:
    """The reading of a reply about a prompt; `intention` is its class if there are classes."""

    aspects: AspectRatings
    intention: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewReply(Expected[ReviewedPrompt]):
    """The expected reply: the ratings, and one of the classes if there are some."""

    classes: tuple[str, ...]
    place: ClassVar[str] = (
        "Say first what you think of each aspect. Then write the line {mark} by itself, and "
        "below it the class, if one is asked for, and the dictionary."
    )

    @property
    def schema(self) -> ReplySchema:
        """The schema of a comment and a rating for each aspect, and of the class."""
        rated = cast("Mapping[str, ReplySchema]", RATINGS.schema["properties"])
        named = {CLASS_FIELD: one_of(self.classes)} if self.classes else {}
        return object_of({**rated, **named})

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[ReviewedPrompt]]:
        """Read the ratings and the class.

        Raises:
            UnreadError: if the prompt holds the ratings, too.
        """
        rated = {name: one for name, one in document.items() if name != CLASS_FIELD}
        (ratings,) = RATINGS.read_object(rated, judged)
        return [Reading(ratings.status, ReviewedPrompt(ratings.value, document.get(CLASS_FIELD)))]

    @property
    def nothing(self) -> tuple[ReviewedPrompt]:
        """No rating of the three aspects."""
        return (ReviewedPrompt(*RATINGS.nothing),)

    def read(self, reply: JudgeReply) -> list[Reading[ReviewedPrompt]]:
        """Read the ratings and the class, which may be given on several lines.

        Raises:
            UnreadError: if ratings or class are missing, or lines give different classes.
        """
        (ratings,) = RATINGS.read(reply)
        if not self.classes:
            return [Reading(ratings.status, ReviewedPrompt(ratings.value))]
        known = {name.casefold(): name for name in self.classes}
        named = {known.get(name.strip(MARKS).casefold()) for name in CLASS.findall(reply.text)}
        intention = named.pop() if len(named) == 1 else None
        if intention is None:
            raise UnreadError(Status.NO_CLASS)
        return [Reading(ratings.status, ReviewedPrompt(ratings.value, intention))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a review that keeps the prompt, in a class drawn at random."""
        ratings = json.dumps(dict.fromkeys(ASPECTS, 1))
        named = [f"Class: {draw.choice(self.classes)}"] if self.classes else []
        return ExampleReply(reason, "\n".join([*named, ratings]))

    def example_object(self, schema: ReplySchema, draw: random.Random, reason: str) -> Any:
        """Return a review that keeps the prompt, in a class drawn at random."""
        found = draw_value(schema, draw, reason)
        for name in ASPECTS:
            found[name]["rating"] = 1
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """How prompts are reviewed: the template, and the classes of intentions if there are some."""

    template: str
    intentions: tuple[Intention, ...] = ()

    @classmethod
    def from_config(cls, config: PromptQuality) -> Self:
        """Load the template and the taxonomy that `config` names.

        Raises:
            ConfigError: if they cannot be used; names the file.
        """
        intentions = () if config.intentions is None else load_taxonomy(config.intentions)
        name = "review_with_class" if intentions else "review"
        templates = REVIEW_TEMPLATES.load(config.templates, only=[name])
        return cls(template=templates[name], intentions=intentions)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(intention.name for intention in self.intentions)

    @property
    def _shown(self) -> str:
        """The classes as a template shows them, one a line."""
        return "\n".join(f"- {entry.name}: {entry.description}" for entry in self.intentions)

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes a question and the reading of its reply."""
        return digest([self.template, self._shown or None])

    def ask(self, text: str, key: GuardKey = BARE) -> Question[ReviewedPrompt]:
        """Return the question for a review of a prompt, in which no tag ends the prompt early."""
        expected, values = ReviewReply(self.classes), {"classes": self._shown}
        return build_question(self.template, {"prompt": text}, expected, key, values=values)


def load_taxonomy(name_or_path: str) -> tuple[Intention, ...]:
    """Read a shipped taxonomy by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a list of two or more named classes; names
            the file.
    """
    path = TAXONOMIES.place(name_or_path)
    intentions = tuple(TAXONOMIES.read(path, Intention))
    folded = [intention.name.casefold() for intention in intentions]
    if len(folded) == 1:
        raise ConfigError(f"{path}: write two or more 'intentions'; there is only {folded[0]!r}")
    twice = next((name for name in folded if folded.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: the class {twice!r} occurs twice")
    return intentions
