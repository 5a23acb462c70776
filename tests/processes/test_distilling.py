"""Critique distillation in the loop: its rows, what it asks and refuses, what a kill changes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from world import KILLED, RUN, SMALL, Attempt, loop, quick_folder, stand_ins, whole, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.lake import RunReader

pytestmark = pytest.mark.slow

VARIANT = "critique-distillation"
SETTINGS = (
    *(told for told in SMALL if not told.startswith("recipe.")),
    "recipe.n=2",
    "recipe.m=3",
    "prompts.per_iteration=6",
)


def configured(folder: Path) -> RunConfig:
    source = f"prompts.source={write_prompts(folder, 12)}"
    return load_config("tiny", VARIANT, (*SETTINGS, source), {})


def made(folder: Path) -> RunReader:
    with stand_ins(folder):
        loop(folder, config=configured(folder))
    return open_run(folder, RUN)


def rows(run: RunReader, table: str) -> pl.DataFrame:
    return run.scan(table).collect()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        yield folder


def test_passed_refinements_are_learned(lake: Path) -> None:
    run = made(lake)
    refined = rows(run, "candidates").filter(kind="refinement")["candidate_id"].to_list()
    learned = rows(run, "distillations")
    assert {*learned["candidate_id"]} < {*refined}
    assert all(ratings and {*ratings} == {1} for ratings in learned["ratings"].to_list())
    yields = rows(run, "yields")
    assert yields["made"].sum() == learned.height
    assert {"distilled", "no_positive"} <= {*yields["outcome"]}
    run.close()


def test_killed_same_rows(tmp_path: Path, lake: Path) -> None:
    made(lake).close()
    work = partial(loop, config=configured(tmp_path))
    killed = tmp_path / "killed"
    killed.mkdir()
    for number in (6, 4):
        attempt = Attempt(lake=killed, work=work, points={f"stage.end#{number}": "kill"})
        assert attempt.start() == KILLED
    Attempt(lake=killed, work=work).finish()
    assert whole(killed) == whole(lake)
