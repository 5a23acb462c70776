"""Trackers are told of each iteration once, from what is stored, and are never in a run's way."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from crashing import RUN, Telling, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.daemon.tell_trackers import (
    TrackerNote,
    iteration_rows,
    require_trackers,
    tell_trackers,
)
from lpfloop.loop.daemon.trackers.tracked_batch import TrackedBatch, TrackedRow, read_batch
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages import publish
from lpfloop.policies.trainers.train_model import TrainJob, TrainResult

LIBRARIES = ("tensorboard", "trackio", "wandb")
ABSENT = next((name for name in LIBRARIES if find_spec(name) is None), None)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return small_config(write_prompts(tmp_path))


@pytest.fixture
def lake(tmp_path: Path, config: RunConfig) -> Path:
    """A lake with a finished run of two iterations, of which no tracker was told."""
    lake = tmp_path / "lake"
    lake.mkdir()
    with stand_ins(lake), told_of_steps():
        run_loop(Job(config=config, lake=lake, name=RUN), Telling(), StopSignal())
    return lake


@contextmanager
def told_of_steps() -> Generator[None]:
    """Let the stand-in for the trainer tell of three steps."""
    trainer = publish.train

    def train(job: TrainJob, **others: Any) -> TrainResult:
        steps = [{"step": n, "loss": 1 / n, "grad_norm": 1.0} for n in (1, 2, 3)]
        return replace(trainer(job, **others), history=steps)

    publish.train = train
    try:
        yield
    finally:
        publish.train = trainer


def told_by(lake: Path, config: RunConfig, *, times: int = 1) -> list[str]:
    """Tell the trackers of a run's two iterations; return what was noted."""
    reporter = Telling()
    with opened(Job(config=config, lake=lake, name=RUN), [], reporter, StopSignal()) as run:
        for _ in range(times):
            tell_trackers(run, 2)
    return reporter.notes


def test_nothing_is_told_by_default(lake: Path) -> None:
    assert not (lake / "runs" / RUN / "tracking").exists()


def test_an_iterations_rows_go_on_where_those_before_it_ended(
    lake: Path, config: RunConfig
) -> None:
    told, places, steps, evaluated = TrackerNote(), [], [], []
    with opened(Job(config=config, lake=lake, name=RUN), [], Telling(), StopSignal()) as run:
        for number in range(3):
            rows, told.steps = iteration_rows(run, number, told)
            told.rows += len(rows)
            places += [row.place for row in rows]
            steps += [row.x for row in rows if row.axis == "training_step"]
            evaluated += [
                row.x for row in rows if any(n.startswith("evaluation/") for n in row.values)
            ]
    assert places == list(range(len(places)))
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) == 6
    assert evaluated == [0, 1, 2]


def test_a_batch_is_read_as_it_was_written() -> None:
    row = TrackedRow(place=3, axis="iteration", x=1, values={"evaluation/a/b": 0.5})
    batch = TrackedBatch(run="r", identity="i", project="p", folder="/f", iteration=1, rows=(row,))
    assert read_batch(batch.as_json()) == batch


@pytest.mark.skipif(ABSENT is None, reason="all three libraries are installed")
def test_a_tracker_whose_library_is_missing_is_refused_with_its_command(tmp_path: Path) -> None:
    wanted = small_config(write_prompts(tmp_path), f"tracking.to=[{ABSENT}]")
    with pytest.raises(ConfigError, match=f"{ABSENT} is not installed: .*pip install {ABSENT}"):
        require_trackers(wanted)


@pytest.mark.skipif(ABSENT is None, reason="all three libraries are installed")
def test_a_tracker_that_fails_is_noted_and_told_again_later(lake: Path, config: RunConfig) -> None:
    tracking = config.tracking.model_copy(update={"to": (ABSENT,)})
    reporter = Telling()
    with opened(Job(config=config, lake=lake, name=RUN), [], reporter, StopSignal()) as run:
        run.config = config.model_copy(update={"tracking": tracking})
        tell_trackers(run, 2)
    (note,) = [text for text in reporter.notes if "could not be told" in text]
    assert f"{ABSENT} could not be told of iteration 0: ModuleNotFoundError" in note
    kept = lake / "runs" / RUN / "tracking" / str(ABSENT) / f"{RUN}.told.json"
    assert json.loads(kept.read_bytes())["iterations"] == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_tracker_has_each_point_once_however_often_it_is_told(
    lake: Path, config: RunConfig, name: str
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    wanted = config.model_copy(
        update={"tracking": config.tracking.model_copy(update={"to": (name,)})}
    )
    folder = lake / "runs" / RUN / "tracking" / name
    assert told_by(lake, wanted, times=2) == []
    note = folder / f"{RUN}.told.json"
    before = json.loads(note.read_bytes())
    assert before["iterations"] == [0, 1, 2]
    # As if the run had been killed before it could note what it told.
    note.write_text(json.dumps(before | {"iterations": [], "rows": 0, "steps": {}}))
    assert told_by(lake, wanted) == []
    assert json.loads(note.read_bytes()) == before
    points = {"tensorboard": events, "trackio": logged, "wandb": offline}[name](folder)
    assert len(points) == len(set(points)) > 3


def events(folder: Path) -> list[object]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / RUN))
    found.Reload()
    return [(tag, e.step) for tag in found.Tags()["scalars"] for e in found.Scalars(tag)]


def logged(folder: Path) -> list[object]:
    import sqlite3

    with sqlite3.connect(folder / "lpfloop.db") as base:
        return base.execute("SELECT run_name, step FROM metrics").fetchall()


def offline(folder: Path) -> list[object]:
    """Return the steps that a server would keep of the folders, which all go on one run."""
    from wandb.proto.wandb_internal_pb2 import Record

    kept: dict[int, object] = {}
    names = set[str]()
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        names.add(path.name)
        for data in records(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                items = sorted((*i.nested_key, i.key, i.value_json) for i in record.history.item)
                said = [item for item in items if not item[0].startswith("_")]
                assert kept.setdefault(record.history.step.num, said) == said
    assert len(names) == 1
    return list(kept)


def records(data: bytes) -> Generator[bytes]:
    """Yield what a file of LevelDB's log format holds: blocks of 32 KiB, records cut at their ends.

    A record's parts have a checksum, a length and a kind: 1 whole, 2 first, 3 middle, 4 last.
    """
    place, held = 7, b""
    while place + 7 <= len(data):
        if 32_768 - place % 32_768 < 7:
            place += 32_768 - place % 32_768
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        held += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield held
            held = b""
