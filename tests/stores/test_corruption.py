"""Any change of a published file is noticed before a row or a weight of it is used."""

import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples import PAIR
from lpfloop.stores.durable import publish_folder
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST, DamagedError, check_folder, check_part, read_part
from lpfloop.stores.sealing import write_parts

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
    """Whether each check finds that a file that now holds `data` is damaged."""
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
    (part,) = write_parts([(tmp_path, TABLE)])
    return tmp_path / f"{part.sha256}.parquet"


@pytest.fixture
def model(tmp_path) -> Path:
    source = tmp_path / "model"
    (source / "inner").mkdir(parents=True)
    (source / "config.json").write_text('{"layers": 2}')
    (source / "inner" / "weights").write_bytes(bytes(range(64)))
    (source / "inner" / MANIFEST).write_text("of its own")
    return tmp_path / publish_folder(source, tmp_path)


@pytest.mark.parametrize("damage", [flipped, cut, grown], ids=lambda d: d.__name__)
def test_a_damaged_part_is_never_parsed(part, monkeypatch, damage):
    data = part.read_bytes()

    def parse(*_: object) -> None:
        pytest.fail("damaged bytes were parsed")

    monkeypatch.setattr(pq, "ParquetFile", parse)
    checks = (lambda: read_part(part, part.stem), lambda: check_part(part))
    with part.open("r+b", buffering=0) as file:
        wrong = [damaged for damaged in damage(data) if not all(notices(file, damaged, checks))]
    assert wrong == []
    assert len(data) > 1000


def test_the_undamaged_part_is_read(part):
    assert read_part(part, part.stem).equals(TABLE)
    check_part(part)


@pytest.mark.parametrize("loss", ["deleted", "a folder", "a broken link", "below a file"])
def test_a_part_that_is_not_there_is_damaged(part, loss):
    if loss == "below a file":
        part = part / part.name
    else:
        part.unlink()
    if loss == "a folder":
        part.mkdir()
    if loss == "a broken link":
        part.symlink_to("nowhere")
    for check in (lambda: read_part(part, part.stem), lambda: check_part(part)):
        with pytest.raises(DamagedError, match=part.stem):
            check()


def test_what_says_nothing_about_a_file_is_not_called_damage(part, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Too many") as caught:
        read_part(part, part.stem)
    assert not isinstance(caught.value, DamagedError)


def test_a_sector_that_can_not_be_read_is_damage(part, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(DamagedError, match="cannot be read"):
        read_part(part, part.stem)


FILES = [MANIFEST, "config.json", "inner/weights", f"inner/{MANIFEST}"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flipped, cut, grown], ids=lambda d: d.__name__)
def test_a_damaged_file_of_a_folder_is_noticed(model, name, damage):
    check_folder(model)
    data = (model / name).read_bytes()
    checks = (lambda: check_folder(model),)
    with (model / name).open("r+b", buffering=0) as file:
        wrong = [damaged for damaged in damage(data) if not all(notices(file, damaged, checks))]
        assert wrong == []
        assert list(notices(file, data, checks)) == [False]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_of_a_folder_is_noticed(model, name):
    (model / name).unlink()
    with pytest.raises(DamagedError, match=model.name):
        check_folder(model)


@pytest.mark.parametrize("name", ["optimizer.pt", "inner/extra", ".hidden", "new/file"])
def test_a_file_that_was_added_to_a_folder_is_noticed(model, name):
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"")
    with pytest.raises(DamagedError, match="added"):
        check_folder(model)


def test_a_file_that_became_a_link_is_noticed(model, tmp_path):
    (model / "config.json").rename(tmp_path / "elsewhere")
    (model / "config.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=r"config\.json"):
        check_folder(model)


def test_another_whole_folder_under_this_name_is_noticed(model, tmp_path):
    other = tmp_path / ("0" * 64)
    model.rename(other)
    with pytest.raises(DamagedError, match="no valid"):
        check_folder(other)


def test_a_folder_that_is_not_there_is_damaged(tmp_path):
    with pytest.raises(DamagedError, match="missing"):
        check_folder(tmp_path / "none")
