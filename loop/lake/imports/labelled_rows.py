"""Reading answers that their data set says are right or wrong.

GSM8K's model solutions: an object with `solution` and `is_correct` for each system. Qwen2.5-Math's
evaluation: lists of samples (`code`), of labels (`score`) and of reward scores. TruthfulQA: lists
of correct and of incorrect answers. A label becomes a critique by `label:FIELD`.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import cast

from ....stores.records import AspectRating, Candidate, Critique, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.rating_scale import number
from ...data.row_fields import LABEL, NO_NUMBER, list_of, object_of, text_or_empty
from ...data.row_texts import kind_of, optional_text
from .imported_rows import Maker

Rows = Iterator[StoredRow]
SOLUTION, IS_CORRECT = "solution", "is_correct"
CORRECT, INCORRECT = "correct_answers", "incorrect_answers"
BEST, BEST_INCORRECT = "best_answer", "best_incorrect_answer"
TRUE = "true"
"""The field of a label, where being in a list is the label."""


def label(
    make: Maker, candidate: Candidate, name: str, *, right: bool, comment: str = ""
) -> Critique:
    """Return what the field `name` of a data set says of an answer: whether it is right."""
    said = AspectRating(name=name, rating=1 if right else -1, comment=storable(comment))
    return make.levelled(candidate, f"{LABEL}{name}", [said])


def truth(value: object, where: str) -> bool:
    """Return a label, which must be true or false."""
    if not isinstance(value, bool):
        raise RowError(f"{where!r} must be true or false, but is {kind_of(value)}")
    return value


def has_solutions(row: Row) -> bool:
    """Whether a row is one of GSM8K's model solutions."""
    return "question" in row and any(_is_solution(row.glance(name)) for name in row)


def solutions(row: Row, make: Maker) -> Rows:
    """Read a problem with a labelled solution of each system, under the system's name."""
    prompt = make.prompt(Row({"question": row.get("question"), "answer": row.get("ground_truth")}))
    yield prompt
    for system in [name for name in row if _is_solution(row.glance(name))]:
        item = object_of(row[system], system)
        text = text_or_empty(item[SOLUTION], f"{system}.{SOLUTION}")
        candidate = make.candidate(prompt, text, system)
        yield candidate
        right = truth(item[IS_CORRECT], f"{system}.{IS_CORRECT}")
        yield label(make, candidate, IS_CORRECT, right=right)


def _is_solution(value: object) -> bool:
    return isinstance(value, dict) and {SOLUTION, IS_CORRECT} <= set(cast("Row", value))


def samples(row: Row, make: Maker) -> Rows:
    """Read a problem with its samples, each with its label, its answer as read, and its score."""
    asked = {"question": row.get("question"), "answer": row.get("gt")}
    prompt = make.prompt(Row({**asked, "family": row.get("level") or row.get("subject")}))
    yield prompt
    texts, labels = list_of(row, "code"), list_of(row, "score")
    read, scores = list_of(row, "pred"), list_of(row, "pred_score")
    for name, given in (("score", labels), ("pred", read), ("pred_score", scores)):
        if given and len(given) != len(texts):
            raise RowError(f"{name!r} has {len(given)} entries for {len(texts)} samples of 'code'")
    model = optional_text(row, "model")
    for n, (text, right, answer, score) in enumerate(
        zip_longest(texts, labels, read, scores), start=1
    ):
        candidate = make.candidate(prompt, text_or_empty(text, f"code[{n}]"), model, sample=n)
        yield candidate
        if right is not None:
            read_as = "" if answer is None else f"answer read: {answer}"
            known = truth(right, f"score[{n}]")
            yield label(make, candidate, "score", right=known, comment=read_as)
        reward = number(_alone(score))
        if reward is None and score not in (None, []):
            row.misread("pred_score", NO_NUMBER)
        yield from make.reward(candidate, f"{make.source}:pred_score", reward)


def _alone(score: object) -> object:
    """Return a score that may be in a list of its own."""
    if not isinstance(score, list):
        return score
    entries = cast("list[object]", score)
    return entries[0] if len(entries) == 1 else None


def truthfulqa(row: Row, make: Maker) -> Rows:
    """Read TruthfulQA's questions; their best answer is the reference."""
    own = {name.lower().replace(" ", "_"): name for name in row}

    def given(name: str) -> object:
        return row.get(own.get(name, name))

    asked = {"question": given("question"), "reference": given(BEST)}
    right, wrong = (tuple(_listed(given(name), name)) or None for name in (CORRECT, INCORRECT))
    prompt = replace(
        make.prompt(Row({**asked, "family": given("category")})),
        correct_answers=right,
        incorrect_answers=wrong,
    )
    yield prompt
    made = dict[tuple[str, str], Candidate]()
    for name, best, right in ((CORRECT, BEST, True), (INCORRECT, BEST_INCORRECT, False)):
        for text in dict.fromkeys([*_listed(given(name), name), *_listed(given(best), best, None)]):
            candidate = make.candidate(prompt, text, name)
            made[name, text] = candidate
            yield candidate
            yield label(make, candidate, TRUE, right=right)
    first = made.get((CORRECT, _text(given(BEST))))
    second = made.get((INCORRECT, _text(given(BEST_INCORRECT))))
    if first is not None and second is not None:
        yield make.preference(first, second, f"{LABEL}{BEST}", "first")


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _listed(value: object, name: str, separator: str | None = ";") -> list[str]:
    """Return a list of answers, which may be one text with semicolons between them."""
    if isinstance(value, list):
        return [text_or_empty(text, name) for text in cast("list[object]", value)]
    if value is None:
        return []
    text = text_or_empty(value, name)
    parts = text.split(separator) if separator else [text]
    return [part.strip() for part in parts if part.strip()]


def is_truthfulqa(row: Row) -> bool:
    """Whether a row is one of TruthfulQA, as its CSV or as the hub has it."""
    names = {name.lower().replace(" ", "_") for name in row}
    return {"question", BEST, CORRECT, INCORRECT} <= names
