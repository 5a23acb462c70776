"""The ledger of judgements: durable with each click, several people at once, beside the run."""

import multiprocessing
import os
import signal
import stat
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from lpfloop.loop.data.assignments import Overlap, Taken, next_place
from lpfloop.stores.annotation_ledger import (
    LEDGER,
    AnnotationLedger,
    LedgerEntry,
    LedgerError,
    entries,
)

ITEMS = [f"item-{number}" for number in range(12)]
TWICE = Overlap(share=1, people=2)
SPAWN = multiprocessing.get_context("spawn")
ENDS_S = 300
"""More than a very busy machine takes to start a process and let it judge."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "lake" / "runs" / "a"
    folder.mkdir(parents=True)
    return folder


def begun(folder: Path) -> AnnotationLedger:
    ledger = AnnotationLedger(folder)
    ledger.begin("q", "{}", lambda: ITEMS)
    return ledger


def assigned(ledger: AnnotationLedger, who: str) -> str | None:
    return ledger.assign(
        "q", who, lambda holders, seen: next_place(12, TWICE, Taken(holders=holders, seen=seen))
    )


def said(item: str, who: str, row: str = "{}") -> LedgerEntry:
    return LedgerEntry(queue="q", item=item, annotator=who, at=1.0, seconds=2.0, row=row)


def judge_and_die(folder: Path) -> None:
    ledger = begun(folder)
    for _ in range(3):
        ledger.give(said(assigned(ledger, "ada") or "", "ada"))
    assigned(ledger, "ada")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.crash
def test_what_was_judged_survives_a_kill_and_so_does_what_was_assigned(folder):
    process = SPAWN.Process(target=judge_and_die, args=(folder,))
    process.start()
    process.join(ENDS_S)
    assert process.exitcode == -signal.SIGKILL
    assert [entry.item for entry in entries(folder)] == ITEMS[:3]
    with closing(begun(folder)) as ledger:
        assert assigned(ledger, "ada") == ITEMS[3]


def judge_all(folder: Path, who: str) -> None:
    with closing(begun(folder)) as ledger:
        while (item := assigned(ledger, who)) is not None:
            ledger.give(said(item, who))


@pytest.mark.crash
def test_people_in_several_processes_share_a_queue(folder):
    names = ["ada", "bo", "cy"]
    processes = [SPAWN.Process(target=judge_all, args=(folder, name)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(ENDS_S)
        assert process.exitcode == 0
    given = entries(folder)
    assert Counter(entry.item for entry in given) == dict.fromkeys(ITEMS, 2)
    assert max(Counter((entry.item, entry.annotator) for entry in given).values()) == 1


def test_a_person_judges_only_what_they_hold_and_only_once(folder):
    with closing(begun(folder)) as ledger:
        item = assigned(ledger, "ada") or ""
        assert assigned(ledger, "ada") == item, "the same until it is judged"
        ledger.give(said(item, "ada"))
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.give(said(item, "ada"))
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.skip(item, "bo")


def test_a_judgement_can_be_taken_back_until_it_is_in_the_run(folder):
    with closing(begun(folder)) as ledger:
        assert ledger.undo("q", "ada") is None
        first = assigned(ledger, "ada") or ""
        ledger.give(said(first, "ada"))
        second = assigned(ledger, "ada")
        assert ledger.undo("q", "ada") == first
        assert assigned(ledger, "ada") == first
        assert ledger.waiting() == []
        assert [entry.undone for entry in ledger.given()] == [1], "it is told, and not lost"
        ledger.give(said(first, "ada", '{"again":1}'))
        assert assigned(ledger, "ada") == second
        (left,) = ledger.waiting()
        ledger.came_in([left.number], "unit")
        with pytest.raises(LedgerError, match="in the run already"):
            ledger.undo("q", "ada")


def test_what_somebody_leaves_lying_goes_to_others_after_a_while(folder, monkeypatch):
    with closing(begun(folder)) as ledger:
        ledger.begin("single", "{}", lambda: ITEMS[:1])
        once = Overlap(share=0, people=2)

        def given(who: str) -> str | None:
            return ledger.assign(
                "single",
                who,
                lambda holders, seen: next_place(1, once, Taken(holders=holders, seen=seen)),
            )

        assert given("ada") == ITEMS[0]
        assert given("bo") is None
        monkeypatch.setattr("lpfloop.stores.annotation_ledger.LAPSE_S", -1.0)
        assert given("bo") == ITEMS[0]


def test_it_is_readable_by_its_owner_alone(folder):
    begun(folder).close()
    assert stat.S_IMODE((folder / LEDGER).stat().st_mode) == 0o600


def test_a_file_that_is_no_ledger_is_named(folder):
    (folder / LEDGER).write_bytes(b"no database, but text that is long enough to be one" * 40)
    with pytest.raises(LedgerError, match=r"annotations.sqlite cannot be opened"):
        AnnotationLedger(folder)


def test_a_bucket_is_refused_in_a_sentence(folder):
    (folder.parent.parent / "BUCKET").write_text("s3://things/lake\n")
    with pytest.raises(LedgerError, match="s3://things/lake is a bucket"):
        AnnotationLedger(folder)
    assert not (folder / LEDGER).exists()


def test_looking_makes_no_ledger(folder):
    assert entries(folder) == []
    assert not (folder / LEDGER).exists()


def test_a_ledger_in_an_archive_is_read_and_not_written(folder, monkeypatch):
    with closing(begun(folder)) as ledger:
        ledger.give(said(assigned(ledger, "ada") or "", "ada"))
    # Root may write anywhere, so that a mode alone would not keep it out.
    monkeypatch.setattr("lpfloop.stores.annotation_ledger.os.access", lambda *_: False)
    assert [entry.annotator for entry in entries(folder)] == ["ada"]
    with closing(AnnotationLedger(folder)) as ledger, pytest.raises(LedgerError, match="written"):
        assigned(ledger, "ada")
