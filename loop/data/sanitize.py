"""Showing untrusted text: a model's or user's text must not control the terminal, or show a key."""

import json
import re
import unicodedata

from ...configs.secrecy import without_keys

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
