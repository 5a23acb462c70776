"""Handles on committed rows: what the verbs of an iteration take and give.

A stage works chunk by chunk of prompts, and so does every stage that builds on it: a handle names,
for each chunk, the units whose parts hold the rows. Adding two handles joins them chunk by chunk.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..stores.records import Candidate, Critique, Demonstration, Pair, Prompt, Reward

T = TypeVar("T", Candidate, Critique, Reward, Pair, Demonstration)
D = TypeVar("D", Pair, Demonstration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of a stage, in chunks, each with the key of its content."""

    chunks: tuple[tuple[Prompt, ...], ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[T]):
    """Rows of one kind: for each chunk of prompts, the units that hold them."""

    row_type: type[T]
    label: str
    chunks: tuple[tuple[str, ...], ...]

    def __add__(self, other: "Rows[T]") -> "Rows[T]":
        """Join the rows of two stages over the same prompts."""
        return Rows(
            row_type=self.row_type,
            label=f"{self.label}+{other.label}",
            chunks=tuple(a + b for a, b in zip(self.chunks, other.chunks, strict=True)),
        )


AnyRows = Rows[Candidate] | Rows[Critique] | Rows[Reward]


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Of each prompt's candidates, the one with the highest reward (y~, Section 3.2)."""

    candidates: Rows[Candidate]
    rewards: Rows[Reward]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """Candidates with what was said of them; reward-only variants have no critiques."""

    candidates: Rows[Candidate]
    rewards: Rows[Reward]
    critiques: Rows[Critique] | None = None

    @property
    def handles(self) -> tuple[AnyRows, ...]:
        """The handles there are."""
        parts = (self.candidates, self.rewards)
        return parts if self.critiques is None else (*parts, self.critiques)
