"""A run's units: planned once, done once, visible only after the commit."""

from contextlib import closing

import pytest
from rows import CANDIDATE, PROMPT, REWARD

from lpfloop.stores import journal_file
from lpfloop.stores.journal import ContradictionError, Journal, KeptSlice
from lpfloop.stores.journal_file import JOURNAL_VERSION, open_journal
from lpfloop.stores.journal_reader import Cost, JournalError, Reader
from lpfloop.stores.lake import PendingAgainError, RunNameError, RunReader, RunWriter, run_folder
from lpfloop.stores.records import Candidate, Prompt, Reward


def plan(writer, stage, keys, *, iteration=1):
    return writer.journal.plan(iteration, stage, " ".join(keys), lambda: keys)


def commit(writer, key, tables, **telemetry):
    writer.commit(key, tables, telemetry)
    writer.flush()


def pending(writer, stage, *, iteration=1):
    return [unit.key for unit in writer.journal.pending(iteration, stage)]


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    writer = RunWriter(Journal.create(folder, {"config": "{}"}))
    yield writer
    writer.close()


def test_commit_read_back(writer):
    assert plan(writer, "sample", ["k0", "k1"]) == 2
    settled = list[str]()
    writer.on_settled = settled.extend
    commit(writer, "k1", {Candidate: [CANDIDATE]}, tokens=2)
    assert settled == ["k1"]
    assert pending(writer, "sample") == ["k0"]
    assert writer.rows(Candidate, "k1") == [CANDIDATE]
    with pytest.raises(JournalError, match="no candidates"):
        writer.rows(Candidate, "k0")


def test_rows_in_order_of_plan(writer, folder):
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


def test_planning_again(writer):
    plan(writer, "sample", ["k0", "k1"])
    commit(writer, "k0", {Candidate: [CANDIDATE]})
    plan(writer, "sample", ["k0", "k1"])
    assert pending(writer, "sample") == ["k1"]
    with pytest.raises(JournalError, match="other inputs"):
        plan(writer, "sample", ["k0", "k2"])


def test_newer_version_refused(subtests, writer, folder):
    newer = ("UPDATE meta SET value = '99' WHERE key = 'schema'", "PRAGMA user_version = 99")
    for change in newer:
        with subtests.test(case=change):
            with closing(open_journal(folder, writable=True)) as opened:
                opened.database.execute(change)
            with pytest.raises(JournalError, match="upgrade lpfloop"):
                Reader(folder)


def test_older_version_refused(subtests, tmp_path, monkeypatch):
    folder = run_folder(tmp_path, "older")
    Journal.create(folder, {}).close()
    monkeypatch.setattr(journal_file, "JOURNAL_VERSION", JOURNAL_VERSION + 1)
    for journal in (Reader, Journal):
        with subtests.test(case=journal), pytest.raises(JournalError, match="older lpfloop"):
            journal(folder)


def test_run_names_refused(subtests, tmp_path):
    for name in ["../x", "/abs", "", "A", ".hidden", "x" * 65, "a\0b"]:
        with subtests.test(case=name), pytest.raises(RunNameError, match="not allowed"):
            run_folder(tmp_path, name)


def damage(writer):
    writer.seal()
    (path,) = writer.folder.glob("files/rewards/*")
    path.write_bytes(path.read_bytes()[:-1])


def test_damaged_rows_owed_again(writer, folder):
    plan(writer, "reward", ["k"])
    commit(writer, "k", {Reward: [REWARD]})
    damage(writer)
    with pytest.raises(PendingAgainError, match="pending again"):
        writer.rows(Reward, "k")
    assert pending(writer, "reward") == ["k"]
    assert len(list((folder / "quarantine").iterdir())) == 1
    commit(writer, "k", {Reward: [REWARD]})
    assert writer.rows(Reward, "k") == [REWARD]
    assert writer.journal.damaged_units() == []


def test_different_rows_refused(writer, folder):
    plan(writer, "reward", ["k"])
    plan(writer, "pair", ["later"])
    commit(writer, "k", {Reward: [REWARD]})
    damage(writer)
    with pytest.raises(PendingAgainError):
        writer.rows(Reward, "k")
    other = Reward(**{**_fields(REWARD), "score": 9.0, "status": "scored"})
    with pytest.raises(ContradictionError, match=r"repair a .*--redo"):
        commit(writer, "k", {Reward: [other]})
    assert pending(writer, "reward") == ["k"]
    writer.close()
    journal = Journal(folder)
    assert journal.redo() == 1
    assert [stage.stage for stage in journal.stages()] == ["reward"]
    again = RunWriter(journal)
    commit(again, "k", {Reward: [other]})
    assert again.rows(Reward, "k") == [other]
    again.close()
    writer.journal = Journal(folder)


def test_reserved_counts_after_crash(writer, folder):
    plan(writer, "sample", ["k0", "k1"])
    writer.journal.reserve("k0", Cost(tokens=100, judge_calls=3, money=0.5))
    writer.journal.reserve("k1", Cost(tokens=50))
    commit(writer, "k0", {Candidate: [CANDIDATE]}, tokens=7, money=0.25)
    assert writer.journal.total_cost() == Cost(tokens=57, money=0.25)
    writer.close()
    writer.journal = Journal(folder)
    assert writer.journal.total_cost() == Cost(tokens=57, money=0.25)


def test_kept_replies(writer):
    plan(writer, "critique", ["k"])
    journal = writer.journal
    for slice_ in ("0", "1"):
        journal.reserve("k", Cost(tokens=50), slice_=slice_)
    journal.keep([KeptSlice(unit="k", slice_="0", cost=Cost(tokens=20), replies="said")])
    assert journal.total_cost() == Cost(tokens=70)
    assert journal.replies("k") == ["said"]
    commit(writer, "k", {Candidate: [CANDIDATE]}, tokens=60)
    assert journal.total_cost() == Cost(tokens=60)
    assert journal.replies("k") == []


def test_seconds_of_stages_side_by_side(writer):
    for stage in ("sample", "critique"):
        plan(writer, stage, [f"{stage}-0"])
    writer.journal.add_seconds(1, "sample", 10.0)
    writer.journal.add_seconds(1, "critique", 8.0, twice=3.0)
    writer.journal.add_seconds(1, "critique", 4.0, twice=2.0)
    assert writer.journal.seconds() == 17.0
