"""Handles on committed rows: the arguments and results of an iteration's verbs.

A stage works chunk by chunk of prompts, and so does every stage that builds on it: a handle names
the stages that hold the rows of each chunk. Adding two handles joins them chunk by chunk. Keys stay
in the journal until they are needed, so a run with a million finished units opens at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...stores.journal_reader import Reader
from ...stores.keys import Json, canonical_json, digest
from ...stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Pair,
    Prompt,
    Reward,
    UnpairedAnswer,
)
from ...stores.schemas import Row, plain
from ..data.prompt_rows import LISTED

T = TypeVar("T", bound=Row)
D = TypeVar("D", Pair, Demonstration, UnpairedAnswer)


SAYS_NOTHING = ("family", "cluster", "eval_set", "part")
"""Fields by which prompts are counted or chosen; an answer does not depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A planned stage: `identity` hashes its computation and its input."""

    iteration: int
    stage: str
    identity: str
    chunks: int

    def key(self, journal: Reader, chunk: int) -> str:
        """Return the key of the unit that works on a chunk."""
        return journal.key(self.iteration, self.stage, chunk)

    def keys(self, journal: Reader) -> list[str]:
        """Return the keys of all units, chunk by chunk."""
        return journal.keys(self.iteration, self.stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of a stage, in chunks; `identity` hashes their choice and the chunk size.

    Their content is hashed once per run where it is stored, and once per chunk in its key.
    """

    chunks: tuple[tuple[Prompt, ...], ...]
    identity: str

    def each_key(self) -> list[tuple[str]]:
        """Return, for each chunk, the key of its content, which its unit reads."""
        return [(content_key(chunk),) for chunk in self.chunks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[T]):
    """Rows of one kind from one or more stages over the same chunks of prompts.

    `called` is a short name for the rows of many stages.
    """

    row_type: type[T]
    stages: tuple[Planned, ...]
    called: str = ""

    @property
    def label(self) -> str:
        """The name of the stages together."""
        return self.called or "+".join(stage.stage for stage in self.stages)

    @property
    def chunks(self) -> int:
        """The number of chunks of prompts."""
        return self.stages[0].chunks

    def __add__(self, other: "Rows[T]") -> "Rows[T]":
        """Join the rows of two stages over the same prompts."""
        if self.chunks != other.chunks:
            raise ValueError(f"{self.label} and {other.label} do not share their prompts")
        called = f"{self.label}+{other.label}" if self.called or other.called else ""
        return Rows(row_type=self.row_type, stages=self.stages + other.stages, called=called)


AnyRows = Rows[Any]
Trainable = Rows[Pair] | Rows[Demonstration] | Rows[UnpairedAnswer]
"""Rows that a policy is trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Of each prompt's candidates, the one with the highest reward (y~, Section 3.2)."""

    candidates: Rows[Candidate]
    rewards: Rows[Reward]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """Candidates with the judgements of a reward model, of a critic, or of both."""

    candidates: Rows[Candidate]
    rewards: Rows[Reward] | None = None
    critiques: Rows[Critique] | None = None

    @property
    def handles(self) -> tuple[AnyRows, ...]:
        """The handles that are not None."""
        parts = (self.candidates, self.rewards, self.critiques)
        return tuple(part for part in parts if part is not None)

    def __add__(self, other: "JudgedRows") -> "JudgedRows":
        """Join the candidates of two stages over the same prompts, and their judgements."""
        return JudgedRows(
            candidates=self.candidates + other.candidates,
            rewards=_both(self.rewards, other.rewards),
            critiques=_both(self.critiques, other.critiques),
        )


def _both(first: Rows[T] | None, second: Rows[T] | None) -> Rows[T] | None:
    if first is None or second is None:
        return first or second
    return first + second


def join_keys(journal: Reader, stages: Sequence[Planned]) -> list[tuple[str, ...]]:
    """Return, for each chunk, the keys of all its units in all the stages."""
    return list(zip(*(stage.keys(journal) for stage in stages), strict=True))


def chunk_prompts(prompts: Sequence[Prompt], size: int) -> Prompts:
    """Return the prompts in chunks of `size`."""
    chunks = tuple(tuple(prompts[i : i + size]) for i in range(0, len(prompts), size))
    identity = digest([[prompt.prompt_id for prompt in chunk] for chunk in chunks])
    return Prompts(chunks=chunks, identity=identity)


def content_key(prompts: Sequence[Prompt]) -> str:
    """Return the hash of the prompts' content, without the fields by which they are counted."""
    return digest([canonical_json(_content_of(prompt)) for prompt in prompts])


def _content_of(prompt: Prompt) -> dict[str, Json]:
    fields: dict[str, Json] = plain(prompt)
    silent = {*SAYS_NOTHING, *(name for name in LISTED if fields[name] is None)}
    return {name: value for name, value in fields.items() if name not in silent}
