"""lpfloop reads compressed files as their contents, and skips no data file of a folder silently."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile

import pyarrow as pa
import pytest

from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.data.prompts import read_prompts


def zstd(data: bytes, codec: str = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
    ".lz4": lambda data: zstd(data, "lz4"),
}
LINES = b'{"prompt": "a"}\n{"prompt": "b"}\n'


def prompts(place):
    return [prompt.instruction for prompt in read_prompts(place)]


def refusal(place):
    with pytest.raises(InputError) as caught:
        list(placed_rows(place))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", PACK)
def test_compressed_files(ending, tmp_path):
    for name, data in {
        "rows.jsonl": LINES,
        "rows.json": json.dumps([{"prompt": "a"}, {"prompt": "b"}]).encode(),
        "rows.csv": b"prompt,task\na,x\nb,x\n",
        "rows.tsv": b"prompt\ttask\na\tx\nb\tx\n",
    }.items():
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(PACK[ending](data))
        assert prompts(path) == ["a", "b"], name


def test_compression_by_first_bytes(tmp_path):
    """The name does not matter; lpfloop reads all concatenated members."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.compress(LINES[:16]) + gzip.compress(LINES[16:]))
    assert prompts(path) == ["a", "b"]
    path = tmp_path / "plain.jsonl.gz"
    path.write_bytes(LINES)
    assert prompts(path) == ["a", "b"]


def test_damaged_and_archives(tmp_path):
    rows = b"".join(b'{"prompt": "%d"}\n' % n for n in range(5000))
    for ending, pack in PACK.items():
        path = tmp_path / f"cut.jsonl{ending}"
        path.write_bytes(pack(rows)[: len(pack(rows)) // 2])
        assert refusal(path).startswith(f"{path}: "), ending
        path.write_bytes(pack(rows)[:20] + b"x" * 40)
        assert refusal(path).startswith(f"{path}: "), ending
    path = tmp_path / "rows.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rows.jsonl", LINES)
    assert "an archive" in refusal(path)
    path = tmp_path / "rows.jsonl.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("rows.jsonl")
        info.size = len(LINES)
        archive.addfile(info, io.BytesIO(LINES))
    assert "an archive" in refusal(path)
    path = tmp_path / "p.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1" + b"x" * 50))
    assert "unpack it first" in refusal(path)


def test_folder_with_compressed_shards(tmp_path):
    (tmp_path / "train-00000-of-00002.jsonl").write_bytes(LINES)
    shard = tmp_path / "train-00001-of-00002.jsonl.gz"
    shard.write_bytes(gzip.compress(b'{"prompt": "c"}\n'))
    assert prompts(tmp_path) == ["a", "b", "c"]
    assert prompts(tmp_path / "train") == ["a", "b", "c"]
    shard.unlink()
    assert "00001 of 00002" in refusal(tmp_path)
