"""Online trainings of the tiny world's models: a few steps over a handful of prompts."""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from trainings import TURN, turn

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import PPOTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.trainers.online_job import OnlineJob
from lpfloop.policies.trainers.step_files import REFERENCE_ENDED, REFERENCE_REWARD
from lpfloop.policies.trainers.trainer_job import TrainJob

QUESTIONS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "Sort these numbers: 7, 2, 5.",
    "Anna has 12 pears. She eats 2 pears and gives 5 away. How many pears are left?",
    "Name three animals.",
    "What is 12 plus 30?",
    "Write the word cat twice.",
)

PPO = PPOTraining(
    rollouts=8, batch_size=4, micro_batch_size=2, max_steps=4, max_length=256, learning_rate=1e-4,
    warmup_steps=1, kl_coef=0.05,
)  # fmt: skip


def write_prompts(path: Path, questions: tuple[str, ...] = QUESTIONS) -> Path:
    """Write prompts as online methods read them."""
    columns = {
        "prompt_id": pa.array([f"prompt-{i}" for i in range(len(questions))]),
        "messages": pa.array([turn("user", question) for question in questions], TURN),
    }
    pq.write_table(pa.table(columns), path)
    return path


def referenced(path: Path) -> Path:
    """Add to each prompt the reward of a reference answer: 0.5, 0, -0.5; every third is cut off."""
    table = pq.read_table(path)
    places = range(table.num_rows)
    table = table.append_column(REFERENCE_REWARD, pa.array([0.5 - i / 2 for i in places]))
    table = table.append_column(REFERENCE_ENDED, pa.array([i % 3 != 0 for i in places]))
    pq.write_table(table, path)
    return path


def ppo_job(
    output: Path,
    *,
    policy: Path,
    reward: Path,
    settings: PPOTraining = PPO,
    engine: str = "transformers",
) -> TrainJob:
    """A training by PPO with the work folder `output/work`."""
    output.mkdir(exist_ok=True)
    return TrainJob(
        method="ppo", model=policy, reference=None, reward=reward, settings=settings, seed=11,
        data=(write_prompts(output / "prompts.parquet"),), output=output / "work",
        online=OnlineJob(
            iteration=1, identity="stage", root_seed=5, policy="M0", model="tiny", reward_id="r",
            sampling=SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=24),
            engine=EngineConfig(kind=engine, dtype="float32", max_model_len=256, cpu_threads=1),
            reward=RewardConfig(),
        ),
    )  # fmt: skip


def told_steps(work: Path) -> list[Mapping[str, float]]:
    """The numbers of the steps that a training told of, without its times."""
    lines = [line for line in (work / "metrics.jsonl").read_text().splitlines() if line]
    rows = [json.loads(line) for line in lines]
    return [
        {k: v for k, v in row["metrics"].items() if not k.startswith("seconds/")}
        for row in rows
        if row["event"] == "step"
    ]
