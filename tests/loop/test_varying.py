"""Prompts whose answers are all worth the same are left out of what a policy is optimised on."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
from crashing import Silent
from hypothesis import given
from hypothesis import strategies as st
from reviews import GOOD, write_prompts
from turns import turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.variance_filter import fate, varied
from lpfloop.policies.engines.engine import ScoreBatch, ScoreResult

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=reviews:digits",
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
    """A reward model that likes high digits, and cannot read what `unread` says."""

    def __init__(self, unread: Callable[[str], bool]) -> None:
        self._unread = unread

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        for batch in batches:
            scores = [
                self._score(r.messages[0].content, r.messages[-1].content) for r in batch.requests
            ]
            yield ScoreResult(key=batch.key, scores=tuple(scores))

    def _score(self, prompt: str, answer: str) -> float | None:
        return None if self._unread(prompt) else int(answer) / 10

    def close(self) -> None:
        pass


@pytest.fixture
def scored(monkeypatch) -> None:
    """Let a stand-in score that reads everything but what is said about the number 3."""
    digits = Digits(lambda prompt: "number 3." in prompt)
    monkeypatch.setattr("lpfloop.loop.run.models.open_scorer", lambda *_, **__: digits)


def job(folder: Path, *overrides: str, texts=GOOD, name: str = "a") -> Job:
    source = f"prompts.source={write_prompts(folder, *texts)}"
    config = load_config("tiny", "reward-only", (*SETTINGS, source, *overrides), {})
    return Job(config=config, lake=folder, name=name)


def numbers(prompts) -> set[int]:
    return {int(re.findall(r"\d+", p.instruction)[0]) for chunk in prompts.chunks for p in chunk}


@pytest.mark.usefixtures("scored")
def test_prompts_with_equal_rewards_are_dropped_and_those_without_rewards_kept(tmp_path):
    with turn(job(tmp_path, "prompts.variance.margin=0.0001")) as it:
        left = varied(it, it.prompts(), None)
        again = varied(it, it.prompts(), None)
    assert numbers(left) == {0, 2, 4, 6, 3}
    assert left == again
    assert [len(chunk) for chunk in left.chunks] == [3, 2]
    reader = open_run(tmp_path, "a")
    (account,) = status(reader, 1)["iterations"][0]["receipts"]
    assert account["filter"] == "prompts:variance"
    found = {o["outcome"]: o["count"] for o in account["outcomes"]}
    assert found == {"kept": 4, "kept: unmeasured": 1, "low_variance": 3}
    assert reader.scan("candidates", iteration=1).collect().height == 6 * len(GOOD)
    assert reader.scan("rewards", iteration=1).collect().height == 6 * len(GOOD)
    reader.close()


def test_without_a_margin_the_prompts_are_the_same_and_nothing_is_asked(tmp_path):
    with turn(job(tmp_path)) as it:
        prompts = it.prompts()
        assert varied(it, prompts, None) is prompts
        assert it.run.store.journal.stages() == []


@pytest.mark.usefixtures("scored")
def test_a_recipe_samples_only_the_prompts_that_are_left(tmp_path):
    with pytest.raises(NothingToTrainOn):
        run_loop(job(tmp_path, "prompts.variance.margin=0.0001"), Silent(), StopSignal())
    reader = open_run(tmp_path, "a")
    stages = {s.stage: s for s in reader.journal.stages() if s.iteration == 1}
    assert [*stages][:4] == [
        "sample:variance",
        "reward:sample:variance",
        "prompts:variance",
        "sample",
    ]
    assert stages["sample"].totals["rows"] == 2 * 5
    reader.close()


@pytest.mark.usefixtures("scored")
def test_a_recipe_draws_as_many_answers_as_were_measured_and_draws_them_anew(tmp_path):
    with turn(job(tmp_path, "prompts.variance.margin=0.0001", texts=GOOD[:3:2])) as it:
        left = varied(it, it.prompts(), None)
        assert left == it.prompts()
        sample(it, left, n=6)
    reader = open_run(tmp_path, "a")
    drawn = reader.scan("candidates", iteration=1).collect()
    assert drawn["candidate_id"].n_unique() == drawn["seed"].n_unique() == 2 * 2 * 6
    reader.close()


@pytest.mark.usefixtures("scored")
def test_a_margin_that_no_prompt_reaches_ends_the_iteration_with_its_name(tmp_path):
    with (
        turn(job(tmp_path, "prompts.variance.margin=100", texts=GOOD[4:])) as it,
        pytest.raises(NothingToTrainOn, match=r"prompts\.variance\.margin \(100\.0\)"),
    ):
        varied(it, it.prompts("preference"), None)
    unmeasured = (*SETTINGS, "reward.model=none", "prompts.variance.margin=1")
    with pytest.raises(ConfigError, match=r"prompts\.variance\.margin needs one"):
        run_loop(
            Job(config=load_config("tiny", "rlrf", unmeasured, {}), lake=tmp_path / "b", name="b"),
            Silent(),
            StopSignal(),
        )
    assert not (tmp_path / "b").exists()


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9), st.floats(1e-3, 1e3))
def test_the_variance_is_the_mean_squared_distance_from_the_mean(scores, margin):
    variance = fmean((score - fmean(scores)) ** 2 for score in scores)
    if abs(variance - margin) > 1e-6 * margin:
        assert fate(scores, margin) == ("low_variance" if variance < margin else "kept")
    assert fate(scores[:1], margin) == fate([], margin) == "kept: unmeasured"


def test_recipes_that_optimise_no_policy_refuse_a_margin(tmp_path):
    config = load_config("tiny", "dpo", ("prompts.variance.margin=1",), {})
    wanted = Job(config=config, lake=tmp_path, name="a")
    with pytest.raises(ConfigError, match="dpo optimises no policy by a reward"), turn(wanted):
        pass
    assert not (tmp_path / "runs").exists()
