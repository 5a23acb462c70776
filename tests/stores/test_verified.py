"""There is one door to sealed rows, and it lets nothing through that was altered."""

import os
import re
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import lpfloop
from examples import PAIR
from lpfloop.stores import sealing
from lpfloop.stores.pack_hashes import Some
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import DamagedError
from lpfloop.stores.sealing import write_parts
from lpfloop.stores.verified import SealedFile, forget, on_disk, scan, verify, verify_some

ROOT = Path(lpfloop.__file__).parent
OPENS_ROWS = re.compile(
    r"\b(?:(?:scan|read)_parquet\w*|ParquetFile|ParquetDataset|read_(?:table|metadata|schema|pandas)"
    r"|scan_pyarrow_dataset|parquet_scan|from_parquet|pyarrow\.dataset)(?=\()"
)
DOORS = {
    "stores/verified.py": "sealed files where they lie",
    "stores/sealed.py": "bytes that were read and hashed",
    "stores/pack_hashes.py": "the footer of a pack that is being written",
    "loop/lake/query/sql.py": "DuckDB, of files that were verified, and no others",
    "loop/data/parquet_rows.py": "files of the user's own, outside the lake",
    "loop/daemon/stand_ins.py": "rows of a rehearsal, which the same process has just written",
}


def test_no_other_module_opens_rows():
    files = [path for room in ("loop", "stores") for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if OPENS_ROWS.search(path.read_text())}
    assert found == set(DOORS)


@pytest.fixture
def part(tmp_path) -> Path:
    forget()
    (part,) = write_parts([(tmp_path, to_table(type(PAIR), [PAIR]))])
    return tmp_path / f"{part.sha256}.parquet"


def altered(part: Path) -> bytes:
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 4
    return bytes(data)


def test_a_file_is_hashed_once_as_long_as_it_looks_the_same_and_nobody_forgets():
    hashed = list[str]()

    def sha256() -> str:
        hashed.append("once")
        return "a"

    looks = iter((1, 1, 1, 1, 2, 2, 2, 2, 2, 2))
    file = SealedFile(place="here", expected="a", look=lambda: next(looks), sha256=sha256)
    verify([file])
    verify([file])
    assert len(hashed) == 1
    verify([file])
    assert len(hashed) == 2
    forget()
    verify([file])
    assert len(hashed) == 3


def test_a_file_that_changes_while_it_is_hashed_is_refused():
    looks = iter((1, 1, 2))
    file = SealedFile(place="here", expected="a", look=lambda: next(looks), sha256=lambda: "a")
    with pytest.raises(DamagedError, match="here"):
        verify([file])


def test_bytes_that_change_behind_their_time_are_hashed_again(part):
    told = part.stat()
    scan([on_disk(part, part.stem)])
    part.write_bytes(altered(part))
    os.utime(part, ns=(told.st_atime_ns, told.st_mtime_ns))
    with pytest.raises(DamagedError, match=part.name):
        scan([on_disk(part, part.stem)])


def test_another_file_under_the_same_name_is_hashed_again(part, tmp_path):
    scan([on_disk(part, part.stem)])
    other = tmp_path / "other"
    other.write_bytes(altered(part))
    other.replace(part)
    with pytest.raises(DamagedError, match=part.name):
        scan([on_disk(part, part.stem)])


def test_a_file_that_is_expected_to_have_another_hash_is_hashed_again(part):
    scan([on_disk(part, part.stem)])
    with pytest.raises(DamagedError, match=part.name):
        scan([on_disk(part, "0" * 64)])


def test_of_many_files_the_one_that_was_altered_is_named(tmp_path):
    tables = [(tmp_path, to_table(type(PAIR), [PAIR] * count)) for count in range(1, 21)]
    paths = [tmp_path / f"{part.sha256}.parquet" for part in write_parts(tables)]
    paths[13].write_bytes(altered(paths[13]))
    with pytest.raises(DamagedError, match=paths[13].name):
        scan([on_disk(path, path.stem) for path in paths])
    paths.pop(13)
    assert scan([on_disk(path, path.stem) for path in paths]).collect().height == 210 - 14


def test_a_file_that_is_gone_is_damage(part):
    part.unlink()
    with pytest.raises(DamagedError, match="missing"):
        scan([on_disk(part, part.stem)])


PROMPTS = tuple(f"prompt-{n}" for n in range(6))


@pytest.fixture
def pack(tmp_path, monkeypatch) -> Path:
    """A pack of six prompts with two pairs each, in row groups of four rows."""
    forget()
    monkeypatch.setattr(sealing, "PACK_ROWS_A_GROUP", 4)
    rows = [
        replace(PAIR, pair_id=f"{prompt}, {n}", prompt_id=prompt)
        for prompt in PROMPTS
        for n in "ab"
    ]
    part = sealing.write_pack(tmp_path, to_table(type(PAIR), rows))
    return tmp_path / f"{part.sha256}.parquet"


def of(path: Path, some: Some) -> list[object]:
    verify_some([path], some)
    rows = pl.scan_parquet(path)
    rows = rows if some.columns is None else rows.select(*sorted(some.columns))
    chosen = rows if some.prompt_id is None else rows.filter(pl.col("prompt_id") == some.prompt_id)
    return chosen.collect().rows()


@pytest.mark.parametrize(
    "some",
    [
        Some(prompt_id="prompt-2"),
        Some(prompt_id="prompt-2", columns=frozenset({"prompt_id"})),
        Some(columns=frozenset({"prompt_id", "pair_id"})),
        Some(prompt_id="prompt-9"),
    ],
    ids=["a prompt", "where a prompt is", "two columns", "no prompt"],
)
def test_whatever_bit_of_a_pack_flips_some_of_it_is_refused_or_right(pack, some):
    right, sound = of(pack, some), pack.read_bytes()
    count = dict.fromkeys(("refused", "right"), 0)
    for place in range(0, len(sound), 23):
        data = bytearray(sound)
        data[place] ^= 1 << place % 8
        pack.write_bytes(data)
        try:
            assert of(pack, some) == right, place
            count["right"] += 1
        except DamagedError:
            count["refused"] += 1
    assert min(count.values()) > 15


def test_of_a_pack_only_what_is_read_is_hashed_and_all_of_it_by_its_name(pack):
    data = bytearray(pack.read_bytes())
    data[100] ^= 1
    pack.write_bytes(data)
    assert of(pack, Some(prompt_id="prompt-5"))
    with pytest.raises(DamagedError):
        of(pack, Some(prompt_id="prompt-0"))
    with pytest.raises(DamagedError):
        scan([on_disk(pack, pack.stem)])


@pytest.mark.parametrize("reader", [pl.read_parquet, pq.read_table])
def test_any_reader_of_parquet_reads_a_pack(pack, reader):
    assert len(reader(pack)) == 12
    answer = duckdb.execute("select count(*) from read_parquet(?)", [str(pack)])
    assert answer.fetchall() == [(12,)]


def test_a_file_without_hashes_of_its_pieces_is_hashed_whole(part):
    some = Some(columns=frozenset({"prompt_id"}))
    verify_some([part], some)
    part.write_bytes(altered(part))
    with pytest.raises(DamagedError, match=part.name):
        verify_some([part], some)
