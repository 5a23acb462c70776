"""Small jobs of online methods: a random policy, a reward model of its family, twelve prompts."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from trainings import TURN, make_model, turn

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import QuarkTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.trainers.online_job import OnlineJob
from lpfloop.policies.trainers.trainer_job import SETTINGS, Method, TrainJob
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Message, Prompt
from lpfloop.stores.schemas import to_table


def make_online_world(folder: Path) -> Path:
    """Make a policy, a reward model with the policy's tokenizer, and prompts."""
    from transformers import AutoModelForSequenceClassification

    policy = make_model(folder / "model")
    make_model(folder / "reward", seed=7)
    scorer = AutoModelForSequenceClassification.from_pretrained(folder / "reward", num_labels=1)
    scorer.save_pretrained(folder / "reward")
    columns = {
        "prompt_id": pa.array([f"prompt-{i}" for i in range(12)]),
        "messages": pa.array([turn("user", f"Count from {i}.") for i in range(12)], TURN),
    }
    pq.write_table(pa.table(columns), folder / "prompts.parquet")
    return policy.parent


def quark_job(world: Path, output: Path, **settings: object) -> TrainJob:
    """Return a job of a few steps of Quark."""
    chosen: dict[str, object] = {
        "rollouts": 8,
        "batch_size": 4,
        "micro_batch_size": 2,
        "max_steps": 4,
        "max_length": 64,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
    }
    return TrainJob(
        method="quark",
        model=world / "model",
        reference=None,
        data=(world / "prompts.parquet",),
        output=output,
        settings=QuarkTraining.model_validate({**chosen, **settings}),
        seed=11,
        reward=world / "reward",
        online=OnlineJob(
            iteration=1,
            identity="the steps of a test",
            root_seed=3,
            policy="M_0",
            model="model",
            reward_id="r",
            sampling=SamplingConfig(temperature=1.0, max_tokens=8),
            engine=EngineConfig(kind="transformers"),
            reward=RewardConfig(model="r", batch_size=8, max_length=64),
        ),
    )


def group_job(world: Path, output: Path, method: Method, **settings: object) -> TrainJob:
    """Return a job of a few steps of a method that compares a prompt's answers."""
    chosen: dict[str, object] = {
        "prompts_per_step": 3,
        "group": 4,
        "batch_size": 2 if method == "online_dpo" else 6,
        "micro_batch_size": 2,
        "max_steps": 4,
        "max_length": 64,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
    }
    made = SETTINGS[method].model_validate(chosen | settings)
    return replace(quark_job(world, output), method=method, settings=made)


def rewarded(job: TrainJob, code: str) -> TrainJob:
    """Let a function of one's own reward a job's answers: the code of its `score`."""
    folder = job.output.parent
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mine.py"
    file.write_text(code)
    asked = [
        Prompt(
            prompt_id=f"prompt-{number}",
            task="general",
            split="train",
            messages=(Message(role="user", content=f"Count from {number}."),),
            reference=None,
            checks=(),
            source="here",
        )
        for number in range(12)
    ]
    pq.write_table(to_table(Prompt, asked), folder / "asked.parquet")
    place = f"{file}:score"
    online = job.online
    assert online is not None
    online = replace(online, function=place, reward_id=scorer_digest(place))
    return replace(job, reward=None, online=online, data=(folder / "asked.parquet",))
