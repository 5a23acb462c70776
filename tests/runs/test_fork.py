"""A forked run reuses every unit whose key still matches, and owns the reused units."""

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from crashes import flip, truncate
from typer.testing import CliRunner
from world import (
    RUN,
    calls,
    copied,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.loop.daemon.loop import required_prompts
from lpfloop.loop.daemon.planning import plan_lines, plan_run
from lpfloop.stores.journal_reader import Part, Reader
from lpfloop.stores.lake import run_folder

CHILD = "b"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        lake = folder / "lake"
        lake.mkdir()
        prompts = write_prompts(folder)
        config = small_config(prompts)
        with stand_ins(lake):
            loop(lake, config=config)
        yield SimpleNamespace(lake=lake, prompts=prompts, config=config, whole=whole(lake))


@pytest.fixture
def parent(finished: SimpleNamespace, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A finished run to fork; the fake models record every question."""
    with quick_folder(tmp_path) as folder:
        lake = copied(finished.lake, folder / "lake")
        with stand_ins(lake):
            yield SimpleNamespace(**{**vars(finished), "lake": lake})


def parts(lake: Path, name: str) -> dict[str, list[Part]]:
    reader = Reader(run_folder(lake, name))
    found: dict[str, list[Part]] = {}
    for part in reader.parts():
        found.setdefault(part.unit, []).append(part)
    reader.close()
    return found


def reused(lake: Path) -> set[str]:
    """Return the child's units that were reused."""
    with closing(sqlite3.connect(run_folder(lake, CHILD) / "journal.sqlite")) as journal:
        said = journal.execute("SELECT key, telemetry FROM units WHERE done").fetchall()
    return {key for key, telemetry in said if "reused" in json.loads(telemetry)}


def spent_questions(lake: Path) -> int:
    return sum(calls(lake).values())


def test_unchanged_fork_queries_nobody(parent):
    before = spent_questions(parent.lake)
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert spent_questions(parent.lake) == before
    assert whole(parent.lake, CHILD) == parent.whole
    assert reused(parent.lake) == set(parts(parent.lake, RUN))


def test_reuses_units_whose_keys_hold(parent):
    config = small_config(parent.prompts, "critic.attempts=3")
    with pytest.raises(ConfigError, match=r"another configuration"):
        loop(parent.lake, config=config)
    before = calls(parent.lake)
    loop(parent.lake, config=config, name=CHILD, fork=RUN)
    mine, theirs = parts(parent.lake, CHILD), parts(parent.lake, RUN)
    assert reused(parent.lake) == set(mine) & set(theirs)
    first = {p.stage: unit in theirs for unit in mine for p in mine[unit] if p.iteration == 1}
    stages = ("sample", "critique:sample", "refine", "pair", "train")
    assert [first[stage] for stage in stages] == [True, False, False, False, False]
    assert calls(parent.lake) - before
    fresh = parent.lake / "fresh"
    fresh.mkdir()
    loop(fresh, config=config)
    assert whole(parent.lake, CHILD) == whole(fresh)


def test_child_is_whole_without_parent(parent):
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    shutil.rmtree(run_folder(parent.lake, RUN))
    assert whole(parent.lake, CHILD) == parent.whole
    loop(parent.lake, config=parent.config.model_copy(update={"iterations": 3}), name=CHILD)
    found = whole(parent.lake, CHILD)
    assert (found.pending, found.damaged) == ([], [])
    assert found.rows["checkpoints"] == 4


def test_damaged_in_parent_made_by_child(parent, caplog):
    folder = run_folder(parent.lake, RUN)
    flip(next((folder / "files" / "critiques").iterdir()))
    truncate(next((folder / "checkpoints").glob("*/extra/weights")))
    with caplog.at_level(logging.WARNING):
        loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert "the fork makes it itself" in caplog.text
    assert whole(parent.lake, CHILD) == parent.whole


def test_fork_of_nothing_refused(parent):
    with pytest.raises(ConfigError, match="no such run"):
        loop(parent.lake, config=parent.config, name=CHILD, fork="nobody")
    assert not run_folder(parent.lake, CHILD).exists()
    with pytest.raises(ConfigError, match="exists already"):
        loop(parent.lake, config=parent.config, name=RUN, fork=RUN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dry-run", "--reuse-from", "no-such-run"), "no such run"),
        (("--dry-run", "--reuse-from", RUN, "--run", RUN), "exists already"),
        (("--dry-run", "--detach"), "--detach"),
        (("--seeds", "3"), "--seeds"),
        (("--seeds", "3", "--dry-run"), "--seeds"),
    ],
)
def test_dropped_options_are_refused(
    finished: SimpleNamespace, words: tuple[str, ...], said: str
) -> None:
    before = sorted(finished.lake.rglob("*"))
    prompts = f"--prompts={finished.prompts}"
    told = CliRunner().invoke(app, ["run", prompts, "--lake", str(finished.lake), *words])
    assert told.exit_code == Exit.BAD_INPUT, told.output
    assert said in told.stderr
    assert sorted(finished.lake.rglob("*")) == before


def test_plan_of_a_fork_names_its_parent(finished: SimpleNamespace) -> None:
    plan = plan_run(
        finished.config, required_prompts(finished.config, finished.lake), finished.lake, fork=RUN
    )
    assert any(RUN in line for line in plan_lines(plan))
