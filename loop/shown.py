"""Showing untrusted text: what a model or a user wrote can not drive the terminal."""

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories of characters that act or hide: controls, bidirectional marks, zero width."""


def visible(text: str, *, limit: int | None = None) -> str:
    """Return `text` with every control, bidirectional or invisible character written as its code.

    Newlines stay; a text of over `limit` characters is cut, and says so.
    """
    cut = (
        text if limit is None or len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    )
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in HIDDEN else f"\\u{{{ord(c):x}}}"
        for c in cut
    )


def one_line(text: str, *, limit: int) -> str:
    """Return `text` on one line, for a cell of a table."""
    return visible(text.replace("\n", " ⏎ "), limit=limit)
