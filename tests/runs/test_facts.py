"""Facts: the critic splits answers into statements, and judges each by the reference."""

import json
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from judges import REFERENCE
from typer.testing import CliRunner
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal

SETTINGS = (
    "iterations=0",
    "injection_guard=true",
    "policy.engine.kind=scripted",
    "policy.engine.script=judges:biographer",
    "critic.model=none",
    "critic.engine.kind=scripted",
    "critic.engine.script=judges:fact_judge",
    "critic.kind=verifier",
    "prompts.chunk=3",
    "facts.judge=critic",
    "reward.model=none",
)


def prompts(folder: Path) -> Path:
    """Write prompts of facts: four for training, and four held out."""
    rows = [
        {
            "prompt": f"Tell me about Mia Berg, version {number}",
            "task": "facts",
            "reference": REFERENCE,
            "split": "train" if number < 4 else "held-out",
        }
        for number in range(8)
    ]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def measured(folder: Path, *overrides: str) -> Path:
    settings = (*SETTINGS, f"prompts.source={prompts(folder)}", *overrides)
    config = load_config("tiny", "rlrf", settings, {})
    run_loop(Job(config=config, lake=folder / "lake", name="a"), Silent(), StopSignal())
    return folder / "lake"


def rows(lake: Path, table: str) -> pl.DataFrame:
    with closing(open_run(lake, "a")) as run:
        return run.scan(table).collect()


def numbers(lake: Path) -> dict[str, tuple[float, int]]:
    found = rows(lake, "evaluations").filter(pl.col("benchmark") == "held-out")
    return {metric: (value, n) for metric, value, n in found[["metric", "value", "n"]].iter_rows()}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("facts"))


def test_score_is_mean_over_answers(lake):
    found = numbers(lake)
    # The reference supports one of three statements, then two of two: a repeated one counts once.
    assert found["fact_score"] == (pytest.approx((1 / 3 + 1) / 2), 2)
    assert found["facts_supported"] == (1.5, 2)
    assert found["facts_not_supported"] == (0.5, 2)
    assert found["facts_irrelevant"] == (0.5, 2)
    assert found["abstained"] == (0.5, 4)
    assert found["facts_unread"] == (0.0, 4)
    assert "sentence_match" not in found


def test_statement_is_a_row(lake):
    claims = rows(lake, "claims").sort("candidate_id", "place")
    assert claims.height == 5
    assert set(claims["verdict"]) == {"supported", "not_supported", "irrelevant"}
    assert set(claims["reason"]) == {"By its words."}
    assert set(claims["status"]) == {"scored"}
    broken = rows(lake, "breakdowns")
    assert set(broken["status"]) == {"scored"}


def test_statements_beyond_most(tmp_path):
    lake = measured(tmp_path, "facts.most=1")
    claims = rows(lake, "claims")
    assert sorted(claims["status"]) == ["beyond_most"] * 3 + ["scored"] * 2
    assert numbers(lake)["fact_score"] == (1.0, 2)


def test_unread_replies_not_zero(tmp_path):
    lake = measured(
        tmp_path, "critic.engine.script=judges:unsure_judge", "smoke.max_parse_failures=1"
    )
    claims = rows(lake, "claims")
    assert set(claims["status"]) == {"missing"}
    assert set(claims["verdict"]) == {None}
    assert set(claims["attempts"]) == {2}
    found = numbers(lake)
    assert "fact_score" not in found
    assert found["facts_unread"] == (1.25, 4)
    told = CliRunner().invoke(app, ["resume", "a", "--lake", str(lake), "--retry-unscored"])
    assert told.exit_code == 0, told.stderr
    assert rows(lake, "claims").filter(pl.col("attempts") == 4).height == 5
