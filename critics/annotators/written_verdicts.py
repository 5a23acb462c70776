"""Writing verdicts on pairs in the form that annotators are asked for."""

import json
from collections.abc import Sequence
from typing import Literal

from ...stores.records import Preferred

ReplyForm = Literal["token", "json", "ranking"]
"""How a verdict is written: the better output's number alone, an object with an explanation, or
both numbers in order."""
NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
RANKINGS: dict[Preferred, str] = {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"}


def reply_of(
    form: ReplyForm, verdicts: Sequence[tuple[str, Preferred, str]], *, several: bool
) -> str:
    """Write verdicts (label, which output as shown, explanation) in the form that is asked for."""
    return "\n".join(_statement(form, *verdict, several=several) for verdict in verdicts)


def _statement(
    form: ReplyForm, label: str, preferred: Preferred, explanation: str, *, several: bool
) -> str:
    if form != "json":
        words = RANKINGS if form == "ranking" else NUMBERS
        return f"{label}: {words[preferred]}" if several else words[preferred]
    named = {"pair": _number(label)} if several else {}
    said = {"explanation": explanation, "preferred": _number(NUMBERS[preferred])}
    return json.dumps(named | said, ensure_ascii=False)


def _number(word: str) -> int | str:
    return int(word) if word.isdigit() else word
