"""The sampler's weights in main memory: private, one a work folder, removed in the end."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lpfloop.policies.trainers import shm_weights
from lpfloop.policies.trainers.shm_weights import (
    SHARED_MEMORY,
    discard_abandoned,
    folder_of,
    memory_folder,
)

pytestmark = pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no /dev/shm")

NAME = f"lpfloop-{os.getuid()}"
HOLDER = """
import sys, time
from pathlib import Path
from lpfloop.policies.trainers import shm_weights
shm_weights.SHARED_MEMORY = Path(sys.argv[2])
with shm_weights.memory_folder(Path(sys.argv[1]), 1000) as folder:
    (folder / "model.safetensors").write_bytes(b"weights")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Replace /dev/shm by a folder of the test: other processes remove abandoned folders there."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        monkeypatch.setattr(shm_weights, "SHARED_MEMORY", Path(folder))
        yield Path(folder)


@contextmanager
def held(work: Path) -> Generator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that uses the folder of `work`; return both."""
    argv = [sys.executable, "-c", HOLDER, str(work), str(shm_weights.SHARED_MEMORY)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        yield holder, Path(holder.stdout.readline().strip())
        holder.kill()


def test_a_folder_is_private(tmp_path) -> None:
    with memory_folder(tmp_path, 1000) as folder:
        assert folder is not None
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        (folder / "x").write_bytes(b"x")
        discard_abandoned()
        assert (folder / "x").exists(), "a folder that is held was taken for abandoned"
    assert not folder.exists()


def test_leftovers_of_killed_process(tmp_path) -> None:
    with held(tmp_path / "a") as (holder, folder):
        holder.kill()
        holder.wait()
        assert (folder / "model.safetensors").exists()
        with memory_folder(tmp_path / "a", 1000) as again:  # used again by the same trainer: empty
            assert again == folder
            assert not (again / "model.safetensors").exists()
    with held(tmp_path / "a") as (holder, folder):
        holder.kill()
        holder.wait()
        with memory_folder(tmp_path / "b", 1000):
            assert not folder.exists()


def test_weights_that_do_not_fit(tmp_path, memory, caplog) -> None:
    caplog.set_level("INFO")
    with memory_folder(tmp_path, 2**60) as folder:
        assert folder is None
    assert "the sampler's weights go over the disk" in caplog.text
    assert not folder_of(memory / NAME, tmp_path).exists()


def test_a_folder_of_others_is_not_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shm_weights, "SHARED_MEMORY", tmp_path)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME).chmod(0o777)
    with memory_folder(tmp_path / "work", 1000) as folder:
        assert folder is None
