"""Limits on hours and disk also stop a run inside a stage, and the run can resume."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from world import RUN, Silent, calls, loop, small_config, stand_ins, whole, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run import budget
from lpfloop.loop.run.budget import GIB, BudgetReachedError
from lpfloop.loop.run.run import Run
from lpfloop.loop.run.stage import WallTime
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

SETTINGS = ("prompts.per_iteration=32", "prompts.chunk=4", "recipe.n=4", "smoke.prompts=0")
FEWEST, SLACK = 60, 64
"""Requests until the limit, and requests that may be in flight then: two slices."""


def limited(folder: Path, limit: str) -> RunConfig:
    return small_config(write_prompts(folder, 64), *SETTINGS, limit)


def turned(lake: Path, config: RunConfig) -> None:
    """Run the loop in a world in which each request takes a second."""

    def begin(run: Run, _prompts: object, _rehearsal: object) -> None:
        run.wall_time = WallTime(lambda: float(sum(calls(lake).values())))

    with stand_ins(lake):
        job = Job(config=config, lake=lake, name=RUN)
        run_loop(job, Silent(), StopSignal(), on_begin=begin)


def sampled(lake: Path) -> tuple[int, int]:
    """Return how many units of the first sampling are done, and how many there are."""
    with closing(Reader(run_folder(lake, RUN))) as reader:
        (stage,) = (s for s in reader.stages() if (s.iteration, s.stage) == (1, "sample"))
    return stage.done, stage.planned


def require_stopped(lake: Path, run: Callable[[], None], used: str) -> None:
    with pytest.raises(BudgetReachedError, match=used) as error:
        run()
    assert FEWEST <= sum(calls(lake).values()) <= FEWEST + SLACK
    done, planned = sampled(lake)
    assert done < planned
    numbers = [float(found) for found in re.findall(r"\d[\d.]*", str(error.value))]
    assert numbers[1] >= numbers[0] > 0
    # The run keeps its answers: it sends no question twice.
    with stand_ins(lake):
        loop(lake, config=limited(lake, "budget.hours=null"))
    assert max(calls(lake).values()) == 1
    assert whole(lake).pending == []


def test_hours_end_inside_a_stage(tmp_path: Path):
    config = limited(tmp_path, f"budget.hours={FEWEST / 3600}")
    require_stopped(tmp_path, lambda: turned(tmp_path, config), r"budget\.hours")


def test_disk_ends_inside_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget, "DISK_EVERY_S", 0.0)
    monkeypatch.setattr(budget, "DISK_SHARE", 1.0)
    monkeypatch.setattr(budget, "size_of", lambda _: sum(calls(tmp_path).values()) * GIB)
    config = limited(tmp_path, f"budget.disk_gib={FEWEST}")
    require_stopped(tmp_path, lambda: turned(tmp_path, config), r"budget\.disk_gib")
