"""The error of a configuration, and what its message suggests for an unknown name.

Nothing heavy is imported here: commands that only read a lake never import the schema.
"""

import difflib
from collections.abc import Collection, Sequence


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the file and the field."""

    code = "LPF-101"


SHOWN = 16
"""The most names that an error lists, the likeliest first."""


def likely(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant: another spelling, or a near one."""
    plain = {other.casefold(): other for other in known}
    if (same := plain.get(name.casefold())) is not None:
        return same
    near = difflib.get_close_matches(name.casefold(), plain, n=1)
    return plain[near[0]] if near else None


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return `did you mean 'X'? `, or nothing."""
    near = likely(name, known)
    return "" if near is None else f"did you mean {near!r}? "


def list_names(known: Sequence[str], more: str = "") -> str:
    """Return names as a list for an error; `more` names a way to see the rest."""
    if len(known) <= SHOWN:
        return ", ".join(known) or "none"
    rest = f"and {len(known) - SHOWN} more"
    return f"{', '.join(known[:SHOWN])} {rest}{f' ({more})' if more else ''}"


def alike(name: str, known: Collection[str]) -> list[str]:
    """Return the known names, those most like `name` first."""
    return sorted(known, key=lambda other: -difflib.SequenceMatcher(None, name, other).ratio())
