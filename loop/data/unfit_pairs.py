"""Pairs that cannot be trained on: a blank answer, or two answers with one text."""

import re
from collections.abc import Iterable
from typing import Literal

Unfit = Literal["empty", "identical"]
BLANK = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff]*")
"""White space, and characters that show nothing."""


def unfit(answers: Iterable[str]) -> Unfit | None:
    """Return why the answers of a pair cannot be trained on, or None.

    Texts that differ only in white space count as one text.
    """
    texts = list(answers)
    if any(map(BLANK.fullmatch, texts)):
        return "empty"
    # Where both sides are one text, some formats have nothing but the prompt to give.
    return "identical" if len({" ".join(text.split()) for text in texts}) <= 1 else None
