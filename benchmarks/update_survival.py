# pyright: basic
"""Share of an update that survives publishing in bfloat16 (nearest, random) and float16, by method.

    python benchmarks/update_survival.py LAKE RUN              # pairs of a run's iteration 1
    python benchmarks/update_survival.py LAKE RUN --seeds 1 --methods dpo ppo

Each training starts from the run's M_0 and publishes in float32; the script then rounds its
weights in each way. `trained_model.update_survival` computes the share, on 64 answers from the
training data. Writes a Markdown table to stdout, with the range over seeds in brackets.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.training import TrainingConfig
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.served import locate_model
from lpfloop.policies.trainers.job import SETTINGS, OnlineJob, TrainJob, write_job
from lpfloop.policies.trainers.rounding import rounded_at_random
from lpfloop.policies.trainers.rows import chat_of
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.trained_model import logprobs_of
from lpfloop.policies.trainers.training_fit import fit_of
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

ANSWERS, STEPS, BATCH = 64, 8, 8
ONLINE: dict[str, Any] = {
    "max_steps": 2, "rollouts": 16, "batch_size": 8, "micro_batch_size": 4, "inner_epochs": 2,
    "learning_rate": 1e-5, "warmup_steps": 0, "max_length": 256,
}  # fmt: skip
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dpo": ("dpo", {}, {"learning_rate": 2e-5}),
    "sft": ("sft", {}, {"learning_rate": 2e-5}),
    "dpo, LoRA": ("dpo", {"lora": {"r": 16}}, {"learning_rate": 2e-4}),
    "ppo": ("ppo", {}, ONLINE),
}
VERIFIED = """
from lpfloop.critics.checks import fulfils

def score(prompts, texts):
    return [float(all(fulfils(t, c) for c in p.checks)) for p, t in zip(prompts, texts)]
"""


def rounded(name: str, weights: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    """Return the float32 values of weights published in one way."""
    match kind:
        case "nearest":
            return weights.to(torch.bfloat16).float()
        case "float16":
            return weights.to(torch.float16).float()
        case _:
            drawn = derive_seed(seed, "publish", name)
            return rounded_at_random(weights, torch.bfloat16, drawn).float()


KINDS = ("nearest", "at random", "float16")


def measured(folder: Path, parts: Any, change: Callable[..., torch.Tensor] | None) -> list[float]:
    """Return each answer's log-probability in float32, with changed weights."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if change is not None:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(change(name, weight))
    return logprobs_of(model, parts)


def shares(job: TrainJob, answers: Any) -> dict[str, float]:
    """Train, and return the surviving share of the update for each way of rounding."""
    write_job(job)
    train(job, log=job.output.with_suffix(".log"))
    chat = chat_of(job)
    parts = [chat.split_answer(one) for one in answers]
    after = job.folder("model")
    before, trained = (measured(folder, parts, None) for folder in (job.model, after))
    update = [t - b for t, b in zip(trained, before, strict=True)]
    size = math.fsum(u * u for u in update)
    found: dict[str, float] = {}
    for kind in KINDS:
        left = measured(after, parts, partial(rounded, kind=kind, seed=job.seed))
        along = (u * (v - b) for u, v, b in zip(update, left, before, strict=True))
        found[kind] = math.fsum(along) / size
    return found


def job_of(method: str, seed: int, data: dict[str, Path], model: Path, work: Path) -> TrainJob:
    """Return a short training."""
    name, fit, own = METHODS[method]
    given = {"epochs": 1, "batch_size": BATCH, "micro_batch_size": 4, "max_length": 512} | own
    training = fit_of(TrainingConfig.model_validate({"publish": "float32", **fit}))
    settings: Any = SETTINGS[name]
    job = TrainJob(
        method=name, model=model, reference=None, data=(data["pairs"],), seed=seed,
        output=work / f"{method.replace(', ', '-')}-{seed}", fit=training,
        settings=settings(**{k: v for k, v in given.items() if k in settings.model_fields}),
    )  # fmt: skip
    if name != "ppo":
        return job
    file = work / "verified.py"
    file.write_text(VERIFIED)
    place = f"{file}:score"
    online = OnlineJob(
        iteration=1, identity=f"survival {seed}", root_seed=seed, policy="M_0", model=str(model),
        sampling=SamplingConfig(temperature=0.8, max_tokens=64), reward=RewardConfig(model=place),
        engine=EngineConfig(kind="transformers", dtype="float32", max_model_len=256),
        reward_id=scorer_digest(place), function=place,
    )  # fmt: skip
    return replace(job, online=online, data=(data["prompts"],))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    args = parser.parse_args()
    with closing(open_run(args.lake, args.run)) as run, tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pairs = run.scan("pairs", iteration=1).collect().sort("pair_id").head(BATCH * STEPS)
        asked = run.scan("prompts").collect().filter(split="train").sort("prompt_id").head(64)
        columns = pairs.select("pair_id", "prompt", "chosen", "rejected", completion="chosen")
        data = {"pairs": work / "pairs.parquet", "prompts": work / "prompts.parquet"}
        pq.write_table(columns.to_arrow(), data["pairs"])
        pq.write_table(pa.table(asked.to_arrow()), data["prompts"])
        answers = [
            tuple(Message(**turn) for turn in (*row["prompt"], *row["chosen"]))
            for row in columns.head(ANSWERS).to_dicts()
        ]
        model = Path(locate_model("smol"))
        print(f"| method | {' | '.join(KINDS)} |\n| --- |{' --- |' * len(KINDS)}", flush=True)
        for method in args.methods:
            each = [
                shares(job_of(method, seed, data, model, work), answers)
                for seed in range(args.seeds)
            ]
            cells = [
                f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
                for values in ([one[kind] for one in each] for kind in KINDS)
            ]
            print(f"| {method} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
