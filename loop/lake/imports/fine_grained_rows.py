"""Reading Fine-Grained RLHF's feedback: four predictions, people's votes, and marked errors.

The question and its passages are the prompt. The errors are those of the first prediction, in the
three groups for which the paper trains a reward each; a group without an error is a success. The
corrected prediction is a candidate of its own.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import cast

from ....stores.records import AspectRating, Candidate, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.row_fields import fields_of, human, list_of, object_of, text_or_empty, vote_of
from ...data.row_texts import text_of
from .imported_rows import Maker

Rows = Iterator[StoredRow]
PREDICTIONS = tuple(f"prediction {n}" for n in range(1, 5))
CORRECTED = "corrected-prediction"
ASPECTS = {
    "relevance": ("Irrelevant", "Redundant", "Incoherent"),
    "factuality": ("Wrong-Grounding", "Unverifiable"),
    "completeness": ("Missing-Answer", "Missing-Major-Auxiliary", "Missing-Minor-Auxiliary"),
}
"""The types of errors by aspect."""


def is_fine_grained(row: Row) -> bool:
    """Whether a row is one of Fine-Grained RLHF's feedback."""
    return {"question", "feedback", *PREDICTIONS} <= set(row)


def fine_grained(row: Row, make: Maker) -> Rows:
    """Read a question with four predictions and people's feedback on them."""
    passages = [_passage(one, n) for n, one in enumerate(list_of(row, "passages"), start=1)]
    asked = "\n\n".join([text_of(row.get("question"), "question"), *passages])
    prompt = make.prompt(Row({"prompt": asked, "reference": row.get("gold")}))
    yield prompt
    texts = {name: text_or_empty(row.get(name), name) for name in PREDICTIONS}
    candidates = [make.candidate(prompt, text, name) for name, text in texts.items()]
    yield from candidates
    feedback = fields_of(row, "feedback")
    errors = [*list_of(feedback, "errors"), *list_of(feedback, "missing-info")]
    rated = _ratings(errors, texts[PREDICTIONS[0]])
    yield make.levelled(candidates[0], human("feedback"), rated)
    corrected = text_or_empty(feedback.get(CORRECTED) or "", f"feedback.{CORRECTED}")
    if corrected.strip():
        yield make.candidate(prompt, corrected, CORRECTED)
    yield from _votes(row, candidates, make)


def _passage(value: object, place: int) -> str:
    """Return a passage: its title, and its sentences."""
    if not isinstance(value, list):
        raise RowError(f"'passages[{place}]' must be a list of a title and sentences")
    said = [text_or_empty(part, f"passages[{place}]") for part in cast("list[object]", value)]
    return "\n".join([*said[:1], " ".join(said[1:])])


def _votes(row: Row, candidates: Sequence[Candidate], make: Maker) -> Rows:
    """Read the votes between each two predictions: 1 or 2 is the better one, 0 a tie."""
    votes = list_of(row, "preference")
    pairs = list(combinations(candidates, 2))
    if len(votes) not in (0, len(pairs)):
        raise RowError(f"'preference' has {len(votes)} votes for {len(pairs)} pairs of predictions")
    for (first, second), given in zip(pairs, votes, strict=False):
        yield make.preference(first, second, human("preference"), vote_of(given))


def _ratings(errors: Sequence[object], text: str) -> list[AspectRating]:
    """Return the rating of each aspect: a failure if an error was marked, or else a success."""
    marked = dict[str, list[str]]()
    for n, value in enumerate(errors, start=1):
        error = object_of(value, f"feedback.errors[{n}]")
        marked.setdefault(_aspect_of(error, n), []).append(_told(error, text))
    return [
        AspectRating(
            name=aspect,
            rating=-1 if aspect in marked else 1,
            comment=storable("\n".join(marked.get(aspect, ()))),
        )
        for aspect in ASPECTS
    ]


def _aspect_of(error: Row, place: int) -> str:
    kind = error.get("error type")
    for aspect, kinds in ASPECTS.items():
        if kind in kinds:
            return aspect
    known = ", ".join(kind for kinds in ASPECTS.values() for kind in kinds)
    raise RowError(f"'feedback.errors[{place}].error type' must be one of {known}")


def _told(error: Row, text: str) -> str:
    """Return what was marked: a part of the text, or what of which passage is missing."""
    kind, start, end = error["error type"], error.get("start"), error.get("end")
    if isinstance(start, int) and isinstance(end, int):
        why = error.get("explanation")
        return f"{kind}: {text[start:end].strip()}" + (f" ({why})" if why else "")
    return f"{kind}: passage {error.get('passage_id')}, sentence {error.get('sentence_id')}"
