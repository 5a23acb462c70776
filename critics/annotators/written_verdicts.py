"""Writing verdicts on pairs in the form that annotators are asked for."""

import json
from collections.abc import Sequence
from typing import Literal, get_args

from ...stores.records import Preferred

ListedForm = Literal["token", "json", "ranking"]
"""How verdicts on one pair or several are written: the better output's number alone, an object with
an explanation, or both numbers in order."""
StatedForm = Literal["sentence", "brackets", "choice"]
"""How published judges write a verdict on one pair, below their reasons: "Output 1 is better."
(LLMBar, PandaLM), [[A]] (MT-bench), or an object with a "choice" (WildBench)."""
ReplyForm = Literal[ListedForm, StatedForm]
LISTED_FORMS: tuple[ListedForm, ...] = get_args(ListedForm)
STATED_FORMS: tuple[StatedForm, ...] = get_args(StatedForm)
NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
RANKINGS: dict[Preferred, str] = {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"}
SENTENCES: dict[Preferred, str] = {
    "first": "Output 1 is better.",
    "second": "Output 2 is better.",
    "tie": "Both outputs are equally good.",
}
LETTERS: dict[Preferred, str] = {"first": "A", "second": "B", "tie": "C"}
WORDS: dict[ReplyForm, dict[Preferred, str]] = {
    "token": NUMBERS,
    "ranking": RANKINGS,
    "sentence": SENTENCES,
    "brackets": {label: f"[[{letter}]]" for label, letter in LETTERS.items()},
}
"""The verdicts of forms that are not JSON."""
CHOSEN_NAMES: dict[Preferred, str] = {"first": "A", "second": "B", "tie": "A=B"}


def reply_of(
    form: ReplyForm, verdicts: Sequence[tuple[str, Preferred, str]], *, several: bool
) -> str:
    """Write verdicts (label, which output as shown, explanation) in the form that is asked for."""
    return "\n".join(_statement(form, *verdict, several=several) for verdict in verdicts)


def _statement(
    form: ReplyForm, label: str, preferred: Preferred, explanation: str, *, several: bool
) -> str:
    if form == "choice":
        return json.dumps(
            {"reason": explanation, "choice": CHOSEN_NAMES[preferred]}, ensure_ascii=False
        )
    if form != "json":
        word = WORDS[form][preferred]
        return f"{label}: {word}" if several else word
    named = {"pair": _number(label)} if several else {}
    said = {"explanation": explanation, "preferred": _number(NUMBERS[preferred])}
    return json.dumps(named | said, ensure_ascii=False)


def _number(word: str) -> int | str:
    return int(word) if word.isdigit() else word
