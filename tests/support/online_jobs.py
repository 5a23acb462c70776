"""Small jobs of online methods: a random policy, a reward model of its family, twelve prompts."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from trainings import TURN, make_model, turn

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import QuarkTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.trainers.trainer_job import OnlineJob, TrainJob


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
