"""Every recipe that trains on rows of the loop, killed in each of its stages and resumed.

SIGKILL when one unit of a stage is durable and others are not, and before, in the middle of and
after a training: the rows at the end are those of a run that nobody interrupted, and nothing is
asked again whose answer was committed. Recipes that train online are killed in tests of their own.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from crashing import (
    AT_ONCE,
    KILLED,
    SMALL,
    Attempt,
    Whole,
    calls,
    committed_ids,
    loop_and_look,
    quick_folder,
    seen,
    write_prompts,
)
from stage_kills import Kill, killed, noted, places, stages_noted

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig

pytestmark = [pytest.mark.crash, pytest.mark.slow]

WORLD = tuple(setting for setting in SMALL if not setting.startswith("recipe."))
CHAINS = 2
"""So many runs share the kills of a recipe, each suffering every so many-th."""
MEASURED = ("critique:evaluate:held-out",)
"""Stages of all recipes that they are killed in, too."""
RECIPES: Mapping[str, Sequence[str]] = {
    "rlrf": ("recipe.n=2", "recipe.m=2", "recipe.top_k=1"),
    "rlrf in rounds": ("recipe.n=2", "recipe.m=1", "recipe.top_k=1", "recipe.rounds=2"),
    "kto": ("recipe.n=3",),
    "self-rewarding": ("recipe.n=3", "critic.samples=2", "recipe.judge=follows"),
    "critique-distillation": ("recipe.n=2", "recipe.m=2", "recipe.learn=all"),
}
"""Settings by the recipe's name, which may be followed by what is set."""
STAGES: Mapping[str, Sequence[str]] = {
    "rlrf": ("sample", "critique:sample", "refine", "critique:refine", "pair", "train"),
    "rlrf in rounds": (
        *("sample", "critique:sample", "refine", "critique:refine"),
        *("refine:round-2", "critique:refine:round-2", "pair", "train"),
    ),
    "kto": ("sample", "critique:sample", "train"),
    "self-rewarding": ("sample", "critique:sample", "critique:sample#2", "pair", "train"),
    "critique-distillation": ("sample", "critique:sample", "refine", "train"),
}
"""The stages of a recipe that it is killed in, in both iterations: it must have them all."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as found:
        yield found


def configured(folder: Path, name: str) -> RunConfig:
    source = f"prompts.source={write_prompts(folder)}"
    return load_config("tiny", name.split(" ", 1)[0], (*WORLD, source, *RECIPES[name]), {})


def new_lake(folder: Path) -> Path:
    lake = folder / uuid.uuid4().hex
    lake.mkdir()
    return lake


def killed_at(lake: Path, config: RunConfig, at: Kill) -> bool:
    """Let the run be killed at a place; say if it came there, and was not at its end before."""
    durable, before = committed_ids(lake), calls(lake)
    code = Attempt(lake=lake, work=partial(killed, config=config, at=at)).start()
    again = {line.split()[0] for line in calls(lake) - before}
    assert not again & durable, f"asked again at {at}"
    assert code in (KILLED, 0), f"{at}: exit code {code}"
    return code == KILLED


def suffered(folder: Path, config: RunConfig, kills: Sequence[Kill], straight: Whole) -> list[Kill]:
    """Kill runs at these places, one after the other, until each was met; return them.

    A place that a run has passed when it is resumed is met by the next run.
    """
    left = list(kills)
    while left:
        lake, met = new_lake(folder), list[Kill]()
        for at in left:
            if not killed_at(lake, config, at):
                break
            met.append(at)
        Attempt(lake=lake, work=partial(loop_and_look, config=config)).finish()
        assert seen(lake) == straight, f"killed at {met}"
        assert met, f"{left[0]} is never met"
        left = left[len(met) :]
    return list(kills)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_killed_in_any_stage_makes_the_same_rows(folder: Path, name: str) -> None:
    config = configured(folder, name)
    straight, census = new_lake(folder), new_lake(folder)
    Attempt(lake=straight, work=partial(loop_and_look, config=config)).finish()
    Attempt(lake=census, work=partial(noted, config=config)).finish()
    stages = {*STAGES[name], *MEASURED}
    wanted = [at for at in places(stages_noted(census)) if at.iteration and at.stage in stages]
    assert {(at.iteration, at.stage) for at in wanted} == {(n, s) for n in (1, 2) for s in stages}
    assert not seen(straight).owed
    # A filter of several units has a receipt of each, which may say the same.
    assert set(seen(straight).repeated) <= {"receipts"}
    chains = [wanted[first::CHAINS] for first in range(CHAINS)]
    kill = partial(suffered, folder, config, straight=seen(straight))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        met = [at for chain in pool.map(kill, chains) for at in chain]
    assert sorted(met, key=str) == sorted(wanted, key=str)
