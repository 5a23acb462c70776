"""A finished stage becomes few files, without a change for any reader."""

import dataclasses
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lakes import make_units, plan_units, unit_rows, unordered_candidates
from rows import CANDIDATE, CRITIQUE, PAIR, REWARD, YIELD

from lpfloop.stores import stage_files
from lpfloop.stores.digest import canonical_rows, run_digest
from lpfloop.stores.failpoints import arm
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import PendingAgainError, RunReader, RunWriter, run_folder
from lpfloop.stores.records import Candidate, Critique, Pair
from lpfloop.stores.schemas import to_table

UNITS = 12


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    with arm({"lake.seal": "enospc"}):
        writer = make_units(folder, [3 + chunk % 4 for chunk in range(UNITS)])
        writer.seal()
    yield writer
    writer.close()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("files/*/*.parquet"))


def contents(folder: Path) -> dict[str, pl.DataFrame]:
    with closing(RunReader(folder)) as reader:
        return {
            table: reader.scan(table).collect().sort(pl.all().exclude("aspects"))
            for table in ("candidates", "critiques")
        }


def test_few_files_same_rows(writer, folder):
    rows = {key: writer.rows(Candidate, key) for key in keys(writer)}
    before, digest, parts = contents(folder), run_digest(folder), writer.journal.parts()
    assert files(folder) == []
    writer.seal()
    assert len(files(folder)) == 3
    after = contents(folder)
    assert all(after[table].equals(before[table]) for table in before)
    assert list(after["candidates"].columns) == list(before["candidates"].columns)
    assert run_digest(folder) == digest
    assert {key: writer.rows(Candidate, key) for key in rows} == rows
    sealed = writer.journal.parts()
    assert [dataclasses.replace(part, file=None) for part in sealed] == parts
    assert [writer.rows(Pair, unit) for unit in ("1-3", "1-4")] == [[PAIR], []]
    for part in (part for part in parts if part.table == "critiques"):
        assert writer.verified_path(Critique, part.unit).stem == part.sha256


def keys(writer: RunWriter) -> list[str]:
    return writer.journal.keys(1, "sample")


@settings(max_examples=3)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    rows=st.integers(1, 20),
)
@example(counts=[0, 0, 2, 0, 0], rows=1)
def test_digest_stays_whatever_sealed(tmp_path_factory, counts, rows):
    folder = run_folder(tmp_path_factory.mktemp("lake"), "a")
    with arm({"lake.seal": "enospc"}):
        writer = make_units(folder, counts)
        writer.seal()
    with closing(writer), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_files, "ROWS", rows)
        before = run_digest(folder), contents(folder)["candidates"]
        writer.seal()
        assert run_digest(folder) == before[0]
        assert contents(folder)["candidates"].equals(before[1])
        wanted = [unordered_candidates(chunk, count) for chunk, count in enumerate(counts)]
        assert [writer.rows(Candidate, key) for key in keys(writer)] == wanted


def test_digest_writes_canonical_json():
    odd = dataclasses.replace(CANDIDATE, text='"\\\n\t\x01é\u2028😀', logprob=1e-300, parent_id="")
    for rows in ([CANDIDATE, odd], [CRITIQUE], [PAIR], [REWARD], [YIELD]):
        table = to_table(type(rows[0]), rows)
        assert list(canonical_rows(table)) == [canonical_json(row) for row in table.to_pylist()]


def test_full_disk_leaves_blobs(writer, folder, caplog):
    digest = run_digest(folder)
    for place in ("stage_file.write.before", "journal.seal.before"):
        with arm({place: "enospc"}):
            writer.seal()
        assert "stay in the journal" in caplog.text
        assert run_digest(folder) == digest
        caplog.clear()
    writer.seal()
    assert writer.journal.unsealed_stages() == []
    assert run_digest(folder) == digest


def damage(folder: Path, table: str) -> None:
    (path,) = folder.glob(f"files/{table}/*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damaged_file_owed_again(writer, folder):
    digest = run_digest(folder)
    writer.seal()
    damage(folder, "critiques")
    with closing(Reader(folder)) as reader:
        assert damages(reader, deep=False) == []
        assert {found.unit for found in damages(reader, deep=True)} == set(keys(writer))
    with pytest.raises(PendingAgainError, match="pending again"):
        writer.rows(Critique, "1-5")
    pending = writer.journal.pending(1, "sample")
    assert [unit.key for unit in pending] == keys(writer)
    assert len(list((folder / "quarantine").iterdir())) == 1
    assert contents(folder)["candidates"].height == 0
    plan_units(writer, [3 + chunk % 4 for chunk in range(UNITS)])
    assert run_digest(folder) == digest
    writer.seal()
    assert run_digest(folder) == digest
    assert writer.rows(Critique, "1-5"), "the file that was made again has the damaged one's name"


def test_owed_unit_rows_not_counted(writer, folder):
    """Its other table was damaged: the file is whole, and has rows of a pending unit."""
    digest = run_digest(folder)
    writer.seal()
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
    writer.seal()
    assert garbage(writer.journal) == []
    (path,) = folder.glob("files/candidates/*")
    path.with_stem("0" * 64).write_bytes(b"x")
    (piece,) = garbage(writer.journal)
    assert "no unit refers to it" in piece.reason
    assert collect(writer.journal, [piece]) == [piece]


def test_same_bytes_from_blob_and_file(writer):
    wanted = {part.unit: part.sha256 for part in writer.journal.parts(table="pairs")}
    for _ in ("in the journal", "in a file"):
        assert {unit: writer.verified_path(Pair, unit).stem for unit in wanted} == wanted
        writer.seal()


def test_journal_shrinks(writer, folder):
    before = (folder / "journal.sqlite").stat().st_size
    with closing(RunReader(folder)) as reader:
        size = sum(part.size for part in reader.journal.parts())
    writer.close()
    assert (folder / "journal.sqlite").stat().st_size < max(before, size)
    writer.journal = Journal(folder)
