"""Published files are whole and unaltered, or the difference is noticed before use."""

import pytest
from examples import PAIR

from lpfloop.stores.durable import (
    MANIFEST,
    DamagedError,
    check_folder,
    publish_folder,
    read_part,
    sweep,
    write_file,
    write_part,
)
from lpfloop.stores.schemas import to_table

TABLE = to_table(type(PAIR), [PAIR])


def model_folder(parent):
    folder = parent / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "inner" / "weights").write_bytes(b"\0\1\2")
    return folder


def test_a_part_is_named_by_its_bytes_and_the_same_rows_give_the_same_bytes(tmp_path):
    first = write_part(tmp_path, TABLE)
    second = write_part(tmp_path, TABLE)
    assert first == second
    assert [p.name for p in tmp_path.iterdir()] == [f"{first.sha256}.parquet"]
    assert read_part(tmp_path / f"{first.sha256}.parquet", first.sha256).equals(TABLE)


def test_every_flipped_byte_of_a_part_is_noticed(tmp_path):
    part = write_part(tmp_path, TABLE)
    path = tmp_path / f"{part.sha256}.parquet"
    data = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(data):
            file.seek(position)
            file.write(bytes([byte ^ 1]))
            with pytest.raises(DamagedError, match="altered"):
                read_part(path, part.sha256)
            file.seek(position)
            file.write(bytes([byte]))


@pytest.mark.parametrize("damage", ["truncated", "emptied", "deleted"])
def test_a_damaged_part_is_noticed(tmp_path, damage):
    part = write_part(tmp_path, TABLE)
    path = tmp_path / f"{part.sha256}.parquet"
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "truncated" else b"")
    with pytest.raises(DamagedError, match=part.sha256):
        read_part(path, part.sha256)


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_file(path, b"old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_published_folder_is_named_by_its_content(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    first = publish_folder(model_folder(tmp_path / "a"), checkpoints)
    again = publish_folder(model_folder(tmp_path / "b"), checkpoints)
    assert first == again
    assert [p.name for p in checkpoints.iterdir()] == [first]
    check_folder(checkpoints / first)


@pytest.mark.parametrize("name", ["config.json", "inner/weights", MANIFEST])
@pytest.mark.parametrize("damage", ["altered", "deleted"])
def test_an_altered_checkpoint_is_never_used(tmp_path, name, damage):
    identity = publish_folder(model_folder(tmp_path / "a"), tmp_path)
    path = tmp_path / identity / name
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DamagedError):
        check_folder(tmp_path / identity)
