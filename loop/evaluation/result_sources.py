"""The sources of figures: judge, baseline and checker.

Figures of different judges, baselines or checkers cannot be compared, since a model would seem to
win or lose against itself; such comparisons are refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ..data.files import InputError, Row
from ..data.sanitize import one_line

KINDS: Mapping[str, tuple[str, ...]] = {
    "judge": ("judge", "annotator", "critic"),
    "baseline": ("baseline", "generator_1"),
    "checker": ("checker", "verifier", "metric"),
}
"""Under which fields a row names the judge, the baseline and the checker of its figure."""
NAMED, SHOWN = 3, 60
"""How many names, and how much of a prompt, a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSource:
    """The names in a file, by kind, and the baseline's output for each prompt that has one."""

    path: Path
    names: Mapping[str, frozenset[str]]
    references: Mapping[str, str] = field(default_factory=dict[str, str])


def names_of(rows: Iterable[Row]) -> dict[str, frozenset[str]]:
    """Return the names that rows give, by kind; a kind that none names is left out."""
    found: dict[str, frozenset[str]] = {}
    for names in map(_names, rows):
        for kind, given in names.items():
            if not given <= found.get(kind, frozenset()):
                found[kind] = found.get(kind, frozenset()) | given
    return found


def _names(row: Row) -> dict[str, frozenset[str]]:
    return {
        kind: frozenset({_name(row[name])})
        for kind, fields in KINDS.items()
        for name in fields[::-1]
        if row.get(name) is not None
    }


def refuse_unlike(first: FigureSource, second: FigureSource) -> None:
    """Refuse two files whose figures have different sources, if the files name them.

    Raises:
        InputError: if they name different judges, baselines or checkers, or if the baseline
            answered a prompt differently.
    """
    for kind in KINDS:
        here, there = first.names.get(kind), second.names.get(kind)
        if here and there and 2 * len(here & there) <= len(here | there):
            # Of a pool from which each row draws its judge, a short file may not name all.
            raise InputError(
                f"{first.path} names the {kind} {_list_names(here)}, and {second.path} "
                f"{_list_names(there)}: "
                f"figures of different {kind}s cannot be compared; give two files of the same "
                f"{kind}"
            )
    common = first.references.keys() & second.references.keys()
    unlike = sorted(p for p in common if first.references[p] != second.references[p])
    if unlike:
        raise InputError(
            f"the baseline's output ('output_1') differs between {first.path} and {second.path} "
            f"for {len(unlike)} of {len(common)} prompts ({one_line(unlike[0], limit=SHOWN)!r}): "
            "figures against different baselines cannot be compared"
        )


def _name(given: object) -> str:
    """Return a name; AlpacaEval's `annotator` may be an object that has one."""
    if isinstance(given, dict):
        named = cast("Row", given)
        return str(named.get("name", named))
    return str(given)


def _list_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(map(repr, listed[:NAMED])) + more
