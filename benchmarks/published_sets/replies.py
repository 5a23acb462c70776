"""The raw replies of published judges, through the readers of their forms.

A verdict is invented if the reader finds one and the authors found none.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lpfloop.critics.annotators.pair_verdicts import PairVerdicts
from lpfloop.critics.grading.graded_aspects import GradeScale
from lpfloop.critics.grading.score_reply import OverallScore
from lpfloop.critics.judge import Question
from lpfloop.critics.scoring.answer_scorer import AspectScores
from lpfloop.loop.data.file_row import Row
from lpfloop.stores.records import Order

from .study import Disagreement, Found, Study, counts, rows_of, share

PAIRS = {
    "LLMBar/Natural": "llmbar_LLMBar__Natural.json",
    "LLMBar/Adversarial/Neighbor": "llmbar_LLMBar__Adversarial__Neighbor.json",
}
WINNERS = {"1": "first", "2": "second"}
PREFERRED = {1: "first", 2: "second", 0: "tie"}
ORDERS: Mapping[str, Order] = {"order1": "as_given", "order2": "swapped"}


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


def _verdict(
    place: str, text: str, judged: tuple[str, ...], published: str | None, expected: PairVerdicts
) -> PublishedReply:
    (reading,) = Question(messages=(), expected=expected, judged=judged).read(text, "stop")
    return PublishedReply(
        place=place,
        text=text,
        published=published,
        read=reading.value.preferred,
        status=reading.status,
    )


def _score(
    place: str,
    text: str,
    judged: tuple[str, ...],
    published: str | None,
    expected: OverallScore | AspectScores,
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


def _llmbar(folder: Path) -> Found:
    pairs = {name: rows_of(folder / file) for name, file in PAIRS.items()}
    return _compared(
        _verdict(
            f"{row['subset']} {row['idx']}, {row['llm']} {row['strategy']}, {name}",
            str(reply["text"]),
            tuple(str(pair[field]) for field in ("input", "output_1", "output_2")),
            WINNERS.get(str(reply["winner"])),
            PairVerdicts(form="sentence", ties=False, orders=(order,)),
        )
        for row in rows_of(folder / "llmbar_judge_completions.jsonl")
        for pair in [pairs[str(row["subset"])][cast("int", row["idx"])]]
        for name, order in ORDERS.items()
        for reply in [cast("Row", row[name])]
        if reply["text"]
    )


def _pandalm(folder: Path) -> Found:
    return _compared(
        _verdict(
            f"row {row['idx']}",
            str(row["pandalm_reason"]),
            (str(row["response1"]), str(row["response2"])),
            PREFERRED[cast("int", row["pandalm_result"])],
            PairVerdicts(form="sentence", ties=True),
        )
        for row in rows_of(folder / "pandalm.jsonl")
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


def _objects(file: str, field: str, answer: str, best: int) -> Callable[[Path], Found]:
    """Return a study of replies that consist of an object with a score."""

    def find(folder: Path) -> Found:
        return _compared(
            _score(
                f"row {number}",
                json.dumps(row[field]),
                (str(row[answer]),),
                str(cast("Row", row[field])["score"]),
                OverallScore(scale=GradeScale(best=best), form="json"),
            )
            for number, row in enumerate(rows_of(folder / file), start=1)
        )

    return find


def _prometheus(folder: Path) -> Found:
    """Read the feedback, which contains no score, so that any score is invented."""
    return _compared(
        _score(
            f"row {row['idx']}, reply {number}",
            text,
            (),
            None,
            OverallScore(scale=GradeScale(best=5), form="result"),
        )
        for row in rows_of(folder / "prometheus_vicuna_eval.jsonl")
        for number, text in enumerate(cast("list[str]", row["gpt4_feedback"]), start=1)
    )


REPLIES: Mapping[str, Study] = {
    "llmbar-replies": Study(
        through="the reader of verdicts in sentences, against what its authors read", find=_llmbar
    ),
    "pandalm-replies": Study(
        through="the reader of verdicts in sentences, over PandaLM's reasons", find=_pandalm
    ),
    "justeval-replies": Study(
        through="the reader of scores in JSON, over the raw judgments", find=_aspects
    ),
    "justeval-safety": Study(
        through="the reader of scores in JSON",
        find=_objects("justeval_safety_vicuna.jsonl", "safety", "output", 5),
    ),
    "wildbench": Study(
        through="the reader of scores in JSON",
        find=_objects("wildbench_feedback_gemma2b.jsonl", "feedback", "model_output", 10),
    ),
    "prometheus": Study(
        through="the reader of [RESULT], over feedback that holds no score", find=_prometheus
    ),
}
