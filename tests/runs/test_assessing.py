"""lpfloop assesses answers as configured; without assessment, a run's digest stays the same."""

import json
import math
import shutil
from pathlib import Path

import polars as pl
import pytest
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.statistics.intervals import mean_error
from lpfloop.loop.run.stop import StopSignal

SCRIPTED = (
    "iterations=0",
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.kind=verifier",
    "prompts.max_test=12",
    "prompts.max_dev=12",
    "prompts.chunk=5",
    "reward.model=none",
)
ALPACA = (
    "annotation.pool=tiny",
    *(
        f"annotation.{role}.{setting}"
        for role in ("strong", "medium", "weak")
        for setting in (
            "model=tiny",
            "engine.kind=scripted",
            f"engine.script=lpfloop.loop.tiny.annotators:{role}",
        )
    ),
)
REFERRED = (*ALPACA, "assessment.reference=tiny")
SCORED = "assessment.oracle=scripts:half_oracle"


def job(lake: Path, *overrides: str, name: str = "a") -> Job:
    config = load_config("tiny", "rlrf", (*SCRIPTED, *overrides), {})
    return Job(config=config, lake=lake, name=name)


def done(wanted: Job) -> Job:
    run_loop(wanted, Silent(), StopSignal())
    return wanted


def rows(lake: Path, table: str, name: str = "a") -> pl.DataFrame:
    run = open_run(lake, name)
    frame = run.scan(table).collect()
    run.close()
    return frame


def numbers(lake: Path, name: str = "a") -> dict[str, tuple[float, float, int]]:
    found = rows(lake, "evaluations", name).select("metric", "value", "stderr", "n")
    return {metric: tuple(rest) for metric, *rest in found.iter_rows()}


def committed(lake: Path, name: str = "a") -> dict[str, str]:
    run = open_run(lake, name)
    found = {part.unit: part.sha256 for part in run.journal.parts()}
    run.close()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A lake with a run compared with the tiny world's outputs, and scored by an oracle."""
    lake = tmp_path_factory.mktemp("assessed")
    done(job(lake, *REFERRED, SCORED))
    return lake


@pytest.fixture
def lake(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "lake", ignore=shutil.ignore_patterns("*.sock")))


def test_comparison_with_the_references_outputs(made):
    preferences = rows(made, "preferences")
    assert preferences.height == 12
    candidates = rows(made, "candidates")
    references = candidates.filter(pl.col("kind") == "external")
    assert set(preferences["first_id"]) == set(references["candidate_id"])
    assert references["model"].unique().to_list() == ["tiny"]
    read = preferences["preferred"].drop_nulls().to_list()
    won = [{"first": 0.0, "tie": 0.5, "second": 1.0}[preferred] for preferred in read]
    value, error, n = numbers(made)["win_rate"]
    assert n == len(won)
    assert math.isclose(value, sum(won) / n)
    clusters = dict(rows(made, "prompts").select("prompt_id", "cluster").iter_rows())
    asked = [clusters[p] for p in preferences.drop_nulls("preferred")["prompt_id"]]
    assert math.isclose(error, mean_error(won, asked))
    controlled = numbers(made)["length_controlled_win_rate"]
    assert 0 <= controlled[0] <= 1
    assert controlled[2] == n


def test_score_of_an_oracle(made):
    scores = rows(made, "scores").filter(pl.col("metric") == "true_score")
    asked = rows(made, "prompts").select("prompt_id", "messages")
    texts = rows(made, "candidates").select("candidate_id", "text")
    found = scores.join(texts, on="candidate_id").join(asked, on="prompt_id")
    assert 0 < found.height <= 12
    for score in found.iter_rows(named=True):
        assert score["value"] == len(score["text"])
        assert len(score["messages"][0]["content"]) % 2 == 1
    assert numbers(made)["true_score"][2] == found.height


def test_assessment_leaves_other_rows(lake):
    before = committed(lake)
    done(job(lake, name="plain"))
    assert committed(lake, "plain").items() <= before.items()
    done(job(lake, *REFERRED, SCORED))
    assert committed(lake) == before


@pytest.fixture
def few(tmp_path) -> str:
    """Some prompts outside the shipped worlds."""
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"prompt": "Question {n}?"}}\n' for n in range(40)))
    return f"prompts.source={path}"


def test_comparison_with_m_0(tmp_path):
    settings = (*ALPACA, "assessment.reference=initial", "prompts.max_dev=6")
    done(job(tmp_path, *settings))
    preferences = rows(tmp_path, "preferences")
    assert preferences["preferred"].unique().to_list() == ["tie"]
    assert preferences["text"].unique().to_list() == [""]
    rates = rows(tmp_path, "evaluations").filter(pl.col("metric") == "win_rate")
    assert set(rates["benchmark"]) == {"dev", "held-out"}
    assert set(rates["value"]) == {0.5}
    assert preferences.height == rates["n"].sum()
    assert rows(tmp_path, "candidates").filter(pl.col("kind") == "external").is_empty()


def outputs(path: Path, count: int = 20) -> Path:
    held_out = [p for p in tiny_prompts() if p.split == "held-out"][:count]
    told = [
        {"instruction": prompt.instruction, "output": f"Output {n}.", "generator": "davinci"}
        for n, prompt in enumerate(held_out)
    ]
    path.write_text(json.dumps(told))
    return path


def test_reference_outputs_of_a_file(tmp_path, few):
    """AlpacaEval's file contains both the prompts and the reference."""
    lake, path = tmp_path / "lake", outputs(tmp_path / "outputs.json")
    held_out = f"prompts.held_out={outputs(tmp_path / 'held_out.json')}"
    lacking = f"assessment.reference={outputs(tmp_path / 'few.json', count=3)}"
    with pytest.raises(InputError, match="lacks an output"):
        done(job(lake, *ALPACA, few, held_out, lacking))
    assert not lake.exists()
    done(job(lake, *ALPACA, few, held_out, f"assessment.reference={path}"))
    found = rows(lake, "candidates").filter(pl.col("kind") == "external")
    assert set(found["text"]) <= {f"Output {n}." for n in range(20)}
    assert found["model"].unique().to_list() == ["davinci"]
