"""Models and checkpoints are read once by a process, and again as soon as they look otherwise."""

import os
from collections.abc import Callable
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest
from trainings import FILES, plain_job, scripted, write_checkpoint

from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.trainer_checkpoints import is_whole, keep, newest_first
from lpfloop.policies.trainers.trainer_job import job_json
from lpfloop.stores import sealed
from lpfloop.stores.durable import publish_folder
from lpfloop.stores.objects import OnDisk
from lpfloop.stores.sealed import DamagedError, known_sha256


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed, of which any is old enough."""
    names: list[str] = []
    hashed = sealed._hashed

    def counted(file: FileIO, alive: Callable[[], object]) -> str:
        names.append(Path(str(file.name)).name)
        return hashed(file, alive)

    monkeypatch.setattr(sealed, "_hashed", counted)
    monkeypatch.setattr(sealed, "SETTLED_NS", -1)
    return names


def test_a_file_is_read_once_wherever_it_is_moved(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "here" / "weights"
    path.parent.mkdir()
    path.write_bytes(b"weights of a model")
    found = known_sha256(path)
    path.parent.rename(tmp_path / "there")
    assert known_sha256(tmp_path / "there" / "weights") == found
    assert read == ["weights"]


def test_what_was_changed_is_read_again_whatever_its_time_says(
    tmp_path: Path, read: list[str]
) -> None:
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


def test_what_was_written_just_now_may_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    calls: list[None] = []
    path.write_bytes(b"w" * (3 * sealed.BLOCK))
    for _ in range(2):
        known_sha256(path, lambda: calls.append(None))
    assert len(calls) == 6, "it is alive while it reads"


def test_a_trained_model_is_read_once_until_the_next_training_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    """By the process that follows its training, publishes it, samples it, and trains it again."""
    job = plain_job(tmp_path)
    scripted(monkeypatch, job, "finish()")
    weights = "model.safetensors"
    start = known_sha256(job.model / weights)
    result = train(job, log=tmp_path / "train.log")
    assert known_sha256(job.model / weights) == start
    assert read.count(weights) == 2, "M_t, and the model that it began as"
    read.clear()
    published = tmp_path / "checkpoints"
    published.mkdir()
    folder = published / publish_folder(result.output, published)
    for _ in range(2):
        OnDisk().local_folder(folder)
    job_json(replace(job, model=folder))
    assert read == ["MANIFEST.json"]
    with (folder / weights).open("r+b") as file:
        file.write(b"T")
    with pytest.raises(DamagedError, match="altered"):
        OnDisk().local_folder(folder)


def test_a_checkpoint_is_read_once_however_many_follow(tmp_path: Path, read: list[str]) -> None:
    for step in (1, 2, 3, 4):
        keep(write_checkpoint(tmp_path, step), "job")
    assert sorted(read) == sorted([*FILES] * 4)
    newest, older = newest_first(tmp_path)
    (newest / "optimizer.pt").write_bytes(b"momentS")
    assert not is_whole(newest, "job")
    assert is_whole(older, "job")
