"""What a run tells whoever watches it: stages with counts, and notes."""

from dataclasses import asdict, dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What one committed unit adds to its stage: rows, what they cost, what went wrong.

    `tokens` are drawn (completion) tokens; `calls` are requests to a model, `retries` of them
    asked again; `failed` are requests that alone could not be answered.
    """

    rows: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    calls: int = 0
    retries: int = 0
    unscored: int = 0
    failed: int = 0

    def __add__(self, other: "Advance") -> "Advance":
        """Return the sum."""
        mine, theirs = asdict(self), asdict(other)
        return Advance(**{name: mine[name] + theirs[name] for name in mine})


class Reporter(Protocol):
    """A display of the run; it never changes what the run does."""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Start showing a stage of `planned` units, of which `done` were committed before."""
        ...

    def advance(self, advance: Advance) -> None:
        """Show that one more unit of the stage is committed."""
        ...

    def end(self) -> None:
        """Show that the stage is over."""
        ...

    def note(self, text: str) -> None:
        """Say one sentence."""
        ...
