"""Prompts without room for an answer are counted, and no step is made for them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import make_online_world, quark_job, told_steps, write_online_prompts

from lpfloop.policies.trainers.step_files import LEFT_OUT, read_step
from lpfloop.policies.trainers.train_model import train
from lpfloop.stores.records import Candidate

pytestmark = pytest.mark.model


def test_prompts_without_room(tmp_path: Path) -> None:
    world = make_online_world(tmp_path / "world")
    short = [f"Count from {number}." for number in range(6)]
    long = [f"Count from {number} " * 40 for number in range(6)]
    data = write_online_prompts(tmp_path / "prompts.parquet", [*short, *long])
    settings = {"rollouts": 6, "epochs": 2, "max_steps": None, "publish_every": 2}
    job = replace(quark_job(world, tmp_path / "work", **settings), data=(data,))
    result = train(job, log=tmp_path / "log")
    # The parent has planned two visits to each of 12 prompts.
    assert result.steps == 4
    steps = told_steps(job.output)
    assert [step[LEFT_OUT] for step in steps] == [6] * 4
    assert ["loss" in step for step in steps] == [True, True, False, False]
    visits = Counter(
        name
        for step in range(1, 5)
        for name in read_step(job.output, step)[Candidate].column("prompt_id").to_pylist()
    )
    assert visits == {f"prompt-{number}": 2 for number in range(6)}
    assert steps[1]["learning_rate"] == 0.0
    assert "6 of 12 prompts" in (tmp_path / "log").read_text()
