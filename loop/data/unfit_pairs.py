"""Pairs that cannot be trained on: a blank answer, or two answers with one text."""

from collections.abc import Iterable
from typing import Literal

Unfit = Literal["empty", "identical"]


def unfit(answers: Iterable[str]) -> Unfit | None:
    """Return why the answers of a pair cannot be trained on, or None.

    Texts that differ only in white space count as one text.
    """
    texts = {" ".join(text.split()) for text in answers}
    if "" in texts:
        return "empty"
    # Of two equal answers there may be one candidate, or none.
    return "identical" if len(texts) <= 1 else None
