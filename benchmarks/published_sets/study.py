"""Findings on one published set: figures, and each row on which lpfloop disagrees."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.files import placed_rows

SHOWN = 160
"""Printed characters of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A row on which lpfloop disagrees with the label: the row, and both verdicts."""

    place: str
    published: str
    ours: str
    text: str


@dataclass(slots=True, kw_only=True)
class Found:
    """The figures of a set by name, and the disagreements."""

    figures: dict[str, str] = field(default_factory=dict[str, str])
    disagreements: list[Disagreement] = field(default_factory=list[Disagreement])

    def told(self) -> Iterator[str]:
        """Return the figures, then each disagreement, as lines."""
        width = max(map(len, self.figures), default=0)
        for name, value in self.figures.items():
            yield f"{name:<{width}}  {value}"
        for one in self.disagreements:
            text = " ".join(one.text.split())
            yield f"- {one.place}: published {one.published}, here {one.ours}: ...{text[-SHOWN:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A published set: the tested function, and the study of the files in a folder."""

    through: str
    find: Callable[[Path], Found]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file."""
    return [row for _, row in placed_rows(path)]


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent, with both counts."""
    return f"{100 * part / whole:.1f} % ({part:,} of {whole:,})" if whole else "none"


def counts(found: Mapping[str, int]) -> str:
    """Return the count of each name, the most frequent first."""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count:,}" for name, count in ordered if count) or "none"
