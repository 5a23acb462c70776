"""FActScore of biographies with people's labels: exact, and off by its judge's errors."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from lpfloop.critics.facts.fact_judge import WORDS
from lpfloop.critics.facts.fact_score import FACT_SCORE, fact_metrics
from lpfloop.loop.data.files import placed_rows
from lpfloop.stores.records import SCORED, Support

LABELS: Mapping[str, Support] = {"S": "supported", "NS": "not_supported", "IR": "irrelevant"}
PUBLISHED = 0.425
"""InstructGPT's score by people's labels, in the paper's introduction."""
LABELLED = {"supported": 2100, "not_supported": 1971, "irrelevant": 665}


def labelled(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the fact metrics by people's labels of a biography.

    A sentence that is irrelevant as a whole counts as one irrelevant statement, as in the paper.
    """
    passages, claims = list[tuple[str, int]](), list[tuple[Support | None, str]]()
    for sentence in row["annotations"] or ():
        facts = sentence["human-atomic-facts"]
        labels = [LABELS[fact["label"]] for fact in facts or ()]
        if facts is None and sentence["is-relevant"] is False:
            labels = ["irrelevant"]
        passages.append((SCORED, len(labels)))
        claims += [(label, SCORED) for label in labels]
    return dict(fact_metrics(passages or [(SCORED, 0)], claims))


def mean(values) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def test_score_is_the_published_one(shared_data):
    path = shared_data / "factscore_InstructGPT.jsonl"
    metrics = [labelled(row) for _, row in placed_rows(path)]
    found = (sum(each.get(f"facts_{name}", 0) for each in metrics) for name in WORDS)
    assert dict(zip(WORDS, found, strict=True)) == LABELLED
    assert sum(found["abstained"] for found in metrics) == 1
    scores = [found[FACT_SCORE] for found in metrics if FACT_SCORE in found]
    assert len(scores) == 182
    assert mean(scores) == pytest.approx(PUBLISHED, abs=0.001)
    # Without the irrelevant ones it would differ a lot.
    relevant = [
        found["facts_supported"] / judged
        for found in metrics
        if FACT_SCORE in found
        and (judged := found["facts_supported"] + found["facts_not_supported"])
    ]
    assert mean(relevant) > PUBLISHED + 0.04


def test_no_verdict_no_score():
    unjudged = dict(fact_metrics([("scored", 2)], [(None, "missing"), (None, "beyond_most")]))
    assert unjudged == {"abstained": 0.0, "facts_unread": 1.0}
    assert fact_metrics([("truncated", 0)], []) == ()
    found = dict(fact_metrics([("scored", 2), ("truncated", 0)], [("supported", "scored")]))
    assert (found[FACT_SCORE], found["facts_unread"], found["abstained"]) == (1.0, 1.0, 0.0)
    assert dict(fact_metrics([("scored", 0)], [])) == {"abstained": 1.0, "facts_unread": 0.0}
