# pyright: basic
"""Time of an evaluation in a new process, and in a live engine that loads the new weights.

    python benchmarks/live_engine.py                        # the tiny policy, 660 held-out prompts
    python benchmarks/live_engine.py --model DIR --rounds 3 # another model

The script times both in turns, and prints medians; it compares the answers to the bit.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.run.models import locate_model
from lpfloop.policies.engines.engine import Batch, Completion, Request, Sampling
from lpfloop.policies.engines.weight_files import weight_files
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.stores.records import Prompt

TOGETHER = 64
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=64)


def parse() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--engine", choices=("auto", "vllm", "transformers"), default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def step(source: Path, folder: Path) -> Path:
    """Copy a model with slightly changed weights, as after a training."""
    shutil.copytree(source, folder)
    generator = torch.Generator().manual_seed(0)
    for path in weight_files(folder):
        moved = {
            name: tensor + 0.003 * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
            for name, tensor in load_file(path).items()
        }
        save_file(moved, path, metadata={"format": "pt"})
    return folder


def answered(engine: HostedModel[EngineConfig], prompts: Sequence[Prompt]) -> dict[str, Completion]:
    """Return the greedy answers to all prompts."""
    requests = [
        Request(request_id=prompt.prompt_id, messages=prompt.messages, seed=0) for prompt in prompts
    ]
    batches = (
        Batch(key=str(i), requests=tuple(requests[i : i + TOGETHER]), sampling=GREEDY)
        for i in range(0, len(requests), TOGETHER)
    )
    return {c.request_id: c for result in engine.generate(batches) for c in result.answers}


def main() -> None:
    """Time both ways in turns, and print the medians."""
    arguments = parse()
    source = Path(locate_model(arguments.model))
    config = EngineConfig(kind=arguments.engine, cpu_threads=1, max_model_len=512)
    every = load_prompts(load_config("tiny", None, (), {}).prompts, seed=0)
    prompts = [prompt for prompt in every if prompt.split == "held-out"]
    with tempfile.TemporaryDirectory() as work:
        trained = step(source, Path(work) / "trained")

        def opened(folder: Path, name: str) -> HostedModel[EngineConfig]:
            engine = open_engine(str(folder), config, log=Path(work) / f"{name}.log")
            assert isinstance(engine, HostedModel)
            return engine

        live = opened(source, "live")
        answered(live, prompts)
        seconds: dict[str, list[float]] = {"new process": [], "reload": [], "reload alone": []}
        for number in range(arguments.rounds):
            folder = (trained, source)[number % 2]
            begun = time.perf_counter()
            fresh = opened(folder, "fresh")
            wanted = answered(fresh, prompts)
            seconds["new process"].append(time.perf_counter() - begun)
            fresh.close()
            begun = time.perf_counter()
            live.reload(folder)
            seconds["reload alone"].append(time.perf_counter() - begun)
            found = answered(live, prompts)
            seconds["reload"].append(time.perf_counter() - begun)
            if found != wanted:
                raise SystemExit("a reloaded engine answers otherwise than a fresh one")
        live.close()
    print(f"{len(prompts)} prompts, {arguments.rounds} rounds in turns, medians:")
    for name, told in seconds.items():
        print(f"  {name:13} {statistics.median(told):6.2f} s")


if __name__ == "__main__":
    main()
