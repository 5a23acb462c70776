"""A run's units are planned once, done once, and visible only when committed."""

import os
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import CANDIDATE, PROMPT, REWARD
from lpfloop.stores.committer import Finished
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import ContradictionError, FencedError, Journal
from lpfloop.stores.journal_reader import Cost, JournalError, Reader
from lpfloop.stores.lake import (
    OwedAgainError,
    RunNameError,
    RunReader,
    RunWriter,
    run_folder,
    run_names,
)
from lpfloop.stores.lock import LockedError
from lpfloop.stores.records import Candidate, Prompt, Reward


def plan(writer, stage, keys, *, iteration=1):
    return writer.journal.plan(iteration, stage, " ".join(keys), lambda: keys)


def commit(writer, key, tables, **telemetry):
    writer.commit(key, tables, telemetry)
    writer.flush()


def owed(writer, stage, *, iteration=1):
    return [unit.key for unit in writer.journal.owed(iteration, stage)]


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    writer = RunWriter(Journal.create(folder, {"config": "{}"}))
    yield writer
    writer.close()


def test_what_endpoints_said_they_are_is_counted_by_stage_and_kept_out_of_the_digest(writer):
    new, old = ({"model": "judge", "system_fingerprint": name} for name in ("fp-new", "fp-old"))
    plan(writer, "sample", ["s0", "s1"])
    plan(writer, "critique", ["c0", "c1", "c2"])
    commit(writer, "s0", {Candidate: [CANDIDATE]})
    before = run_digest(writer.folder)
    writer.commit("s1", {Candidate: []}, {})
    for unit, said in (("c0", [old, old]), ("c1", [old]), ("c2", [new, old])):
        writer.commit(unit, {Reward: []}, {}, said)
    writer.flush()
    assert [(s.iteration, s.stage, s.said, s.units) for s in writer.journal.served()] == [
        (1, "critique", new, 1),
        (1, "critique", old, 3),
    ]
    again = Finished(unit="c3", tables={Reward: []}, telemetry={}, served=[new])
    writer.amend("c0", again, [], {})
    assert [s.units for s in writer.journal.served()] == [2, 3]
    assert run_digest(writer.folder) == before


def test_a_committed_unit_is_read_back_and_an_uncommitted_one_is_not(writer):
    assert plan(writer, "sample", ["k0", "k1"]) == 2
    settled = list[str]()
    writer.on_settled = settled.extend
    commit(writer, "k1", {Candidate: [CANDIDATE]}, tokens=2)
    assert settled == ["k1"]
    assert owed(writer, "sample") == ["k0"]
    assert writer.rows(Candidate, "k1") == [CANDIDATE]
    with pytest.raises(JournalError, match="no candidates"):
        writer.rows(Candidate, "k0")


def test_readers_see_rows_in_the_order_of_the_plan(writer, folder):
    plan(writer, "prompts", ["k0", "k1"])
    second = Prompt(**{**_fields(PROMPT), "prompt_id": "prompt-2"})
    commit(writer, "k1", {Prompt: [second]})
    commit(writer, "k0", {Prompt: [PROMPT]})
    reader = RunReader(folder)
    assert reader.scan("prompts").collect()["prompt_id"].to_list() == ["prompt-1", "prompt-2"]
    assert reader.scan("pairs").collect().height == 0
    reader.close()


def _fields(row):
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_a_unit_is_done_once_and_the_first_result_stays(writer):
    plan(writer, "reward", ["k"])
    commit(writer, "k", {Reward: [REWARD]})
    other = Reward(**{**_fields(REWARD), "score": 9.0, "status": "scored"})
    commit(writer, "k", {Reward: [other]})
    assert writer.rows(Reward, "k") == [REWARD]


def test_planning_again_changes_nothing_and_another_plan_is_refused(writer):
    plan(writer, "sample", ["k0", "k1"])
    commit(writer, "k0", {Candidate: [CANDIDATE]})
    plan(writer, "sample", ["k0", "k1"])
    assert owed(writer, "sample") == ["k1"]
    with pytest.raises(JournalError, match="other inputs"):
        plan(writer, "sample", ["k0", "k2"])


@settings(max_examples=15)
@given(planned=st.integers(1, 6), shares=st.lists(st.integers(0, 3), max_size=3))
def test_however_often_a_run_is_interrupted_each_unit_is_paid_once(
    tmp_path_factory, planned, shares
):
    folder = run_folder(tmp_path_factory.mktemp("lake"), "a")
    keys = [f"k{n}" for n in range(planned)]
    paid = []
    Journal.create(folder, {}).close()
    for share in (*shares, planned):
        writer = RunWriter(Journal(folder))
        plan(writer, "reward", keys)
        for key in owed(writer, "reward")[:share]:
            commit(writer, key, {Reward: [REWARD]})
            paid.append(key)
        writer.close()
    assert sorted(paid) == keys
    reader = RunReader(folder)
    assert reader.scan("rewards").collect().height == len(keys)
    reader.close()


def test_a_second_process_can_not_take_the_run(writer, folder):
    code = (
        "import sys; from pathlib import Path\n"
        "from lpfloop.stores.journal import Journal\n"
        "from lpfloop.stores.lock import LockedError\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except LockedError as error: print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert f"pid {os.getpid()}" in told.stdout


def test_an_overtaken_holder_can_not_commit(writer, folder):
    plan(writer, "reward", ["k"])
    other = sqlite3.connect(folder / "journal.sqlite")
    other.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
    other.commit()
    other.close()
    with pytest.raises(FencedError):
        commit(writer, "k", {Reward: [REWARD]})
    assert owed(writer, "reward") == ["k"]


@pytest.mark.parametrize("what", ["journal", "schema"])
def test_a_lake_of_a_newer_version_is_refused(writer, folder, what):
    db = sqlite3.connect(folder / "journal.sqlite")
    if what == "journal":
        db.execute("PRAGMA user_version = 99")
    else:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    db.commit()
    db.close()
    with pytest.raises(JournalError, match="upgrade lpfloop"):
        Reader(folder)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/abs", "", "A", ".hidden", "x" * 65, "a\0b", "a b"]
)
def test_run_names_can_not_leave_the_lake(tmp_path, name):
    with pytest.raises(RunNameError, match="not allowed"):
        run_folder(tmp_path, name)


def test_the_run_written_last_comes_last(tmp_path):
    for name in ("b", "a"):
        Journal.create(run_folder(tmp_path, name), {}).close()
    os.utime(run_folder(tmp_path, "b") / "journal.sqlite", ns=(1, 1))
    assert run_names(tmp_path) == ["b", "a"]


def test_two_holders_in_one_process_are_refused_too(writer, folder):
    with pytest.raises(LockedError):
        Journal(folder)


def test_a_stage_planned_before_is_not_computed_again(writer):
    plan(writer, "sample", ["k0", "k1"])

    def never():
        raise AssertionError

    assert writer.journal.plan(1, "sample", "k0 k1", never) == 2


def test_sums_of_telemetry_are_kept_with_the_stage(writer):
    plan(writer, "reward", ["k0", "k1"])
    commit(writer, "k0", {Reward: [REWARD]}, tokens=2, rows=1)
    commit(writer, "k1", {Reward: [REWARD]}, tokens=3, rows=1)
    commit(writer, "k1", {Reward: [REWARD]}, tokens=5, rows=1)
    (stage,) = writer.journal.stages()
    assert (stage.done, stage.totals) == (2, {"tokens": 5, "rows": 2})


def damage(writer, key):
    path = writer.verified_path(Reward, key)
    path.write_bytes(path.read_bytes()[:-1])


def test_damaged_rows_are_put_aside_and_owed_again(writer, folder):
    plan(writer, "reward", ["k"])
    commit(writer, "k", {Reward: [REWARD]})
    damage(writer, "k")
    with pytest.raises(OwedAgainError, match="owed again"):
        writer.rows(Reward, "k")
    assert owed(writer, "reward") == ["k"]
    assert len(list((folder / "quarantine").iterdir())) == 1
    commit(writer, "k", {Reward: [REWARD]})
    assert writer.rows(Reward, "k") == [REWARD]
    assert writer.journal.lost() == []


def test_rows_that_come_out_different_are_refused_until_somebody_says_redo(writer, folder):
    plan(writer, "reward", ["k"])
    plan(writer, "pair", ["later"])
    commit(writer, "k", {Reward: [REWARD]})
    damage(writer, "k")
    with pytest.raises(OwedAgainError):
        writer.rows(Reward, "k")
    other = Reward(**{**_fields(REWARD), "score": 9.0, "status": "scored"})
    with pytest.raises(ContradictionError, match="repair a --redo"):
        commit(writer, "k", {Reward: [other]})
    assert owed(writer, "reward") == ["k"]
    writer.close()
    journal = Journal(folder)
    assert journal.redo() == 1
    assert [stage.stage for stage in journal.stages()] == ["reward"]
    again = RunWriter(journal)
    commit(again, "k", {Reward: [other]})
    assert again.rows(Reward, "k") == [other]
    again.close()
    writer.journal = Journal(folder)


def test_what_was_reserved_counts_as_spent_after_a_crash(writer, folder):
    plan(writer, "sample", ["k0", "k1"])
    writer.journal.reserve("k0", Cost(tokens=100, judge_calls=3, money=0.5))
    writer.journal.reserve("k1", Cost(tokens=50))
    commit(writer, "k0", {Candidate: [CANDIDATE]}, tokens=7, money=0.25)
    assert writer.journal.spent() == Cost(tokens=57, money=0.25)
    writer.close()
    writer.journal = Journal(folder)
    assert writer.journal.spent() == Cost(tokens=57, money=0.25)
