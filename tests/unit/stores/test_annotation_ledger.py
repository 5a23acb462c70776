"""The ledger of judgements: durable with each click, for several people at once."""

import stat
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from lpfloop.loop.lake.annotations.judging_queue import Overlap, Taken, next_place
from lpfloop.stores.annotation_ledger import (
    LEDGER,
    AnnotationLedger,
    LedgerEntry,
    LedgerError,
    entries,
)

ITEMS = [f"item-{number}" for number in range(12)]
TWICE = Overlap(share=1, people=2)


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


def test_each_judgement_is_kept_at_once(folder):
    """The test closes nothing, like a kill."""
    ledger = begun(folder)
    for _ in range(3):
        ledger.give(said(assigned(ledger, "ada") or "", "ada"))
    assigned(ledger, "ada")
    assert [entry.item for entry in entries(folder)] == ITEMS[:3]
    assert stat.S_IMODE((folder / LEDGER).stat().st_mode) == 0o600
    with closing(begun(folder)) as again:
        assert assigned(again, "ada") == ITEMS[3]
    ledger.close()


def test_people_share_a_queue(folder):
    names = ["ada", "bo", "cy"]
    ledgers = {name: begun(folder) for name in names}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if (item := assigned(ledgers[name], name)) is not None:
            ledgers[name].give(said(item, name))
            waiting.append(name)
    for ledger in ledgers.values():
        ledger.close()
    given = entries(folder)
    assert Counter(entry.item for entry in given) == dict.fromkeys(ITEMS, 2)
    assert max(Counter((entry.item, entry.annotator) for entry in given).values()) == 1


def test_judges_only_held_once(folder):
    with closing(begun(folder)) as ledger:
        item = assigned(ledger, "ada") or ""
        assert assigned(ledger, "ada") == item, "the same until it is judged"
        ledger.give(said(item, "ada"))
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.give(said(item, "ada"))
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.skip(item, "bo")


def test_undo(folder):
    with closing(begun(folder)) as ledger:
        assert ledger.undo("q", "ada") is None
        first = assigned(ledger, "ada") or ""
        ledger.give(said(first, "ada"))
        second = assigned(ledger, "ada")
        assert ledger.undo("q", "ada") == first
        assert assigned(ledger, "ada") == first
        assert ledger.waiting() == []
        assert [entry.undone for entry in ledger.judgments()] == [1], "it is told, and not lost"
        ledger.give(said(first, "ada", '{"again":1}'))
        assert assigned(ledger, "ada") == second
        (left,) = ledger.waiting()
        ledger.came_in([left.number], "unit")
        with pytest.raises(LedgerError, match="already in the run"):
            ledger.undo("q", "ada")


def test_bucket_refused(folder):
    (folder.parent.parent / "BUCKET").write_text("s3://things/lake\n")
    with pytest.raises(LedgerError, match="s3://things/lake is a bucket"):
        AnnotationLedger(folder)
    assert not (folder / LEDGER).exists()
