"""Packing puts rows into fewer files, and changes nothing that anybody reads."""

import dataclasses
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_units import candidates, make, plan, rows_of

from examples import CANDIDATE, CRITIQUE, PAIR, REWARD, YIELD
from lpfloop.stores import packing
from lpfloop.stores.digest import canonical_rows, run_digest
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages, repair
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import OwedAgainError, RunReader, RunWriter, run_folder
from lpfloop.stores.packing import pack_all
from lpfloop.stores.records import Candidate, Critique, Pair, Reward
from lpfloop.stores.schemas import to_table, without_later

UNITS = 12


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    writer = make(folder, [3 + chunk % 4 for chunk in range(UNITS)])
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


def test_packing_leaves_few_files_and_every_reader_the_same_rows(writer, folder):
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
    assert writer.rows(Pair, "1-3") == [PAIR]
    assert writer.rows(Pair, "1-4") == []


def keys(writer: RunWriter) -> list[str]:
    return writer.journal.keys(1, "sample")


def test_a_packed_unit_becomes_its_part_again_byte_for_byte(writer, folder):
    parts = {part.unit: part for part in writer.journal.parts(table="critiques")}
    pack_all(writer.journal)
    for unit, part in parts.items():
        path = writer.verified_path(Critique, unit)
        assert path.stem == part.sha256
        assert path.stat().st_size == part.size


@settings(max_examples=20)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    fewest=st.integers(2, 4),
    rows=st.integers(1, 20),
)
@example(counts=[0, 0, 2, 0, 0], fewest=2, rows=1)
def test_whatever_is_packed_together_the_digest_stays(tmp_path_factory, counts, fewest, rows):
    folder = run_folder(tmp_path_factory.mktemp("lake"), "a")
    with closing(make(folder, counts)) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "FEWEST", fewest)
        patch.setattr(packing, "ROWS", rows)
        before = run_digest(folder), contents(folder)["candidates"]
        pack_all(writer.journal)
        assert run_digest(folder) == before[0]
        assert contents(folder)["candidates"].equals(before[1])
        wanted = [candidates(chunk, count) for chunk, count in enumerate(counts)]
        assert [writer.rows(Candidate, key) for key in keys(writer)] == wanted
        order = writer.journal.parts(table="candidates")
        with closing(RunReader(folder)) as reader:
            ids = reader.scan_parts("candidates", order).collect()["candidate_id"].to_list()
        assert ids == [row.candidate_id for unit in wanted for row in unit]


def test_the_digest_writes_rows_as_canonical_json_does():
    odd = dataclasses.replace(CANDIDATE, text='"\\\n\t\x01é\u2028😀', logprob=1e-300, parent_id="")
    for rows in ([CANDIDATE, odd], [CRITIQUE], [PAIR], [REWARD], [YIELD]):
        table = without_later(to_table(type(rows[0]), rows))
        assert list(canonical_rows(table)) == [canonical_json(row) for row in table.to_pylist()]


def test_one_prompt_lies_in_few_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("lpfloop.stores.sealing.PACK_ROWS_A_GROUP", 8)
    folder = run_folder(tmp_path / "lake", "a")
    with closing(make(folder, [10] * UNITS)) as writer:
        pack_all(writer.journal)
        (path,) = folder.glob("packs/candidates/*")
        metadata = pq.read_metadata(path)
        place = metadata.schema.names.index("prompt_id")
        groups = [metadata.row_group(n).column(place).statistics for n in range(15)]
        assert sum(g.min <= "prompt-07" <= g.max for g in groups) <= 2
        with closing(RunReader(folder)) as reader:
            found = reader.scan("candidates").filter(pl.col("prompt_id") == "prompt-07")
            assert "SELECTION" in found.explain()
            assert found.collect().height == sum(
                row.prompt_id == "prompt-07" for n in range(UNITS) for row in candidates(n, 10)
            )


def test_only_what_is_done_and_of_earlier_iterations_is_packed(writer, folder):
    plan(writer, [2] * UNITS, iteration=2)
    writer.journal.plan(3, "sample", "x", lambda: [f"3-{n}" for n in range(UNITS + 1)])
    for chunk in range(UNITS):
        writer.commit(f"3-{chunk}", rows_of(chunk, 2), {})
    writer.flush()
    packed = pack_all(writer.journal, before=2)
    assert packed == 3 * UNITS
    assert {part.iteration for part in writer.journal.parts() if part.pack} == {1}
    pack_all(writer.journal)
    assert {part.iteration for part in writer.journal.parts() if part.pack} == {1, 2}
    assert pack_all(writer.journal) == 0


def test_the_packer_packs_in_the_background_and_ends_when_it_is_told(writer, folder):
    writer.packer.ask(1)
    writer.packer.wait(lambda: False)
    assert files(folder, "packs") == []
    writer.packer.ask(None)
    writer.packer.wait(lambda: False)
    assert files(folder, "parts") == []
    assert len(files(folder, "packs")) == 3


def test_a_full_disk_leaves_the_parts_as_they_are(writer, folder, caplog):
    from lpfloop.stores.failpoints import armed

    digest = run_digest(folder)
    for place in ("pack.write.before", "pack.sync_folder.before", "journal.pack.before"):
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


READING = """
import sys, time
from pathlib import Path
from lpfloop.stores.lake import RunReader
reader = RunReader(Path(sys.argv[1]))
lazy = reader.scan("candidates")
print("open", flush=True)
sys.stdin.readline()
print(lazy.collect().height, flush=True)
reader.close()
"""


def test_a_lazy_frame_of_another_process_keeps_its_files(writer, folder):
    height = contents(folder)["candidates"].height
    process = subprocess.Popen(
        [sys.executable, "-c", READING, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    before = files(folder, "parts")
    assert pack_all(writer.journal) == 3 * UNITS
    assert files(folder, "parts") == before
    found = garbage(writer.journal)
    assert {piece.reason for piece in found} == {"its rows lie in a pack"}
    assert collect(writer.journal, found) == []
    out, _ = process.communicate("\n")
    assert out == f"{height}\n"
    assert pack_all(writer.journal) == 0
    assert files(folder, "parts") == []


def test_a_reader_that_was_open_before_sees_what_is_there_now(writer, folder):
    with closing(RunReader(folder)) as reader:
        before = reader.scan("candidates")
        pack_all(writer.journal)
        after = reader.scan("candidates")
        assert before.collect().height == after.collect().height
        assert len(reader.files("candidates")) == 1


def damage(folder: Path, table: str) -> Path:
    (path,) = folder.glob(f"packs/{table}/*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def test_a_damaged_pack_makes_all_its_units_owed_again_and_they_come_out_as_they_were(
    writer, folder
):
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
    plan(writer, [3 + chunk % 4 for chunk in range(UNITS)])
    assert run_digest(folder) == digest
    pack_all(writer.journal)
    assert run_digest(folder) == digest


def test_a_missing_pack_is_repaired(writer, folder):
    pack_all(writer.journal)
    damage(folder, "candidates").unlink()
    assert len(repair(writer.journal)) == UNITS
    assert len(writer.journal.owed(1, "sample")) == UNITS


def test_rows_of_a_unit_that_is_owed_again_do_not_count_in_its_packs(writer, folder):
    """Its other table was damaged: the pack is whole, and has rows of a unit that is not done."""
    digest = run_digest(folder)
    pack_all(writer.journal)
    writer.journal.lose("1-5")
    lost = {row.candidate_id for row in candidates(5, 4)}
    with closing(RunReader(folder)) as reader:
        found = reader.scan("candidates").collect()
        assert not lost & set(found["candidate_id"])
        assert set(found.columns) == {f.name for f in dataclasses.fields(Candidate)}
        assert reader.files("candidates") == []
    assert run_digest(folder) != digest
    writer.commit("1-5", rows_of(5, 4), {})
    writer.flush()
    assert run_digest(folder) == digest
    assert writer.rows(Candidate, "1-5") == candidates(5, 4)
    with closing(RunReader(folder)) as reader:
        assert lost <= set(reader.scan("candidates").collect()["candidate_id"])


def test_a_file_that_a_later_unit_needs_again_is_not_removed(writer, folder):
    """Equal rows have one file: those of units without pairs."""
    pack_all(writer.journal)
    plan(writer, [1], iteration=2)
    pack_all(writer.journal, before=2)
    assert writer.rows(Pair, "2-0") == []
    assert writer.verified_path(Pair, "2-0").exists()


def test_garbage_is_what_no_unit_refers_to(writer, folder):
    pack_all(writer.journal)
    assert garbage(writer.journal) == []
    (path,) = folder.glob("packs/candidates/*")
    path.with_stem("0" * 64).write_bytes(b"x")
    (piece,) = garbage(writer.journal)
    assert "no unit refers to it" in piece.reason
    assert collect(writer.journal, [piece]) == [piece]


def test_forgetting_a_stage_forgets_its_packs(writer, folder):
    writer.journal.plan(1, "later", "x", lambda: [f"later-{n}" for n in range(UNITS)])
    for n in range(UNITS):
        writer.commit(f"later-{n}", {Reward: [REWARD]}, {})
    writer.flush()
    pack_all(writer.journal)
    writer.journal.lose("1-0")
    assert writer.journal.redo() == UNITS
    with closing(RunReader(folder)) as reader:
        assert reader.scan("rewards").collect().height == 0
    assert any(piece.path.parent.name == "rewards" for piece in garbage(writer.journal))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_rows_are_read_by_their_places_in_a_scan(folder, packed, lost):
    with closing(make(folder, [5, 0, 7, 3])) as writer:
        if packed:
            pack_all(writer.journal)
        if lost:
            writer.journal.lose("1-2")
    with closing(RunReader(folder)) as reader:
        names = ["candidate_id", "text"]
        every = reader.scan("candidates").select(names).collect()
        places = [0, 1, 4, 5, every.height - 1]
        found = reader.rows_at("candidates", places, set(names))
        assert pl.concat(pl.collect_all(found)).select(names).equals(every[places])
        assert reader.rows_at("candidates", [], set(names)) == []
