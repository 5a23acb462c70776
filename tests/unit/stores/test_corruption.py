"""lpfloop detects any change of a published file before it uses a row or a weight of it."""

import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rows import PAIR

from lpfloop.stores.durable import publish_folder
from lpfloop.stores.objects import Objects
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST, DamagedError, check_folder
from lpfloop.stores.verified import write_rows

TABLE = to_table(type(PAIR), [PAIR])


def flipped(data: bytes) -> Iterator[bytes]:
    for position, byte in enumerate(data):
        yield data[:position] + bytes([byte ^ 1]) + data[position + 1 :]


def cut(data: bytes) -> Iterator[bytes]:
    for length in range(len(data)):
        yield data[:length]


def grown(data: bytes) -> Iterator[bytes]:
    yield data + b"\0"
    yield data + data


def notices(file: FileIO, data: bytes, checks: Iterable[Callable[[], object]]) -> Iterator[bool]:
    """Return whether each check detects the damage if a file contains `data`."""
    file.truncate(len(data))
    os.pwrite(file.fileno(), data, 0)
    for check in checks:
        try:
            check()
        except DamagedError:
            yield True
        else:
            yield False


@pytest.fixture
def part(tmp_path) -> Path:
    return write_rows(tmp_path, TABLE)


@pytest.fixture
def model(tmp_path) -> Path:
    source = tmp_path / "model"
    (source / "inner").mkdir(parents=True)
    (source / "config.json").write_text('{"layers": 2}')
    (source / "inner" / "weights").write_bytes(bytes(range(64)))
    (source / "inner" / MANIFEST).write_text("of its own")
    return tmp_path / publish_folder(source, tmp_path)


def test_damaged_part_never_parsed(subtests, part, monkeypatch):
    def parse(*_: object) -> None:
        pytest.fail("damaged bytes were parsed")

    monkeypatch.setattr(pq, "ParquetFile", parse)
    data = part.read_bytes()
    assert len(data) > 1000
    checks = (lambda: Objects().read_part(part), lambda: Objects().check_part(part))
    for damage in [flipped, cut, grown]:
        with subtests.test(case=damage), part.open("r+b", buffering=0) as file:
            assert [wrong for wrong in damage(data) if not all(notices(file, wrong, checks))] == []


def test_part_that_cannot_be_read(part, monkeypatch):
    failure = OSError(24, "Too many open files")

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Too many") as caught:
        Objects().read_part(part)
    assert not isinstance(caught.value, DamagedError), "no answer is no damage"
    failure = OSError(5, "Input/output error")
    with pytest.raises(DamagedError, match="cannot be read"):
        Objects().read_part(part)


def test_missing_part(part, subtests):
    folder, link = part.with_stem("folder"), part.with_stem("link")
    folder.mkdir()
    link.symlink_to("nowhere")
    for path in (part.with_stem("gone"), folder, link, part / part.name):
        with subtests.test(case=path):
            with pytest.raises(DamagedError, match=path.stem):
                Objects().read_part(path)
            with pytest.raises(DamagedError, match=path.stem):
                Objects().check_part(path)


def test_damaged_file_of_folder(subtests, model):
    checks = (lambda: check_folder(model),)
    for name in (MANIFEST, "inner/weights", f"inner/{MANIFEST}"):
        data = (model / name).read_bytes()
        with subtests.test(case=name), (model / name).open("r+b", buffering=0) as file:
            for damage in (flipped, cut, grown):
                assert all(all(notices(file, wrong, checks)) for wrong in damage(data))
            assert list(notices(file, data, checks)) == [False]
    (model / "config.json").unlink()
    with pytest.raises(DamagedError, match=model.name):
        check_folder(model)


def test_added_file_of_folder(subtests, model):
    for name in [".hidden", "new/file"]:
        with subtests.test(case=name):
            (model / name).parent.mkdir(exist_ok=True)
            (model / name).write_bytes(b"")
            with pytest.raises(DamagedError, match="added"):
                check_folder(model)
            (model / name).unlink()
