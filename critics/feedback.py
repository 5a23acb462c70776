"""The fine-grained feedback model f (RLRF, Section 3.1): its questions about a candidate.

A task with a fixed aspect is judged on it (Table 9), with the reference if the prompt has one; any
other task on the three aspects that the model itself selects (Table 8). The shipped templates
`paper` reword these prompts, and the prompt for reflection (Table 10).

The aspects have three-level rubrics (Table 7), from a YAML file (`configs.pools`) that lists
`aspects`, each with a `name`, `criteria` and `levels` (-1, 0 and 1). A file that extends a shipped
one may state some of the levels of an aspect.

The ratings are in the last sentence of the critique: the last `{` of the reply must open a flat
dictionary in Python's or JSON's notation, whose keys are exactly the expected aspects, once each,
and whose values are the integers -1, 0 or 1. Line breaks between its parts are allowed. On its
line, only whole sentences, marks or a label may come before it, and only closing marks (`]`,
backticks, `*`, `.`) after it; further lines of prose are allowed, a further brace is not. It does
not count if another dictionary of the reply, or a declaration of the judge in words, contradicts
it, if the words around it attribute it to somebody else (`quoting`), or if a judged text has the
same ratings.

The patterns never backtrack over matched text, so that reading takes linear time; nothing is
evaluated.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StringConstraints

from ..configs.pools import Pools
from ..configs.schema import ConfigError, CriticConfig
from ..configs.section import Section
from ..stores.keys import Json, digest
from ..stores.records import SCORED, AspectRating, Message, Prompt, Rating
from .guard import BARE, GuardKey, TemplateSets, render
from .judge import (
    ExampleReply,
    Expected,
    JudgeReply,
    Question,
    Reading,
    absent,
    build_question,
    reasons,
    user_message,
)
from .quoting import begins_line, foreign, holds, plain, require_undisputed
from .reply_schema import ReplySchema, comment, draw_value, object_of, one_of
from .status import Status, UnreadError

AspectRatings = tuple[AspectRating, ...]
RATINGS: dict[str, Rating] = {"-1": -1, "0": 0, "1": 1}
CLOSING_MARKS = "]`*. \t\r"
SCORE_MARK = re.compile(r"Score:|score:|\*\*Score")

SPACE = r"[ \t\r\n]*+"
TEXT = r""""(?:[^"\\\n]|\\[\s\S])*+"|'(?:[^'\\\n]|\\[\s\S])*+'"""
WORD = r"[+-]*+[0-9][\w.+-]*+|(?:true|false|null|True|False|None)(?![\w.+-])"
ENTRY = rf"{SPACE}({TEXT}){SPACE}:{SPACE}({TEXT}|{WORD}){SPACE}"
_ENTRY = re.compile(ENTRY, re.ASCII)
_OPENING = re.compile(rf"\{{{SPACE}[\"']")
_DICTIONARY = re.compile(rf"\{{{ENTRY}(?:,{ENTRY})*+(?:,{SPACE})?\}}", re.ASCII)
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RatedAspects(Expected[AspectRatings]):
    """The expected reply: ratings of exactly `count` distinct aspects among `names`."""

    names: tuple[str, ...]
    count: int

    place: ClassVar[str] = (
        "Write first the comments that are asked for, and reason as you like. Then write the "
        "line {mark} by itself, and below it the dictionary, and nothing else."
    )

    @classmethod
    def all_of(cls, *names: str) -> Self:
        """Expect each of `names`: a task with fixed aspects (Table 9)."""
        return cls(names, len(names))

    @property
    def schema(self) -> ReplySchema:
        """The schema of a comment and a rating for each aspect, or for the chosen ones."""
        aspect = object_of({"comment": comment(self.count), "rating": one_of([-1, 0, 1])})
        return object_of(dict.fromkeys(self.names, aspect), self.count)

    @property
    def nothing(self) -> tuple[AspectRatings]:
        """Readings without ratings, for the aspects that are certain before the reply."""
        names = self.names if self.count == len(self.names) else ()
        return (tuple(AspectRating(name=name, rating=None, comment="") for name in names),)

    def read(self, reply: JudgeReply) -> list[Reading[AspectRatings]]:
        """Read the ratings, in the reply's order.

        Raises:
            UnreadError: if they are missing.
        """
        text = reply.text
        start, end = _last_dictionary(text)
        entries = _entries(text, start, end)
        names = tuple(key[1:-1] for key, _ in entries)
        values = [value for _, value in entries]
        self._require_expected(names, values)
        if _is_contradicted(text, dict(entries)):
            raise UnreadError(Status.CONTRADICTORY)
        if fault := foreign(text, start, end):
            raise UnreadError(fault)
        require_undisputed(text, {float(value) for value in values})
        comments = _comments(f"{reply.before}\n{text[:start]}", names)
        rated = zip(names, values, comments, strict=True)
        document = {name: {"rating": RATINGS[v], "comment": said} for name, v, said in rated}
        return self.read_object(document, reply.judged)

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[AspectRatings]]:
        """Read the ratings, in the order of the object's fields.

        Raises:
            UnreadError: if a judged text holds them, too.
        """
        if holds(judged, [f"{name}: {one['rating']}" for name, one in document.items()]):
            raise UnreadError(Status.ECHO)
        rated = (
            AspectRating(name=name, rating=one["rating"], comment=one["comment"].strip())
            for name, one in document.items()
        )
        return [Reading(SCORED, tuple(rated))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a comment on each aspect, and ratings that are often all good or all bad."""
        chosen = draw.sample(self.names, self.count)
        names = [name for name in self.names if name in chosen]
        ratings = _example_ratings(names, draw)
        given = zip(names, reasons(reason, len(names)), strict=True)
        lines = "\n".join(f"{name}: {why}" for name, why in given)
        return ExampleReply(lines, json.dumps(ratings))

    def example_object(self, schema: ReplySchema, draw: random.Random, reason: str) -> Any:
        """Return an object with ratings as those of `example`."""
        found = draw_value(schema, draw, reason)
        for name, rating in _example_ratings([n for n in found if n in self.names], draw).items():
            found[name]["rating"] = rating
        return found

    def _require_expected(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Refuse entries that do not fit the question."""
        if len(set(names)) < len(names):
            raise UnreadError(Status.DUPLICATE_KEYS)
        if len(names) != self.count or not set(names) <= set(self.names):
            raise UnreadError(Status.WRONG_KEYS)
        if not all(map(_INTEGER.fullmatch, values)):
            raise UnreadError(Status.NOT_INTEGER)
        if not set(values) <= RATINGS.keys():
            raise UnreadError(Status.OUT_OF_RANGE)


def _example_ratings(names: Sequence[str], draw: random.Random) -> dict[str, int]:
    """Return ratings that are often all good or all bad, so that pairs can be made of them."""
    all_alike = draw.choices((1, -1, None), weights=(4, 3, 1))[0]
    return {n: draw.choice((-1, 0, 1)) if all_alike is None else all_alike for n in names}


def _last_dictionary(text: str) -> tuple[int, int]:
    """Return the start and the end of the last dictionary."""
    start = text.rfind("{")
    if start < 0 or not _OPENING.match(text, start):
        raise UnreadError(absent(text, Status.NO_DICTIONARY))
    found = _DICTIONARY.match(text, start)
    if found is None or "}" in text[found.end() :]:
        raise UnreadError(Status.MALFORMED)
    behind = text[found.end() :].partition("\n")[0]
    if behind.strip(CLOSING_MARKS) or not begins_line(text, start):
        raise UnreadError(Status.QUOTED)
    return start, found.end()


def _entries(text: str, start: int, end: int) -> list[tuple[str, str]]:
    """Return the entries of a dictionary as they are written.

    A key keeps its escapes: names of aspects never contain a backslash, so it is unexpected.
    """
    return _ENTRY.findall(text, start + 1, end)


def _is_contradicted(text: str, entries: Mapping[str, str]) -> bool:
    """Whether another dictionary of the reply has another value for one of the keys."""
    ratings = {plain(key): value for key, value in entries.items()}
    return any(
        plain(value) != ratings.get(plain(key), plain(value))
        for found in _DICTIONARY.finditer(text)
        for key, value in _entries(text, found.start(), found.end())
    )


def _comments(body: str, names: Sequence[str]) -> list[str]:
    """Return the critique's comment on each aspect, before its score; empty if unmarked.

    The last heading of a name counts: Task 1 names the skills first, Task 2 judges them.
    """
    heads = [body.rfind(f"{name}:") for name in names]
    if heads == [-1]:
        return [_trim(body.rpartition("Task 2:")[2])]
    ends = [min((end for end in heads if end > head), default=len(body)) for head in heads]
    return [
        _trim(body[head + len(name) + 1 : end]) if head >= 0 else ""
        for name, head, end in zip(names, heads, ends, strict=True)
    ]


def _trim(passage: str) -> str:
    """Cut a passage before its score, and the list marks and white space around it."""
    return SCORE_MARK.split(passage, maxsplit=1)[0].strip(" \t\r\n*-#>[`")


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
