"""Optimisation skips prompts whose answers all have the same score."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judges import GOOD, write_reviewed
from world import Silent, turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.loop.stages.select_prompts import filter_variance, variance_fate
from lpfloop.policies.engines.engine import ScoreBatch, ScoreResult

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=judges:digits",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=tiny",
    "prompts.chunk=3",
    "prompts.variance.k=6",
    "prompts.dev_share=0",
    "iterations=1",
    "recipe.n=2",
    "training.min_pairs=1000000",
)


class Digits:
    """A reward model that likes high digits, and cannot read answers about the number 3."""

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        for batch in batches:
            said = [[m.content for m in request.messages] for request in batch.requests]
            scores = (None if "number 3." in one[0] else int(one[-1]) / 10 for one in said)
            yield ScoreResult(key=batch.key, answers=tuple(scores))

    def close(self) -> None:
        pass


@pytest.fixture
def scored(monkeypatch) -> None:
    monkeypatch.setattr("lpfloop.loop.run.models.open_scorer", lambda *_, **__: Digits())


def job(folder: Path, *overrides: str, texts=GOOD, name: str = "a") -> Job:
    source = f"prompts.source={write_reviewed(folder, *texts)}"
    config = load_config("tiny", "reward-only", (*SETTINGS, source, *overrides), {})
    return Job(config=config, lake=folder, name=name)


@pytest.mark.usefixtures("scored")
def test_prompts_with_equal_rewards_are_dropped(tmp_path):
    with pytest.raises(NothingToTrainOn):
        run_loop(job(tmp_path, "prompts.variance.margin=0.0001"), Silent(), StopSignal())
    reader = open_run(tmp_path, "a")
    account = status(reader, 1)["iterations"][0]["filter_counts"][0]
    stages = {s.stage: s for s in reader.journal.stages() if s.iteration == 1}
    rewarded = reader.scan("rewards", iteration=1).collect().height
    reader.close()
    assert account["filter"] == "prompts:variance"
    found = {o["outcome"]: o["count"] for o in account["outcomes"]}
    assert found == {"kept": 4, "kept: unmeasured": 1, "low_variance": 3}
    first = ["sample:variance", "reward:sample:variance", "prompts:variance", "sample"]
    assert [*stages][:4] == first
    assert stages["sample"].totals["rows"] == 2 * 5
    assert rewarded >= 6 * len(GOOD)


@pytest.mark.usefixtures("scored")
def test_an_unreachable_margin_ends_it(tmp_path):
    with (
        turn(job(tmp_path, "prompts.variance.margin=100", texts=GOOD[4:])) as it,
        pytest.raises(NothingToTrainOn, match=r"prompts\.variance\.margin \(100\.0\)"),
    ):
        filter_variance(it, it.prompts("preference"), None)
    unmeasured = (*SETTINGS, "reward.model=none", "prompts.variance.margin=1")
    config = load_config("tiny", "rlrf", unmeasured, {})
    with pytest.raises(ConfigError, match=r"prompts\.variance\.margin needs one"):
        run_loop(Job(config=config, lake=tmp_path / "b", name="b"), Silent(), StopSignal())
    assert not (tmp_path / "b").exists()


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9), st.floats(1e-3, 1e3))
def test_variance(scores, margin):
    variance = fmean((score - fmean(scores)) ** 2 for score in scores)
    if abs(variance - margin) > 1e-6 * margin:
        assert variance_fate(scores, margin) == ("low_variance" if variance < margin else "kept")
    assert variance_fate(scores[:1], margin) == variance_fate([], margin) == "kept: unmeasured"
