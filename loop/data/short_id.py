"""The beginning of an id, short enough for a table and long enough to name the row."""

import re

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
