"""FActScore of biographies with people's labels: exact, and off by its judge's errors."""

import json
import math

import pytest
from typer.testing import CliRunner

from lpfloop.critics.facts.fact_judge import WORDS
from lpfloop.critics.facts.fact_score import FACT_SCORE, count_support, fact_metrics
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.files import placed_rows
from lpfloop.loop.data.rating_scale import SCALES, THREE_LEVEL
from lpfloop.loop.lake.imports.factscore_rows import factscore
from lpfloop.loop.lake.imports.imported_rows import Maker
from lpfloop.stores.records import Breakdown, Claim

MAKE = Maker(source="biographies", scale=SCALES[THREE_LEVEL], task=None)

PUBLISHED = 0.425
"""InstructGPT's score by people's labels, in the paper's introduction."""
SCORES = """
select judge, avg(score) as fact_score, count(*) as answers
from (
    select judge, candidate_id, avg((verdict = 'supported')::int) as score
    from claims where verdict is not null group by all
) group by all
"""
"""FActScore by SQL; docs/evaluate.md has it on one line."""
LABELLED = {"supported": 2100, "not_supported": 1971, "irrelevant": 665}


def labelled(row) -> dict[str, float]:
    """Return the fact metrics by people's labels of a biography."""
    made = list(factscore(row, MAKE))
    passages = [(b.status, len(b.statements)) for b in made if isinstance(b, Breakdown)]
    claims = [(claim.verdict, claim.status) for claim in made if isinstance(claim, Claim)]
    return dict(fact_metrics(passages, claims))


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


def test_imported_file_scores(tmp_path, shared_data):
    lake, file = str(tmp_path / "lake"), str(shared_data / "factscore_InstructGPT.jsonl")
    cli = CliRunner()
    told = cli.invoke(app, ["import", file, "--run", "bios", "--lake", lake])
    assert told.exit_code == 0, told.stderr
    assert "4,736 claims" in told.stdout + told.stderr
    (row,) = json.loads(cli.invoke(app, ["sql", SCORES, "--lake", lake, "--json"]).stdout)
    assert (row["judge"], row["answers"]) == ("human:factscore", 182)
    assert row["fact_score"] == pytest.approx(0.42576, abs=1e-5)


def test_no_verdict_no_score():
    assert count_support([(None, "missing"), (None, "beyond_most")]).unread == 1
    assert count_support([(None, "missing")]).score is None
    assert fact_metrics([("truncated", 0)], []) == ()
    found = dict(fact_metrics([("scored", 2), ("truncated", 0)], [("supported", "scored")]))
    assert (found[FACT_SCORE], found["facts_unread"], found["abstained"]) == (1.0, 1.0, 0.0)
    assert dict(fact_metrics([("scored", 0)], [])) == {"abstained": 1.0, "facts_unread": 0.0}
