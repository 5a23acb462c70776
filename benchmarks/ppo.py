# pyright: basic
"""How fast a PPO step is, where its time goes, and the same step in TRL's RLOO trainer.

    python benchmarks/ppo.py                       # the tiny models, any machine
    python benchmarks/ppo.py --size smol           # SmolLM2-135M, after `lpfloop prepare smol`
    python benchmarks/ppo.py --size 1b --steps 20  # a random Llama of 1 B weights, on a GPU
    python benchmarks/ppo.py --size 1b --handover  # the way of weights to the sampler

Both draw the same number of answers per step from the same prompts, score them with the same reward
model, and take the same number of optimizer steps with the same batch size; RLOO trains no value
model. The first step of each, which loads and warms up, is left out.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import PPOTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.training import LoRAConfig
from lpfloop.loop.smol.weights import prepared_folder
from lpfloop.loop.tiny import world
from lpfloop.policies.devices import cpu_type
from lpfloop.policies.engines.weight_files import weight_files
from lpfloop.policies.online.networks import SeparateNetworks
from lpfloop.policies.online.sampler import write_weights
from lpfloop.policies.online.shared_body import SharedBody
from lpfloop.policies.trainers.checks import parameters
from lpfloop.policies.trainers.job import OnlineJob, TrainJob
from lpfloop.policies.trainers.shm_weights import memory_folder
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.stores.durable import make_folder

TINY = Path(world.__file__).parent / "models"
MAIN = ("weights", "generation", "scoring", "logprobs", "optimisation")
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second of the matrix units, by a word in the device's name."""

LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
}


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("tiny", "smol", "1b"), default="tiny")
    parser.add_argument("--engine", choices=("auto", "vllm", "transformers"), default="auto")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--no-rloo", action="store_true")
    parser.add_argument("--handover", action="store_true", help="measure this alone")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters; 0: all weights")
    return parser.parse_args()


def models(size: str, folder: Path) -> tuple[Path, Path]:
    """Return a policy and a reward model.

    Models of 1b are random, with the tiny tokenizer; smol's reward model has a random last layer.
    """
    if size == "tiny":
        return TINY / "policy", TINY / "reward"
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    if size == "smol":
        policy, reward = prepared_folder(), folder / "reward"
        shutil.copytree(policy, reward, ignore=shutil.ignore_patterns("*.safetensors"))
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(policy, num_labels=1)
        model.save_pretrained(reward)
        return policy, reward
    kinds = {"policy": AutoModelForCausalLM, "reward": AutoModelForSequenceClassification}
    for name, kind in kinds.items():
        shutil.copytree(TINY / name, folder / name, ignore=shutil.ignore_patterns("*.safetensors"))
        config = AutoConfig.from_pretrained(TINY / name, **LLAMA_1B)
        torch.manual_seed(0)
        kind.from_config(config, dtype=torch.bfloat16).save_pretrained(folder / name)
    return folder / "policy", folder / "reward"


def job_of(args: argparse.Namespace, policy: Path, reward: Path, folder: Path) -> TrainJob:
    """Return the PPO training."""
    asked = questions(args.rollouts * 2)
    turns = [[{"role": "user", "content": q}] for q in asked]
    ids = [str(i) for i in range(len(asked))]
    pq.write_table(pa.table({"prompt_id": ids, "messages": turns}), folder / "prompts.parquet")
    return TrainJob(
        method="ppo",
        model=policy,
        reference=None,
        reward=reward,
        data=(folder / "prompts.parquet",),
        output=folder / "work",
        seed=0,
        fit=TrainingFit(lora=LoRAConfig(r=args.lora)) if args.lora else TrainingFit(),
        settings=PPOTraining(
            rollouts=args.rollouts,
            batch_size=args.batch,
            micro_batch_size=args.micro,
            max_steps=args.steps,
            max_length=512,
            learning_rate=1e-6,
        ),
        online=OnlineJob(
            iteration=1,
            identity="benchmark",
            root_seed=0,
            policy="policy",
            model=str(policy),
            reward_id="reward",
            sampling=SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=args.tokens),
            engine=EngineConfig(kind=args.engine, max_model_len=512),
            reward=RewardConfig(batch_size=args.micro * 4),
        ),
    )


def handover(job: TrainJob) -> None:
    """Print the time to write and to read a policy's weights, on disk and in memory."""
    make_folder(job.output)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = SharedBody if job.fit.adapts else SeparateNetworks
    networks = kind(job, device, valued=False)
    print("| way | write, s | read, s |\n| --- | ---: | ---: |")
    with memory_folder(job.output, parameters(job.model) * 4) as memory:
        ways = {"disk": job.folder("rollout"), "memory": memory}
        for name, folder in ways.items():
            if folder is None:
                print(f"| {name} | no room | |")
                continue
            make_folder(folder)
            took = [_seconds(folder, networks) for _ in range(job.settings.max_steps or 1)]
            write, read = (statistics.median(part) for part in zip(*took, strict=True))
            print(f"| {name} | {write:.2f} | {read:.2f} |")


def _seconds(folder: Path, networks: SharedBody | SeparateNetworks) -> tuple[float, ...]:
    """Return the seconds of one write, and of one read."""
    begun = time.perf_counter()
    write_weights(folder, networks.weights(), networks.config)
    written = time.perf_counter()
    for file in weight_files(folder):
        for tensor in load_file(file).values():
            tensor.sum()
    return written - begun, time.perf_counter() - written


def questions(count: int) -> list[str]:
    """Return `count` different questions like the tiny world's."""
    return [f"What is {i} plus {i * 7 % 50}?" for i in range(count)]


def ppo(args: argparse.Namespace, policy: Path, reward: Path, folder: Path) -> list[dict[str, Any]]:
    """Train by PPO; return the metrics of every step after the first."""
    job = job_of(args, policy, reward, folder)
    train(job, log=folder / "train.log")
    lines = (folder / "work" / "metrics.jsonl").read_text().split("\n")
    rows = [json.loads(line) for line in lines if line]
    return [row["metrics"] for row in rows if row["event"] == "step"][1:]


def rloo(args: argparse.Namespace, policy: Path, reward: Path, folder: Path) -> float:
    """Train by TRL's RLOO; return the median seconds of a step, leaving out the first.

    A step is one generation of answers and all optimizer steps taken on them.
    """
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl.trainer.rloo_config import RLOOConfig
    from trl.trainer.rloo_trainer import RLOOTrainer

    updates = args.rollouts // args.batch
    epochs = 2
    ends: list[float] = []

    class Stopwatch(TrainerCallback):
        """Records when optimizer steps end."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    cuda = torch.cuda.is_available()
    trainer = RLOOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        reward_funcs=str(reward),
        processing_class=AutoTokenizer.from_pretrained(policy, padding_side="left"),
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": q}] for q in questions(args.rollouts * 2)]}
        ),
        args=RLOOConfig(
            output_dir=str(folder / "rloo"),
            per_device_train_batch_size=args.micro,
            gradient_accumulation_steps=args.batch // args.micro,
            steps_per_generation=args.rollouts // args.micro,
            num_iterations=epochs,
            num_generations=2,
            max_completion_length=args.tokens,
            max_steps=args.steps * updates * epochs,
            learning_rate=1e-6,
            beta=0.0067,
            temperature=1.0,
            bf16=cuda or cpu_type() == "bfloat16",
            use_cpu=not cuda,
            gradient_checkpointing=args.size != "tiny",
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.add_callback(Stopwatch())
    trainer.train()
    last = ends[updates * epochs - 1 :: updates * epochs]
    return statistics.median(b - a for a, b in pairwise(last))


def operations(args: argparse.Namespace, policy: Path, reward: Path, tokens: float) -> float:
    """Return the useful matrix operations of a step: 2 per weight and token forward, 6 in training.

    A token is drawn, measured under policy, reference and value model, scored, and trained on in
    two epochs. Recomputed activations do not count.
    """
    own, other = parameters(policy), parameters(reward)
    forward = 2 * (3 * own + 2 * other)
    return tokens * (forward + 2 * 6 * (own + other))


def main() -> None:
    """Measure, and print the table."""
    args = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy, reward = models(args.size, folder)
        if args.handover:
            handover(job_of(args, policy, reward, folder))
            return
        steps = ppo(args, policy, reward, folder)
        medians = {
            name: statistics.median(step[f"seconds/{name}"] for step in steps)
            for name in (*MAIN, "other", "total")
        }
        tokens = statistics.median(step["tokens"] for step in steps)
        print(f"{args.rollouts} rollouts, {tokens:.0f} tokens, batches of {args.batch}, 2 epochs\n")
        print("| part of a PPO step | seconds | share |\n| --- | ---: | ---: |")
        for part, seconds in medians.items():
            print(f"| {part} | {seconds:.2f} | {seconds / medians['total']:.1%} |")
        print(f"\n{tokens / medians['total']:.0f} tokens/s")
        if torch.cuda.is_available():
            device = torch.cuda.get_device_name()
            peak = next((p for word, p in PEAK.items() if word in device), None)
            done = operations(args, policy, reward, tokens) / medians["total"]
            share = f", {done / peak:.1%} of the matrix peak" if peak else ""
            print(f"{device}: {done / 1e12:.1f} Tflop/s of useful operations{share}")
        if not args.no_rloo:
            seconds = rloo(args, policy, reward, folder)
            print(f"\nRLOO (TRL): {seconds:.2f} s per step; PPO: {medians['total'] / seconds:.2f}x")


if __name__ == "__main__":
    sys.exit(main())
