"""What fits where: models of published sizes, by method, on GPUs of three sizes.

The arithmetic is that of a run (`memory_check`), the settings are those of the preset `own` and the
ones that stand here; nothing of it has been run on a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from ...configs.load import load_config
from ...configs.schema import RunConfig
from ...policies.memory.published_sizes import PUBLISHED
from ...policies.memory.shapes import ModelShape, configured
from ...policies.memory.verdicts import GIB, StageMemory
from ...policies.trainers.job import ONLINE, Method
from .hardware import Devices
from .memory_check import stages_of

CARDS = {"24": 22.5, "80": 79.6, "141": 140.4}
"""What cards are sold as, and the GiB that the driver counts: an A10 or L4, an H100, an H200."""

RAM = 2048 * GIB
OVER = 8
"""GPUs over which a training is divided."""

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
WAYS = {
    "full": ((), 1),
    "LoRA": (LORA, 1),
    "QLoRA": (QLORA, 1),
}
"""How weights are trained: the settings of it, and the number of GPUs."""

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
"""Methods that sample can do so on other GPUs; adapters' one body is not divided."""

METHODS: Mapping[str, Method] = {
    "SFT": "sft",
    "DPO": "dpo",
    "reward model": "reward",
    "PPO": "ppo",
    "Quark": "quark",
}
RECIPES: Mapping[str, str] = {"reward": "reward-model"}
"""The recipe of a method, where it is not the method's name."""

SAMPLED = "sample (vLLM)"
HEAD = "| method | weights |"
"""How the table's first line begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingRow:
    """A line of the table: what is done, how, and a cell for each model."""

    method: str
    way: str
    cells: tuple[str, ...]

    def as_text(self) -> str:
        """Return the line."""
        return f"| {' | '.join((self.method, self.way, *self.cells))} |"


def table_lines() -> list[str]:
    """Return the table in Markdown."""
    names = list(PUBLISHED)
    head = f"{HEAD} {' | '.join(names)} |"
    rule = f"| --- | --- |{' ---: |' * len(names)}"
    return [head, rule, *(row.as_text() for row in rows())]


def rows() -> Iterator[FittingRow]:
    """Yield what is done with each model: sampled, then trained by each method in each way."""
    yield _row(SAMPLED, "bfloat16", "sft", ("policy answers",), (), 1)
    for name, method in METHODS.items():
        section = f"training.{method}"
        small = (f"{section}.micro_batch_size=1", f"{section}.max_length=2048")
        stages = (f"train by {method}", *(() if method == "reward" else ("measure the canary",)))
        ways = ONLINE_WAYS if method in ONLINE else OFFLINE_WAYS
        for way, (settings, count) in ways.items():
            recipe = RECIPES.get(method, method)
            yield _row(name, way, recipe, stages, (*small, *settings), count)


def _row(
    name: str, way: str, recipe: str, stages: tuple[str, ...], settings: Sequence[str], count: int
) -> FittingRow:
    config = load_config("own", recipe, (*GIVEN, *settings), {})
    cells = (_cell(config, configured(told), stages, count) for told in PUBLISHED.values())
    return FittingRow(method=name, way=way, cells=tuple(cells))


def _cell(config: RunConfig, shape: ModelShape, names: tuple[str, ...], count: int) -> str:
    """Return the smallest card that does, and the GiB that the most costly stage takes of it.

    A question mark: it may not fit.
    """
    needed = 0.0
    for card, gib in CARDS.items():
        have = Devices(cards=(round(gib * GIB),) * count, ram=RAM)
        found = [s for s in _stages(config, shape, have) if s.stage.startswith(names)]
        needed = max(_on_one(stage, have) for stage in found) / GIB
        verdicts = {stage.verdict for stage in found}
        if verdicts == {"fits"}:
            return f"{card} ({needed:.0f})"
        if "does not fit" not in verdicts:
            return f"{card}? ({needed:.0f})"
    return f"none ({needed:.0f})"


def _on_one(stage: StageMemory, have: Devices) -> float:
    """Return what a stage takes of one card: of several that it may fill, their mean."""
    return stage.most_bytes * min(1.0, have.memory / stage.has_bytes)


def _stages(config: RunConfig, shape: ModelShape, have: Devices) -> Iterator[StageMemory]:
    def sizes(_: Path) -> ModelShape:
        return shape

    return stages_of(config, have=have, shapes=sizes)


def in_page(page: str, lines: Sequence[str]) -> str:
    """Return a page with these lines in the place of its table."""
    old = page.splitlines()
    first = next(i for i, line in enumerate(old) if line.startswith(HEAD))
    rest = dropwhile(lambda line: line.startswith("|"), old[first:])
    return "\n".join([*old[:first], *lines, *rest]) + "\n"
