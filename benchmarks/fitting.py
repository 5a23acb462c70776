"""Models that fit on each card, by the arithmetic of `lpfloop doctor`: the table of docs/gpus.md.

    python benchmarks/fitting.py            # prints it
    python benchmarks/fitting.py --write    # into the page

The settings are the preset `own` and the ones below.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import Path

from model_sizes import PUBLISHED

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.machine_check import Devices
from lpfloop.loop.daemon.memory_check import MemoryStages, StageMemory
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.run.run import Observed
from lpfloop.policies.memory.shapes import ModelShape, shape_of_config
from lpfloop.policies.memory.terms import GIB
from lpfloop.policies.trainers.job import ONLINE, Method

PAGE = Path(__file__).parents[1] / "docs" / "gpus.md"
CARDS = {"24": 22.5, "80": 79.6, "141": 140.4}
"""Nominal sizes of cards, and the GiB that the driver reports: an A10 or L4, an H100, an H200."""
RAM = 2048 * GIB
OVER = 8
"""GPUs of a sharded training."""

JUDGE = "http://judge/v1"
GIVEN = (
    "policy.model=model",
    "policy.engine.kind=vllm",
    "policy.engine.max_model_len=4096",
    "policy.sampling.max_tokens=512",
    "annotation.pool=alpacafarm-hosted",
    *(f"annotation.{role}.model={JUDGE}" for role in ("strong", "medium", "weak")),
)
LORA = ("training.lora.r=16",)
QLORA = (*LORA, "training.lora.quantise=nf4")
APART = ("training.devices=[0]", "policy.engine.devices=[1]")
DIVIDED = ("training.sharding=fsdp2", "training.processes=auto")
WAYS = {"full": ((), 1), "LoRA": (LORA, 1), "QLoRA": (QLORA, 1)}
"""Ways of training: settings, and the number of GPUs."""
OFFLINE_WAYS = {
    **WAYS,
    f"full, FSDP2 over {OVER}": (DIVIDED, OVER),
    f"LoRA, FSDP2 over {OVER}": ((*LORA, *DIVIDED), OVER),
}
ONLINE_WAYS = {
    **WAYS,
    "full, sampler elsewhere": (APART, 2),
    "LoRA, sampler elsewhere": ((*LORA, *APART), 2),
    f"full, FSDP2 over {OVER}": (DIVIDED, OVER),
}
METHODS: dict[str, Method] = {
    "SFT": "sft",
    "DPO": "dpo",
    "reward model": "reward",
    "PPO": "ppo",
    "Quark": "quark",
}
RECIPES = {"reward": "reward-model"}
"""The recipe of a method, if its name differs."""
HEAD = "| method | weights |"


def rows() -> Iterator[str]:
    """Yield the uses of each model: sampling, then a training with each method in each way."""
    yield row("sample (vLLM)", "bfloat16", "sft", ("policy answers",), (), 1)
    for name, method in METHODS.items():
        section = f"training.{method}"
        small = (f"{section}.micro_batch_size=1", f"{section}.max_length=2048")
        stages = (f"train by {method}", *(() if method == "reward" else ("measure the canary",)))
        ways = ONLINE_WAYS if method in ONLINE else OFFLINE_WAYS
        for way, (settings, count) in ways.items():
            yield row(name, way, method, stages, (*small, *settings), count)


def row(
    name: str,
    way: str,
    method: Method,
    stages: tuple[str, ...],
    settings: Sequence[str],
    count: int,
) -> str:
    """Return a line of the table."""
    config = load_config("own", RECIPES.get(method, method), (*GIVEN, *settings), {})
    roles = needed_roles(config, Observed(trainings=(method,)))

    def on(shape: ModelShape, card: float) -> list[StageMemory]:
        have = Devices(cards=(round(card * GIB),) * count, ram=RAM)
        found = MemoryStages(config=config, roles=roles, have=have, shapes=lambda _: shape)
        return [stage for stage in found.every() if stage.stage.startswith(stages)]

    shapes = [shape_of_config(config_json) for config_json in PUBLISHED.values()]
    cells = [cell({name: on(shape, card) for name, card in CARDS.items()}) for shape in shapes]
    return f"| {' | '.join((name, way, *cells))} |"


def cell(found: dict[str, list[StageMemory]]) -> str:
    """Return the smallest sufficient card, and the GiB that the largest stage takes of it.

    A question mark: it may not fit.
    """
    needed = 0.0
    for card, stages in found.items():
        memory = CARDS[card] * GIB
        # The need of a stage that may use several cards counts as its mean per card.
        needed = max(s.most_bytes * min(1.0, memory / s.has_bytes) for s in stages) / GIB
        verdicts = {stage.verdict for stage in stages}
        if "does not fit" not in verdicts:
            return f"{card}{'' if verdicts == {'fits'} else '?'} ({needed:.0f})"
    return f"none ({needed:.0f})"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    head = f"{HEAD} {' | '.join(PUBLISHED)} |"
    table = [head, f"| --- | --- |{' ---: |' * len(PUBLISHED)}", *rows()]
    if not parser.parse_args().write:
        print("\n".join(table))
        return
    old = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(old) if line.startswith(HEAD))
    rest = dropwhile(lambda line: line.startswith("|"), old[first:])
    PAGE.write_text("\n".join([*old[:first], *table, *rest]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
