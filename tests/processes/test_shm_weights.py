"""The sampler's weights in main memory: private, one a work folder, removed in the end."""

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
    discard_memory,
    folder_of,
    memory_folder,
)

pytestmark = pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no /dev/shm")

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
    """Replace /dev/shm by a folder of the test."""
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
        with memory_folder(tmp_path / "other", 1000) as other:
            assert other != folder
        assert folder.exists()
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
        discard_memory(tmp_path / "a")  # by its parent
        assert not folder.exists()


def test_weights_that_do_not_fit(tmp_path, memory, caplog) -> None:
    caplog.set_level("INFO")
    with memory_folder(tmp_path, 2**60) as folder:
        assert folder is None
    assert "the sampler's weights go over the disk" in caplog.text
    assert not list(memory.iterdir())


def test_a_folder_of_others_is_not_used(tmp_path) -> None:
    # A file instead of a folder: as the folder of another user, it cannot be removed.
    folder_of(tmp_path / "work").touch()
    with memory_folder(tmp_path / "work", 1000) as folder:
        assert folder is None
