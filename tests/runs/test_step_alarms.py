"""Alarms by step, from the numbers of PPO and Quark during training."""

from functools import partial
from pathlib import Path

import pytest
from online import STEPS, online_config, train_online
from world import Silent, write_prompts

import lpfloop.loop.stages.publish
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.alarm_list import alarms, code_of
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages import step_alarms
from lpfloop.policies.trainers.job import TrainJob


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train with the fake, whose KL is 0.1; the list contains the steps that it made."""
    steps: list[int] = []

    def note(_job: TrainJob, step: int) -> None:
        steps.append(step)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train_online, before=note))
    return steps


def run(lake: Path, prompts: Path):
    """Run PPO whose steps have 5 tokens an answer and a KL of 0.1: 0.02 nats a token."""
    config = online_config(prompts)
    run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return open_run(lake, "a")


def test_alarm_of_a_step(tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_alarms, "WINDOW", 2)
    monkeypatch.setattr(step_alarms, "MOST_KL", 0.01)
    reader = run(tmp_path, write_prompts(tmp_path))
    (found,) = alarms(reader)
    assert (found.kind, found.name, found.stops) == ("kl", "step 3", False)
    assert code_of(found).code == "W-KL"
    assert made == list(range(1, STEPS + 1))
    reader.close()
