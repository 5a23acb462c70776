"""Every recipe that trains on rows of the loop, killed in each of its stages and resumed.

The final rows equal an uninterrupted run's, and no run repeats a question whose answer it had
committed.
"""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from crashes import Kill, kill_places, killed_in_stage, note_stages, stages_noted
from world import (
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

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig

pytestmark = pytest.mark.stress

WORLD = tuple(setting for setting in SMALL if not setting.startswith("recipe."))
ROUNDS = ("recipe.n=2", "recipe.m=1", "recipe.top_k=1", "recipe.rounds=2")
REFINING = ("refine", "critique:refine", "refine:round-2", "critique:refine:round-2")
ALL = {"sample", "critique:sample", "pair", "train", "critique:evaluate:held-out"}
RECIPES = {
    "rlrf": (ROUNDS, ALL | {*REFINING}),
    "kto": (("recipe.n=3",), ALL - {"pair"}),
    "self-rewarding": (
        ("recipe.n=3", "critic.samples=2", "recipe.judge=follows"),
        ALL | {"critique:sample#2"},
    ),
}
"""By recipe: its settings, and the stages in which to kill it, in both iterations."""


def new_lake(folder: Path) -> Path:
    lake = folder / uuid.uuid4().hex
    lake.mkdir()
    return lake


def killed_at(lake: Path, config: RunConfig, at: Kill) -> bool:
    """Kill the run at a place; return False if it finished first."""
    durable, before = committed_ids(lake), calls(lake)
    code = Attempt(lake=lake, work=partial(killed_in_stage, config=config, at=at)).start()
    again = {line.split()[0] for line in calls(lake) - before}
    assert not again & durable, f"asked again at {at}"
    assert code in (KILLED, 0), f"{at}: exit code {code}"
    return code == KILLED


def suffer(folder: Path, config: RunConfig, kills: Sequence[Kill], straight: Whole) -> None:
    """Kill runs at these places, one after the other, until each was reached.

    If a resumed run has passed a place, the next run meets it.
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


@pytest.mark.parametrize("name", RECIPES)
def test_killed_in_any_stage(tmp_path: Path, name: str) -> None:
    settings, stages = RECIPES[name]
    with quick_folder(tmp_path) as folder:
        source = f"prompts.source={write_prompts(folder)}"
        config = load_config("tiny", name, (*WORLD, source, *settings), {})
        straight, census = new_lake(folder), new_lake(folder)
        Attempt(lake=straight, work=partial(loop_and_look, config=config)).finish()
        Attempt(lake=census, work=partial(note_stages, config=config)).finish()
        noted_places = kill_places(stages_noted(census))
        wanted = [at for at in noted_places if at.iteration and at.stage in stages]
        met = {(at.iteration, at.stage) for at in wanted}
        assert met == {(n, stage) for n in (1, 2) for stage in stages}
        assert not seen(straight).pending
        # A filter of several units has a row for each, and these may be equal.
        assert set(seen(straight).repeated) <= {"filter_counts"}
        suffer(folder, config, wanted, seen(straight))
