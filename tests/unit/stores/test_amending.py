"""A done unit can be replaced by the result of more work, under another key."""

from contextlib import closing
from dataclasses import replace

import pytest
from rows import PREFERENCE, REWARD

from lpfloop.stores.committer import Finished
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import AMENDED, Journal
from lpfloop.stores.journal_file import check_journal
from lpfloop.stores.journal_reader import Cost, JournalError
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.records import Preference, Reward

UNREAD = [
    replace(PREFERENCE, preference_id=f"pref-{n}", preferred=None, status="empty") for n in (0, 1)
]
READ = [replace(row, preferred="tie", status="scored") for row in UNREAD]


EDGES = {"asked": [], "other": [], "made": ["asked-1"]}
"""Inputs of the stages of iteration 1: stages by identity, or units by key."""


@pytest.fixture
def writer(tmp_path):
    writer = RunWriter(Journal.create(run_folder(tmp_path, "a"), {"config": "{}"}))
    for stage, upstream in EDGES.items():
        keys = [f"{stage}-0", f"{stage}-1"]
        writer.journal.plan(1, stage, stage, lambda keys=keys: keys, upstream=upstream)
    writer.journal.plan(2, "later", "later", lambda: ["later-0"], decided_by=(1, "made"))
    writer.journal.plan(2, "last", "last", lambda: ["last-0"], upstream=["later"])
    for n in (0, 1):
        writer.commit(f"asked-{n}", {Preference: [UNREAD[n]]}, {"tokens": 5, "unscored": 1})
        writer.commit(f"other-{n}", {Reward: [REWARD]}, {"tokens": 2})
        writer.commit(f"made-{n}", {Reward: [REWARD]}, {"tokens": 3})
    writer.flush()
    yield writer
    writer.close()


def amend(writer, unit="asked-0"):
    more = {"tokens": 7, "unscored": -1}
    result = Finished(unit="again", tables={Preference: [READ[0]]}, telemetry=more)
    writer.amend(unit, result, {"replies": 4})


def preferences(writer):
    with closing(RunReader(writer.folder)) as reader:
        return sorted(reader.scan("preferences").select("preference_id", "status").collect().rows())


def test_amended_rows_replace_old(writer):
    amend(writer)
    assert preferences(writer) == [("pref-0", "scored"), ("pref-1", "empty")]
    assert writer.journal.keys(1, "asked") == ["again", "asked-1"]
    assert writer.rows(Preference, "again") == [READ[0]]
    assert not writer.journal.is_done("asked-0")
    assert writer.journal.events(AMENDED) == [{"unit": "again", "before": "asked-0", "replies": 4}]


def test_only_dependents_forgotten(writer):
    amend(writer)
    states = {state.stage: state for state in writer.journal.stages()}
    assert set(states) == {"asked", "other", "later", "last"}
    assert (states["asked"].done, states["asked"].planned) == (2, 2)
    assert states["asked"].totals == {"tokens": 17, "unscored": 1}
    assert writer.journal.total_cost() == Cost(tokens=17 + 4 + 6), "what is forgotten stays spent"


def test_new_decision_replaces_stages(writer):
    with pytest.raises(JournalError, match="later"):
        writer.journal.plan(2, "later", "with another policy", list)
    amend(writer)
    assert writer.journal.plan(2, "later", "with another policy", lambda: ["new-0"]) == 1
    assert writer.journal.keys(2, "later") == ["new-0"]
    assert not writer.journal.keys(2, "last")
    with pytest.raises(JournalError, match="later"):
        writer.journal.plan(2, "later", "with a third policy", list)


def test_same_decision_keeps_stages(writer):
    amend(writer)
    assert writer.journal.plan(2, "later", "later", list) == 1
    assert writer.journal.keys(2, "last") == ["last-0"]
    with pytest.raises(JournalError, match="later"):
        writer.journal.plan(2, "later", "with another policy", list)


def test_amending_sealed_rows(writer):
    writer.seal()
    assert writer.journal.unsealed_stages() == []
    amend(writer)
    assert preferences(writer) == [("pref-0", "scored"), ("pref-1", "empty")]
    assert writer.rows(Preference, "asked-1") == [UNREAD[1]]
    check_journal(writer.folder)
    assert list(damages(writer.journal, deep=True)) == []
