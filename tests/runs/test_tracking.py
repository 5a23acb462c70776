"""Trackers get each iteration once, from stored rows; a failing tracker stops no run."""

import json
import sys
from pathlib import Path

import pytest
from world import RUN, Telling, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.experiment_logging import (
    TrackerNote,
    iteration_rows,
    log_iteration,
)
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.run.stop import StopSignal


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return small_config(write_prompts(tmp_path))


@pytest.fixture
def lake(tmp_path: Path, config: RunConfig) -> Path:
    """A lake with a finished run of two iterations, not yet sent to any tracker."""
    lake = tmp_path / "lake"
    lake.mkdir()
    with stand_ins(lake):
        run_loop(Job(config=config, lake=lake, name=RUN), Telling(), StopSignal())
    return lake


def test_rows_follow_those_before(lake: Path, config: RunConfig) -> None:
    told, places, evaluated = TrackerNote(), [], []
    with open_job(Job(config=config, lake=lake, name=RUN), [], Telling(), StopSignal()) as run:
        for number in range(3):
            rows, told.steps = iteration_rows(run, number, told)
            told.rows += len(rows)
            places += [row.place for row in rows]
            evaluated += [
                row.x for row in rows if any(n.startswith("evaluation/") for n in row.values)
            ]
    assert places == list(range(len(places)))
    assert evaluated == [0, 1, 2]


def test_failing_tracker_is_noted(lake: Path, config: RunConfig, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert not (lake / "runs" / RUN / "tracking").exists()
    reporter = Telling()
    with open_job(Job(config=config, lake=lake, name=RUN), [], reporter, StopSignal()) as run:
        to = config.tracking.model_copy(update={"to": ("wandb",)})
        run.config = config.model_copy(update={"tracking": to})
        log_iteration(run, 2)
    (note,) = [text for text in reporter.notes if "could not be told" in text]
    assert "wandb" in note
    kept = lake / "runs" / RUN / "tracking" / "wandb" / f"{RUN}.told.json"
    assert json.loads(kept.read_bytes())["iterations"] == []
