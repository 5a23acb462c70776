"""The passages of an answer: a few sentences each, so that questions and replies stay short.

FActScore asks about one sentence at a time; here, sentences of up to `LENGTH` characters share a
question. A longer sentence is cut at a space.
"""

import re
from collections.abc import Iterator

LENGTH = 400
"""Characters of sentences that share a question; a longer sentence gets a separate one."""
LONGEST = 2_000
"""Characters of a passage, however long its sentence is."""
_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")


def passages(answer: str) -> list[str]:
    """Return the passages of an answer, in order; none of a blank one."""
    found, held = list[str](), ""
    for piece in _pieces(answer):
        joined = f"{held} {piece}".strip()
        if held and len(joined) > LENGTH:
            found.append(held)
            joined = piece
        held = joined
    return [*found, held] if held else found


def _pieces(answer: str) -> Iterator[str]:
    """Yield the sentences of a text, the overlong ones in pieces."""
    for sentence in map(str.strip, _END.split(answer)):
        rest = sentence
        while len(rest) > LONGEST:
            cut = rest.rfind(" ", 1, LONGEST + 1)
            end = cut if cut > 0 else LONGEST
            yield rest[:end]
            rest = rest[end:].strip()
        if rest:
            yield rest
