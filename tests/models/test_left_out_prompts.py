"""A training counts prompts that it cannot sample, and makes no step for them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import make_online_world, quark_job, told_steps, write_online_prompts
from transformers import AutoTokenizer

from lpfloop.policies.trainers.step_files import LEFT_OUT, REFUSED, read_refused_prompts, read_step
from lpfloop.policies.trainers.train_model import TrainingError, train
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


REFUSAL = "{% if 'forbidden' in messages[0].content %}{{ raise_exception('not that') }}{% endif %}"


def test_prompts_that_the_template_refuses(tmp_path: Path) -> None:
    world = make_online_world(tmp_path / "world")
    tokenizer = AutoTokenizer.from_pretrained(world / "model")
    tokenizer.chat_template = REFUSAL + tokenizer.chat_template
    tokenizer.save_pretrained(world / "model")
    questions = ["Count from 1.", "Say what is forbidden.", "Count from 3.", "Count from 4."]
    data = write_online_prompts(tmp_path / "prompts.parquet", questions)
    settings = {"rollouts": 4, "epochs": 2, "max_steps": None}
    job = replace(quark_job(world, tmp_path / "work", **settings), data=(data,))
    assert train(job, log=tmp_path / "log").steps == 2
    steps = told_steps(job.output)
    assert [step[REFUSED] for step in steps] == [1, 1]
    assert ["loss" in step for step in steps] == [True, False]
    [(prompt, why)] = read_refused_prompts(job.output).items()
    assert (prompt, "not that" in why) == ("prompt-1", True)
    assert "refuses 1 of 4 prompts" in (tmp_path / "log").read_text()
    write_online_prompts(data, ["Say what is forbidden."])
    again = replace(job, output=tmp_path / "none")
    with pytest.raises(TrainingError, match="no prompt can be sampled"):
        train(again, log=tmp_path / "log")
