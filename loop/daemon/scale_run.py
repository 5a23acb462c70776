"""From a configuration to what it takes at any scale: its prompts, or invented ones, rehearsed."""

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path

from ...configs.schema import ConfigError, PromptsConfig, RunConfig
from ...policies.engines.engine import EngineError
from ...stores.records import Message, Prompt, Split
from ..data.prompts import TINY
from ..stages.people_labels import labels_of
from .loop import required_prompts
from .plan import plan_of
from .planning import costs_in
from .rehearsal import RehearsalError, rehearse
from .scale import Rates, ScaledRun, scale_of
from .stand_ins import LETTERS_A_TOKEN, CallCost

INVENTED = 80
"""Prompts that stand for all where there is no file of them."""
TASKS = (*["general"] * 6, "math", "facts")
"""Their tasks, in the shares of Lee et al., RLRF, Table 1."""
WORD = "word "


def scaled(config: RunConfig, lake: Path, rates: Rates, count: int | None = None) -> ScaledRun:
    """Return what a run takes: with its own prompts, or with `count` of them in an iteration.

    Where there is no file of prompts, those that are counted are invented.

    Raises:
        ConfigError: if the run would be refused, or its recipe fails.
        InputError: if prompts cannot be read.
    """
    invented = not _are_there(config.prompts)
    if invented and count is None:
        raise ConfigError(
            f"there are no prompts at {config.prompts.source}: give --prompts FILE, or "
            "--prompt-count N, and prompts of a length are invented"
        )
    prompts = invented_prompts(rates.prompt_tokens) if invented else required_prompts(config, lake)
    measured = costs_in(lake, config)
    costs = measured or AlwaysCosts(CallCost(tokens=rates.answer_tokens))
    try:
        labels = labels_of(config, lake)
        rehearsal = rehearse(config, prompts, costs, labels=labels, count=count)
        plan = plan_of(rehearsal, prompts, costs)
    except (RehearsalError, EngineError) as error:
        raise ConfigError(str(error)) from error
    return scale_of(rehearsal, plan, rates, invented=invented, measured=bool(measured))


def invented_prompts(tokens: int) -> list[Prompt]:
    """Return prompts of so many tokens each, of the paper's tasks; a few of them are held out."""
    text = WORD * (tokens * LETTERS_A_TOKEN // len(WORD))
    splits: tuple[Split, ...] = ("train", "held-out")
    return [
        Prompt(
            prompt_id=f"invented-{split}-{number}",
            task=task,
            split=split,
            messages=(Message(role="user", content=f"{text}{number}"),),
            reference=None if task == "general" else str(number),
            checks=(),
            source="invented",
        )
        for split in splits
        for number, task in enumerate(islice(cycle(TASKS), INVENTED))
    ]


def _are_there(prompts: PromptsConfig) -> bool:
    return prompts.source == TINY or Path(prompts.source).exists()


class AlwaysCosts(Mapping[str, CallCost]):
    """What calls are taken to cost, whatever the stage."""

    def __init__(self, cost: CallCost) -> None:
        self._cost = cost

    def __getitem__(self, stage: str) -> CallCost:
        return self._cost

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1
