"""FActScore on biographies whose statements people labelled: exact, and off as its judge errs."""

import json
import math
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from lpfloop.configs.facts import FactsConfig
from lpfloop.critics.facts.fact_judge import FactJudge
from lpfloop.critics.facts.fact_score import FACT_SCORE, counted, fact_metrics
from lpfloop.critics.facts.support_verdicts import WORDS
from lpfloop.critics.guard import GuardKey
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.files import placed_rows
from lpfloop.loop.data.rating_scale import SCALES, THREE_LEVEL
from lpfloop.loop.lake.imports.factscore_rows import LABELS, factscore
from lpfloop.loop.lake.imports.imported_rows import Maker
from lpfloop.stores.records import Breakdown, Claim, Prompt

MAKE = Maker(source="biographies", scale=SCALES[THREE_LEVEL], task=None)
PUBLISHED = 0.425
"""InstructGPT's score by people, in the paper's introduction."""


@dataclass(frozen=True, slots=True)
class Biography:
    """A labelled biography: its prompt, passages and statements."""

    prompt: Prompt
    passages: list[Breakdown]
    claims: list[Claim]

    @property
    def metrics(self) -> dict[str, float]:
        """What people's labels say of it."""
        return self.by([(claim.verdict, claim.status) for claim in self.claims])

    def by(self, said) -> dict[str, float]:
        """What verdicts on its statements say of it."""
        return dict(fact_metrics([(p.status, len(p.statements)) for p in self.passages], said))


@pytest.fixture(scope="module")
def published(shared_data):
    path = shared_data / "factscore_InstructGPT.jsonl"
    return [row for _, row in placed_rows(path)]


@pytest.fixture(scope="module")
def biographies(published):
    made = [list(factscore(row, MAKE)) for row in published]
    return [
        Biography(
            prompt=next(row for row in rows if isinstance(row, Prompt)),
            passages=[row for row in rows if isinstance(row, Breakdown)],
            claims=[row for row in rows if isinstance(row, Claim)],
        )
        for rows in made
    ]


def mean(values) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def test_people_s_labels_are_counted_exactly(published, biographies):
    labels = Counter(
        LABELS[fact["label"]]
        for row in published
        for sentence in row["annotations"] or ()
        for fact in sentence["human-atomic-facts"] or ()
    )
    # Ten sentences of one answer are about somebody else: people wrote no statements of them.
    labels["irrelevant"] += 10
    assert Counter(c.verdict for b in biographies for c in b.claims) == labels
    metrics = [biography.metrics for biography in biographies]
    for name in WORDS:
        assert sum(found.get(f"facts_{name}", 0) for found in metrics) == labels[name]
    assert labels == {"supported": 2100, "not_supported": 1971, "irrelevant": 665}


def test_the_score_by_people_s_labels_is_the_published_one(biographies):
    metrics = [biography.metrics for biography in biographies]
    assert sum(found["abstained"] for found in metrics) == 1
    scores = [found[FACT_SCORE] for found in metrics if FACT_SCORE in found]
    assert len(scores) == 182
    assert mean(scores) == pytest.approx(PUBLISHED, abs=0.001)
    # Without the irrelevant ones it would be far from it.
    relevant = [
        found["facts_supported"] / judged
        for found in metrics
        if FACT_SCORE in found
        and (judged := found["facts_supported"] + found["facts_not_supported"])
    ]
    assert mean(relevant) > PUBLISHED + 0.04


def erring(truth: str, draw: random.Random, supports: float, denies: float) -> str:
    """Return what a judge says that supports and denies falsely at these rates."""
    if truth == "supported":
        return "not_supported" if draw.random() < denies else truth
    return "supported" if draw.random() < supports else truth


def read_back(judge: FactJudge, biography: Biography, said: list[str]):
    """Return what is read of a judge's reply about all statements of a biography."""
    texts = [claim.statement for claim in biography.claims]
    question = judge.ask_support(biography.prompt, texts, GuardKey.of(3, "ask"))
    lines = [f"{n}: {WORDS[verdict]}. So it is." for n, verdict in enumerate(said, start=1)]
    readings = question.read("\n".join([question.mark or "", *lines]), "stop")
    return [(reading.value.verdict, reading.status) for reading in readings]


@pytest.mark.parametrize(
    ("supports", "denies"), [(0, 0), (0.1, 0), (0, 0.1), (0.1, 0.1), (0.2, 0.05), (0.05, 0.3)]
)
def test_a_judge_that_errs_at_a_rate_is_off_by_what_follows(biographies, supports, denies):
    judge, draw = FactJudge.from_config(FactsConfig()), random.Random(7)
    off, expected, variance = [], [], []
    for biography in biographies:
        if not biography.claims:
            continue
        truth = [str(claim.verdict) for claim in biography.claims]
        said = [erring(verdict, draw, supports, denies) for verdict in truth]
        measured = biography.by(read_back(judge, biography, said))
        n, right = len(truth), truth.count("supported")
        false = sum(s == "supported" != t for s, t in zip(said, truth, strict=True))
        denied = sum(t == "supported" != s for s, t in zip(said, truth, strict=True))
        off.append(measured[FACT_SCORE] - biography.metrics[FACT_SCORE])
        assert off[-1] == pytest.approx((false - denied) / n)
        share = right / n
        expected.append(supports * (1 - share) - denies * share)
        flips = (n - right) * supports * (1 - supports) + right * denies * (1 - denies)
        variance.append(flips / n**2)
    error = math.sqrt(sum(variance)) / len(variance)
    assert abs(mean(off) - mean(expected)) <= 3 * error


def test_an_imported_file_tells_its_score(tmp_path, shared_data):
    lake, file = str(tmp_path / "lake"), str(shared_data / "factscore_InstructGPT.jsonl")
    cli = CliRunner()
    told = cli.invoke(app, ["import", file, "--run", "bios", "--lake", lake])
    assert told.exit_code == 0, told.stderr
    assert "4,736 claims" in told.stdout + told.stderr
    (row,) = json.loads(cli.invoke(app, ["eval", "facts", "bios", "--lake", lake, "--json"]).stdout)
    assert (row["judge"], row["answers"], row["abstained"]) == ("human:factscore", 183, 1)
    assert row["fact_score"] == pytest.approx(0.42576, abs=1e-5)


ROW = {
    "input": "Question: Tell me a bio of Ada Roth.",
    "output": "Ada Roth painted. She was tall.",
    "topic": "Ada Roth",
    "cat": ["rare", "Europe"],
    "annotations": [
        {
            "text": "Ada Roth painted.",
            "is-relevant": True,
            "human-atomic-facts": [{"text": "Ada Roth painted.", "label": "maybe"}],
        }
    ],
}


def test_a_label_that_is_none_is_refused_by_its_place(tmp_path):
    file = tmp_path / "bios.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    lake = tmp_path / "lake"
    told = CliRunner().invoke(app, ["import", str(file), "--run", "a", "--lake", str(lake)])
    assert told.exit_code == 2
    assert "annotations[1].human-atomic-facts[1].label is 'maybe'" in told.stderr
    assert not (lake / "runs" / "a").exists()


def test_an_answer_without_a_verdict_has_no_score():
    assert counted([(None, "missing"), (None, "beyond_most")]).unread == 1
    assert counted([(None, "missing")]).score is None
    assert fact_metrics([("truncated", 0)], []) == ()
    found = dict(fact_metrics([("scored", 2), ("truncated", 0)], [("supported", "scored")]))
    assert (found[FACT_SCORE], found["facts_unread"], found["abstained"]) == (1.0, 1.0, 0.0)
    assert dict(fact_metrics([("scored", 0)], [])) == {"abstained": 1.0, "facts_unread": 0.0}
