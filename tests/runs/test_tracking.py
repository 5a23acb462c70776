"""Trackers get each iteration once, from stored rows; a failing tracker stops no run."""

import sys
from pathlib import Path

import pytest
from world import RUN, Telling, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon import trackers
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.daemon.trackers import log_iteration, tracked_rows
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


def test_rows_keep_their_places(lake: Path, config: RunConfig) -> None:
    with open_job(Job(config=config, lake=lake, name=RUN), [], Telling(), StopSignal()) as run:
        first, rows = list(tracked_rows(run, 1)), list(tracked_rows(run, 2))
    assert rows[: len(first)] == first
    assert [row.place for row in rows] == list(range(len(rows)))
    evaluated = [row.x for row in rows if any(n.startswith("evaluation/") for n in row.values)]
    assert evaluated == [0, 1, 2]


def test_only_pending_iterations_are_sent(lake: Path, config: RunConfig, monkeypatch) -> None:
    sent = list[list[int]]()

    def send(name: str, batch: trackers.TrackedBatch, **_: object) -> str | None:
        sent.append(sorted({row.iteration for row in batch.rows}))
        return "offline" if len(sent) == 2 else None

    monkeypatch.setattr(trackers, "_send", send)
    to = config.tracking.model_copy(update={"to": ("wandb",)})
    with open_job(Job(config=config, lake=lake, name=RUN), [], Telling(), StopSignal()) as run:
        run.config = config.model_copy(update={"tracking": to})
        for last in (0, 1, 2, 2):
            log_iteration(run, last)
    assert sent == [[0], [1], [1, 2]]


def test_failing_tracker_is_noted(lake: Path, config: RunConfig, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert not (lake / "runs" / RUN / "tracking").exists()
    reporter = Telling()
    with open_job(Job(config=config, lake=lake, name=RUN), [], reporter, StopSignal()) as run:
        to = config.tracking.model_copy(update={"to": ("wandb",)})
        run.config = config.model_copy(update={"tracking": to})
        log_iteration(run, 2)
    (note,) = [text for text in reporter.notes if "did not take" in text]
    assert "wandb" in note
    assert list((lake / "runs" / RUN / "tracking" / "wandb").iterdir()) == []
