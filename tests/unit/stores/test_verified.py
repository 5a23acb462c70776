"""One function opens sealed rows, and it rejects altered ones."""

import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rows import PAIR

from lpfloop.stores import verified
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import DamagedError
from lpfloop.stores.verified import Some, forget, verify, verify_some, write_rows


@pytest.fixture
def part(tmp_path) -> Path:
    forget()
    return write_rows(tmp_path, to_table(type(PAIR), [PAIR]))


def altered(part: Path) -> bytes:
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 4
    return bytes(data)


def test_changed_behind_its_time(part):
    told = part.stat()
    verify([(part, part.stem)])
    part.write_bytes(altered(part))
    os.utime(part, ns=(told.st_atime_ns, told.st_mtime_ns))
    with pytest.raises(DamagedError, match=part.name):
        verify([(part, part.stem)])


PROMPTS = tuple(f"prompt-{n}" for n in range(6))


@pytest.fixture
def pack(tmp_path, monkeypatch) -> Path:
    """A pack of six prompts with two pairs each, in row groups of four rows."""
    forget()
    monkeypatch.setattr(verified, "ROWS_A_GROUP", 4)
    rows = [
        replace(PAIR, pair_id=f"{prompt}, {n}", prompt_id=prompt)
        for prompt in PROMPTS
        for n in "ab"
    ]
    encoded = verified.encoded_stage(to_table(type(PAIR), rows))
    path = tmp_path / f"{encoded.sha256}.parquet"
    path.write_bytes(encoded.data)
    return path


def of(path: Path, some: Some) -> list[object]:
    verify_some([path], some)
    rows = pl.scan_parquet(path)
    rows = rows if some.columns is None else rows.select(*sorted(some.columns))
    chosen = rows if some.prompt_id is None else rows.filter(pl.col("prompt_id") == some.prompt_id)
    return chosen.collect().rows()


def test_flipped_pack_refused_or_right(subtests, pack):
    for some in [
        Some(prompt_id="prompt-2"),
        Some(prompt_id="prompt-2", columns=frozenset({"prompt_id"})),
        Some(columns=frozenset({"prompt_id", "pair_id"})),
        Some(prompt_id="prompt-9"),
    ]:
        with subtests.test(case=some):
            right, sound = of(pack, some), pack.read_bytes()
            count = dict.fromkeys(("refused", "right"), 0)
            for place in range(0, len(sound), 211):
                data = bytearray(sound)
                data[place] ^= 1 << place % 8
                pack.write_bytes(data)
                try:
                    assert of(pack, some) == right, place
                    count["right"] += 1
                except DamagedError:
                    count["refused"] += 1
            pack.write_bytes(sound)
            assert min(count.values()) > 0


def test_no_piece_hashes_hashed_whole(part):
    some = Some(columns=frozenset({"prompt_id"}))
    verify_some([part], some)
    part.write_bytes(altered(part))
    with pytest.raises(DamagedError, match=part.name):
        verify_some([part], some)
