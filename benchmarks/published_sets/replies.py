"""The raw replies of published judges, through the reader of their form.

A verdict is invented if the reader finds one and the authors found none.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lpfloop.critics.grading.grade_reply import GradeScale
from lpfloop.critics.judge import Question
from lpfloop.critics.scoring.answer_forms import AspectScores
from lpfloop.loop.data.file_row import Row

from .study import Disagreement, Found, Study, counts, rows_of, share


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedReply:
    """A reply, its place in the file, the authors' reading of it, and the reader's."""

    place: str
    text: str
    published: str | None
    read: str | None
    status: str


def _compared(replies: Iterable[PublishedReply]) -> Found:
    found, unread, whole, equal = Found(), Counter[str](), 0, 0
    for one in replies:
        whole += 1
        equal += one.read is not None and one.read == one.published
        if one.read is None:
            by = "unread by its authors, too" if one.published is None else "read by its authors"
            unread[f"{one.status} ({by})"] += 1
        elif one.read != one.published:
            found.disagreements.append(
                Disagreement(
                    place=one.place, published=str(one.published), ours=one.read, text=one.text
                )
            )
    invented = sum(one.published == "None" for one in found.disagreements)
    found.figures = {
        "read as its authors read it": share(equal, whole),
        "unread": counts(unread),
        "read otherwise": f"{len(found.disagreements) - invented:,}",
        "invented": f"{invented:,}",
    }
    return found


def _score(
    place: str,
    text: str,
    judged: tuple[str, ...],
    published: str | None,
    expected: AspectScores,
) -> PublishedReply:
    (reading,) = Question(messages=(), expected=expected, judged=judged).read(text, "stop")
    rating = reading.value.rating
    return PublishedReply(
        place=place,
        text=text,
        published=published,
        read=None if rating is None else f"{rating:g}",
        status=reading.status,
    )


def _aspects(folder: Path) -> Found:
    return _compared(
        _score(
            f"row {row['id']}, {aspect}",
            text,
            (str(row["instruction"]), str(row["output"])),
            None if told["score"] == "N/A" else str(told["score"]),
            AspectScores(keys=(aspect,), scale=GradeScale(best=5)),
        )
        for row in rows_of(folder / "justeval_multi_aspect.jsonl")
        for text in [str(row["raw_judgment"])]
        for aspect, told in cast("dict[str, Row]", row.get("scores") or json.loads(text)).items()
    )


REPLIES: Mapping[str, Study] = {
    "justeval-replies": Study(
        through="the reader of scores in JSON, over the raw judgments", find=_aspects
    ),
}
