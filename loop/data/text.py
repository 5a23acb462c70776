"""Text for people: untrusted text made harmless, sentences wrapped, short ids and durations."""

import json
import re
import textwrap
import unicodedata
from typing import TYPE_CHECKING

from ...configs.secrecy import without_keys

if TYPE_CHECKING:
    from rich.console import Console

_SPECIAL = re.compile("[^\x00-\x7e]")
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories of characters that act or hide: controls, bidirectional marks, zero width."""


def visible(text: str, *, limit: int | None = None) -> str:
    """Return `text` with every control, bidirectional or invisible character written as its code.

    One's own keys are blacked out.
    Newlines stay; a text of over `limit` characters is cut, with a note.
    """
    text = without_keys(text)
    cut = (
        text if limit is None or len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    )
    hidden = (c for c in set(cut) if c != "\n" and unicodedata.category(c) in HIDDEN)
    codes = {ord(c): f"\\u{{{ord(c):x}}}" for c in hidden}
    return cut.translate(codes) if codes else cut


def one_line(text: str, *, limit: int) -> str:
    """Return `text` on one line, for a cell of a table."""
    return visible(text.replace("\n", " ⏎ "), limit=limit)


def escape_hidden(text: str) -> str:
    """Return JSON text with hidden characters escaped: the same values, safe to show.

    JSON always escapes ASCII controls, except DEL.
    """
    hidden = (c for c in set(_SPECIAL.findall(text)) if unicodedata.category(c) in HIDDEN)
    codes = {ord(c): json.dumps(c)[1:-1] for c in hidden}
    return text.translate(codes) if codes else text


_COMMAND = re.compile(r"`[^`\n]*`")
KEPT = "\u00a0"
"""Stands for a blank that no line may end at."""


def print_wrapped(console: "Console", text: str) -> None:
    """Print sentences: in lines of a terminal's width, elsewhere each on one line."""
    lines = sentence_lines(text, console.width) if console.is_terminal else [text]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sentence_lines(text: str, width: int) -> list[str]:
    """Return text in lines of a width; a command in backticks stays whole, so it can be copied.

    A command that is longer than the width gets a separate line.
    """
    return [line for part in text.split("\n") for line in _wrap(part, width)]


def _wrap(text: str, width: int) -> list[str]:
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", KEPT), text)
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines = textwrap.wrap(
        whole,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEPT, " ") for line in lines] or [""]


DIGITS = 9
"""Among 2.4 million rows, the chance that another one's id begins like a shown one is 1 to 28,000;
`lpfloop show` then names both."""
BARE_DIGITS = 12
"""The digits of an id that is a digest alone, such as a checkpoint's."""
_HASHED = re.compile(r"([a-z]+-)?([0-9a-f]{32,64})")


def short_id(identity: str) -> str:
    """Return the beginning of an id that is made of a digest; others, such as a user's, whole."""
    found = _HASHED.fullmatch(identity)
    if found is None:
        return identity
    prefix, digest = found.groups(default="")
    return prefix + digest[: DIGITS if prefix else BARE_DIGITS]


MINUTE_S = 59.95
"""Shorter durations have a tenth of a second; this and longer ones would round to a minute."""


def duration(seconds: float | None) -> str:
    """Return a duration for a table; None means unknown."""
    if seconds is None:
        return "?"
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
