"""A process reads models and checkpoints once, and again as soon as their files change."""

import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest

from lpfloop.stores import sealed
from lpfloop.stores.sealed import DamagedError, known_sha256


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the hashed files; all files count as old enough."""
    names: list[str] = []
    hashed = sealed._hash_file

    def counted(file: FileIO, alive: Callable[[], object]) -> str:
        names.append(Path(str(file.name)).name)
        return hashed(file, alive)

    monkeypatch.setattr(sealed, "_hash_file", counted)
    monkeypatch.setattr(sealed, "SETTLED_NS", -1)
    return names


def test_moved_file_read_once(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "here" / "weights"
    path.parent.mkdir()
    path.write_bytes(b"weights of a model")
    found = known_sha256(path)
    path.parent.rename(tmp_path / "there")
    assert known_sha256(tmp_path / "there" / "weights") == found
    assert read == ["weights"]


def test_changed_file_read_again(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"weights of a model")
    told, found = path.stat(), known_sha256(path)
    path.write_bytes(b"weights of a modem")
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert known_sha256(path) != found
    path.unlink()
    with pytest.raises(DamagedError, match="missing"):
        known_sha256(path)
    assert len(read) == 2
