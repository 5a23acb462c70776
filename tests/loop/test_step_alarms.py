"""Alarms by step: what the numbers of PPO and Quark say while they train, and when that stops."""

import random
from functools import partial
from pathlib import Path

import pytest
from crashing import Silent, write_prompts
from online_steps import STEPS, online_config, train

import lpfloop.loop.stages.publish
from lpfloop.configs.alarms import AlarmsConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.alarm_list import alarms
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.outcomes import AlarmStopError
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.step_alarms import findings
from lpfloop.policies.trainers.train_model import TrainJob

CALM = {"reward": 1.0, "kl": 2.0, "length": 50.0, "entropy": 2.0, "missing_eos": 0.1}


def first_of(kind: str, history: list[dict[str, float]], config: AlarmsConfig) -> int | None:
    """Return the first step at which a kind of alarm is raised."""
    steps = range(1, len(history) + 1)
    return next((n for n in steps if kind in {f.kind for f in findings(history[:n], config)}), None)


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("kl", {"kl": 30.0}),
        ("missing_eos", {"missing_eos": 0.6}),
        ("entropy", {"entropy": 0.3}),
        ("length", {"length": 110.0}),
    ],
)
def test_what_a_step_raises_and_what_lies_within_the_limits(kind: str, after: dict[str, float]):
    config = AlarmsConfig(step_window=2)
    history = [CALM] * 4 + [CALM | after] * 3
    found = {f.kind: f for f in findings(history, config)}
    assert found.keys() == {kind}
    assert first_of(kind, history, config) == 6
    assert not list(findings([CALM] * 9, config))
    assert not list(findings([CALM | after] * 2, config)), "there is nothing to compare with yet"


def test_answers_that_were_cut_off_from_the_start_are_no_news():
    assert not list(findings([CALM | {"missing_eos": 0.6}] * 9, AlarmsConfig(step_window=2)))


def test_a_reward_that_falls_below_its_start_is_told_and_noise_is_not():
    config = AlarmsConfig()
    draw = random.Random(3)
    risen = [0.1 * n for n in range(10)]
    fallen = [CALM | {"reward": r + draw.gauss(0, 0.02)} for r in [*risen, *(-r for r in risen)]]
    assert 10 < (first_of("reward", fallen, config) or 0) <= 20
    raised = 0
    for seed in range(100):
        draw = random.Random(seed)
        flat = [CALM | {"reward": draw.gauss(0, 1.0)} for _ in range(60)]
        raised += first_of("reward", flat, config) is not None
    assert raised <= 5


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train by the stand-in, whose KL is 0.1; the list says which steps it made."""
    steps: list[int] = []

    def note(_job: TrainJob, step: int) -> None:
        steps.append(step)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train, before=note))
    return steps


def run(lake: Path, prompts: Path, *overrides: str):
    """Run PPO whose steps have 5 tokens an answer and a KL of 0.1: 0.02 nats a token."""
    config = online_config(prompts, "alarms.step_window=2", "alarms.kl=0.01", *overrides)
    run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return open_run(lake, "a")


def test_an_alarm_by_step_is_told_once_and_stands_in_the_lake(tmp_path: Path, made: list[int]):
    reader = run(tmp_path, write_prompts(tmp_path))
    (found,) = alarms(reader)
    assert (found.kind, found.name, found.stops) == ("kl", "step 3", False)
    assert "step 3 of 7 of the training of M_1 by ppo" in found.told
    assert [event["name"] for event in reader.journal.events("alarm")] == ["step 3"]
    assert made == list(range(1, STEPS + 1))
    reader.close()


def test_one_that_stops_ends_the_run_after_its_step_until_it_is_to_go_on(
    tmp_path: Path, made: list[int]
):
    prompts = write_prompts(tmp_path)
    for _ in range(2):
        with pytest.raises(AlarmStopError, match=r"iteration 1: .*--on-alarm continue"):
            run(tmp_path, prompts, "alarms.step_stops=true")
        assert made == [1, 2, 3]
    reader = run(tmp_path, prompts, "alarms.step_stops=true", "alarms.on_alarm=continue")
    assert sorted(set(made)) == list(range(1, STEPS + 1))
    (found,) = alarms(reader)
    assert found.stops
    reader.close()
