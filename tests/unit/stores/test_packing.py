"""Packing puts rows into fewer files, and changes nothing that anybody reads."""

import dataclasses
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lakes import make_units, plan_units, unit_rows, unordered_candidates
from rows import CANDIDATE, CRITIQUE, PAIR, REWARD, YIELD

from lpfloop.stores import packing
from lpfloop.stores.digest import canonical_rows, run_digest
from lpfloop.stores.failpoints import armed
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import OwedAgainError, RunReader, RunWriter, run_folder
from lpfloop.stores.packing import pack_all
from lpfloop.stores.records import Candidate, Critique, Pair
from lpfloop.stores.schemas import to_table

UNITS = 12


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    writer = make_units(folder, [3 + chunk % 4 for chunk in range(UNITS)])
    yield writer
    writer.close()


def files(folder: Path, place: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob(f"{place}/*/*.parquet"))


def contents(folder: Path) -> dict[str, pl.DataFrame]:
    with closing(RunReader(folder)) as reader:
        return {
            table: reader.scan(table).collect().sort(pl.all().exclude("aspects"))
            for table in ("candidates", "critiques")
        }


def test_few_files_same_rows(writer, folder):
    rows = {key: writer.rows(Candidate, key) for key in keys(writer)}
    before, digest, parts = contents(folder), run_digest(folder), writer.journal.parts()
    assert pack_all(writer.journal) == 3 * UNITS
    assert files(folder, "parts") == []
    assert len(files(folder, "packs")) == 3
    after = contents(folder)
    assert all(after[table].equals(before[table]) for table in before)
    assert list(after["candidates"].columns) == list(before["candidates"].columns)
    assert run_digest(folder) == digest
    assert {key: writer.rows(Candidate, key) for key in rows} == rows
    packed = writer.journal.parts()
    assert [dataclasses.replace(part, pack=None) for part in packed] == parts
    assert [writer.rows(Pair, unit) for unit in ("1-3", "1-4")] == [[PAIR], []]
    for part in (part for part in parts if part.table == "critiques"):
        assert writer.verified_path(Critique, part.unit).stem == part.sha256


def keys(writer: RunWriter) -> list[str]:
    return writer.journal.keys(1, "sample")


@settings(max_examples=3)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    fewest=st.integers(2, 4),
    rows=st.integers(1, 20),
)
@example(counts=[0, 0, 2, 0, 0], fewest=2, rows=1)
def test_digest_stays_whatever_packed(tmp_path_factory, counts, fewest, rows):
    folder = run_folder(tmp_path_factory.mktemp("lake"), "a")
    with closing(make_units(folder, counts)) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "FEWEST", fewest)
        patch.setattr(packing, "ROWS", rows)
        before = run_digest(folder), contents(folder)["candidates"]
        pack_all(writer.journal)
        assert run_digest(folder) == before[0]
        assert contents(folder)["candidates"].equals(before[1])
        wanted = [unordered_candidates(chunk, count) for chunk, count in enumerate(counts)]
        assert [writer.rows(Candidate, key) for key in keys(writer)] == wanted


def test_digest_writes_canonical_json():
    odd = dataclasses.replace(CANDIDATE, text='"\\\n\t\x01é\u2028😀', logprob=1e-300, parent_id="")
    for rows in ([CANDIDATE, odd], [CRITIQUE], [PAIR], [REWARD], [YIELD]):
        table = to_table(type(rows[0]), rows)
        assert list(canonical_rows(table)) == [canonical_json(row) for row in table.to_pylist()]


def test_digest_silent_without_thought():
    thought = dataclasses.replace(CANDIDATE, reasoning="so")
    texts = list(canonical_rows(to_table(Candidate, [CANDIDATE, thought])))
    assert ['"reasoning":"so"' in text for text in texts] == [False, True]


def test_full_disk_leaves_parts(writer, folder, caplog):
    digest = run_digest(folder)
    for place in ("pack.write.before", "journal.pack.before"):
        with armed({place: "enospc"}):
            writer.packer.ask(None)
            writer.packer.wait(lambda: False)
        assert "not packed for now" in caplog.text
        assert run_digest(folder) == digest
        caplog.clear()
    writer.packer.ask(None)
    writer.packer.wait(lambda: False)
    assert files(folder, "parts") == []
    assert run_digest(folder) == digest


def damage(folder: Path, table: str) -> None:
    (path,) = folder.glob(f"packs/{table}/*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damaged_pack_owed_again(writer, folder):
    digest = run_digest(folder)
    pack_all(writer.journal)
    damage(folder, "critiques")
    with closing(Reader(folder)) as reader:
        assert damages(reader, deep=False) == []
        assert {found.unit for found in damages(reader, deep=True)} == set(keys(writer))
    with pytest.raises(OwedAgainError, match="owed again"):
        writer.rows(Critique, "1-5")
    owed = writer.journal.owed(1, "sample")
    assert [unit.key for unit in owed] == keys(writer)
    assert len(list((folder / "quarantine").iterdir())) == 1
    assert contents(folder)["candidates"].height == 0
    plan_units(writer, [3 + chunk % 4 for chunk in range(UNITS)])
    assert run_digest(folder) == digest
    pack_all(writer.journal)
    assert run_digest(folder) == digest


def test_owed_unit_rows_not_counted(writer, folder):
    """Its other table was damaged: the pack is whole, and has rows of a unit that is not done."""
    digest = run_digest(folder)
    pack_all(writer.journal)
    writer.journal.lose("1-5")
    lost = {row.candidate_id for row in unordered_candidates(5, 4)}
    with closing(RunReader(folder)) as reader:
        found = reader.scan("candidates").collect()
        assert not lost & set(found["candidate_id"])
    assert run_digest(folder) != digest
    writer.commit("1-5", unit_rows(5, 4), {})
    writer.flush()
    assert run_digest(folder) == digest
    assert writer.rows(Candidate, "1-5") == unordered_candidates(5, 4)
    with closing(RunReader(folder)) as reader:
        assert lost <= set(reader.scan("candidates").collect()["candidate_id"])


def test_garbage_is_unreferred(writer, folder):
    pack_all(writer.journal)
    assert garbage(writer.journal) == []
    (path,) = folder.glob("packs/candidates/*")
    path.with_stem("0" * 64).write_bytes(b"x")
    (piece,) = garbage(writer.journal)
    assert "no unit refers to it" in piece.reason
    assert collect(writer.journal, [piece]) == [piece]
