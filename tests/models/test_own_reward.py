"""Online methods with a user's reward function instead of a reward model."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from trainings import make_online_world, quark_job

from lpfloop.configs.methods import PPOTraining
from lpfloop.loop.stages.training_files import prompts_file
from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Candidate, Message, Prompt, Reward

pytestmark = pytest.mark.model

LENGTHS = """
def score(prompts, texts):
    return [None if p.reference is None else len(t) + 1000.0 * len(p.reference)
            for p, t in zip(prompts, texts)]
"""
ASKED = [
    Prompt(
        prompt_id=f"prompt-{number}",
        task="general",
        split="train",
        messages=(Message(role="user", content=f"Count from {number}."),),
        reference=None if number == 0 else "x" * number,
        checks=(),
        source="here",
    )
    for number in range(12)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_online_world(tmp_path_factory.mktemp("world"))


def own(world: Path, output: Path, code: str = LENGTHS) -> TrainJob:
    file = output.parent / "mine.py"
    file.write_text(code)
    place = f"{file}:score"
    job = quark_job(world, output, max_steps=2)
    assert job.online is not None
    online = replace(job.online, function=place, reward_id=scorer_digest(place))
    prompts = prompts_file(output.parent / "asked", ASKED)
    return replace(job, reward=None, online=online, data=(prompts,))


def test_ppo(world: Path, tmp_path: Path):
    chosen = {"rollouts": 8, "batch_size": 4, "micro_batch_size": 4, "max_length": 64}
    settings = PPOTraining.model_validate(
        {**chosen, "max_steps": 2, "learning_rate": 1e-3, "warmup_steps": 0}
    )
    job = replace(own(world, tmp_path / "work"), method="ppo", settings=settings)
    assert job.value_source == job.model
    assert train(job, log=tmp_path / "log").steps == 2
    tables = read_step(job.output, 1)
    texts = pl.DataFrame(tables[Candidate]).select("candidate_id", "text")
    for row in pl.DataFrame(tables[Reward]).join(texts, on="candidate_id").to_dicts():
        number = int(row["prompt_id"].removeprefix("prompt-"))
        wanted = None if number == 0 else len(row["text"]) + 1000.0 * number
        assert (row["score"], row["status"]) == (wanted, "scored" if number else "no_score")


def test_bad_score(world: Path, tmp_path: Path):
    job = own(world, tmp_path / "work", "def score(prompts, texts): return [float('nan')]\n")
    with pytest.raises(TrainingError, match="returned 1 scores for 8 texts") as caught:
        train(job, log=tmp_path / "log")
    assert caught.value.kind == "refused"
