"""Undecided annotations can be requested again, until a model has learned from the others."""

from contextlib import closing, suppress
from functools import partial

import pytest
from judges import judged_config
from typer.testing import CliRunner
from world import KILLED, RUN, Attempt, Silent, calls, copied, stand_ins, write_prompts

from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import SCORED, Pair, Preference

UNTRAINED = (
    "iterations=1",
    "prompts.held_out_share=0.25",
    "prompts.per_iteration=24",
    "prompts.max_test=2",
    "prompts.max_dev=2",
    "prompts.chunk=10",
    "training.min_pairs=1000000",
    "annotation.flip_probability=0.1",
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Make configurations of runs whose annotators decide one time in two."""
    folder = tmp_path_factory.mktemp("asked")
    source = f"prompts.source={write_prompts(folder, 48)}"
    return lambda *more: judged_config(folder, "unsure", *UNTRAINED, source, *more)


@pytest.fixture(scope="module")
def paired(config, tmp_path_factory):
    """A lake whose run has made its pairs, some of them undecided."""
    folder = tmp_path_factory.mktemp("paired")
    turned(folder, config())
    return folder


@pytest.fixture
def lake(paired, tmp_path):
    return copied(paired, tmp_path / "lake")


def turned(lake, config, *, name=RUN, again=False):
    """Run the loop until it ends for lack of pairs."""
    job = Job(config=config, lake=lake, name=name, retry_unscored=again)
    with stand_ins(lake), suppress(NothingToTrainOn):
        run_loop(job, Silent(), StopSignal())


def rows(lake, row_type=Preference, table="preferences", name=RUN):
    with closing(RunReader(run_folder(lake, name))) as reader:
        return sorted(frame_rows(row_type, reader.scan(table).collect()), key=repr)


def unread(found):
    return [row for row in found if row.status != SCORED]


def test_asked_again_as_if_allowed_at_first(lake, config):
    before, pairs, asked = rows(lake), rows(lake, Pair, "pairs"), calls(lake)
    turned(lake, config(), again=True)
    after = rows(lake)
    assert len(unread(after)) < len(unread(before))
    kept = {row.preference_id: row for row in after}
    assert all(kept[row.preference_id] == row for row in before if row.status == SCORED)
    assert kept.keys() == {row.preference_id for row in before}
    assert len(rows(lake, Pair, "pairs")) > len(pairs)
    assert sum((calls(lake) - asked).values()) == 0, "no candidate was drawn again"
    turned(lake, config("annotation.attempts=4"), name="b")
    assert after == rows(lake, name="b")
    assert rows(lake, Pair, "pairs") == rows(lake, Pair, "pairs", name="b")


def resume(lake):
    with stand_ins(lake):
        return CliRunner().invoke(app, ["resume", RUN, "--retry-unscored", "--lake", str(lake)])


def test_resume_asks_again(lake):
    before = unread(rows(lake))
    done = resume(lake)
    assert done.exit_code == Exit.NOTHING_TO_TRAIN_ON, done.output
    assert "iteration 1, annotate:sample:one" in done.stderr
    assert len(unread(rows(lake))) < len(before)


def test_trained_rows_not_rejudged(lake):
    with closing(Journal(run_folder(lake, RUN))) as journal:
        (unit,) = journal.keys(1, "train")
        journal.commit([Done(unit=unit, parts={}, telemetry={})])
    before = rows(lake)
    with closing(Reader(run_folder(lake, RUN))) as reader:
        events = len(reader.all_events())
        done = resume(lake)
        assert done.exit_code == Exit.BAD_INPUT
        assert "iteration 1 has trained" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert len(reader.all_events()) == events
    assert rows(lake) == before


@pytest.mark.crash
def test_killed_while_asking_again(lake, config):
    before = rows(lake)
    again = partial(turned, config=config(), again=True)
    points = {"journal.amend.after#1": "kill"}
    assert Attempt(lake=lake, work=again, points=points).start() == KILLED
    assert all(row.preferred is None for row in unread(rows(lake)))
    Attempt(lake=lake, work=partial(turned, config=config())).finish()
    found = rows(lake)
    assert {row.preference_id for row in found} == {row.preference_id for row in before}
    assert len(found) == len(before)
    decided = [row for row in found if row.preferred in ("first", "second")]
    assert len(rows(lake, Pair, "pairs")) == len(decided)
