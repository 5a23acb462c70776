"""The sampler's weights in main memory: private, one for each work folder, and never left there."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from lpfloop.policies.trainers import memory_folders
from lpfloop.policies.trainers.memory_folders import (
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
from lpfloop.policies.trainers import memory_folders
memory_folders.SHARED_MEMORY = Path(sys.argv[2])
with memory_folders.memory_folder(Path(sys.argv[1]), 1000) as folder:
    (folder / "model.safetensors").write_bytes(b"weights")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Memory of the test's own: in that of all, others remove what a test leaves."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        monkeypatch.setattr(memory_folders, "SHARED_MEMORY", Path(folder))
        yield Path(folder)


@contextmanager
def held(work: Path) -> Generator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that holds the folder of `work`; give it and the folder."""
    argv = [sys.executable, "-c", HOLDER, str(work), str(memory_folders.SHARED_MEMORY)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        yield holder, Path(holder.stdout.readline().strip())
        holder.kill()


def test_a_folder_is_private_empty_and_gone_in_the_end(tmp_path) -> None:
    with memory_folder(tmp_path, 1000) as folder:
        assert folder is not None
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        (folder / "x").write_bytes(b"x")
        discard_abandoned()
        assert (folder / "x").exists(), "a folder that is held was taken for abandoned"
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_by_the_next_start(tmp_path) -> None:
    with held(tmp_path / "a") as (holder, folder):
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert (folder / "model.safetensors").exists()
        with memory_folder(tmp_path / "b", 1000):
            assert not folder.exists()


def test_what_a_live_process_holds_is_left_alone(tmp_path) -> None:
    with held(tmp_path / "a") as (_, folder):
        with memory_folder(tmp_path / "b", 1000) as other:
            assert other != folder
        assert (folder / "model.safetensors").exists()
    discard_abandoned()
    assert not folder.exists()


def test_a_killed_process_starts_anew_with_an_empty_folder(tmp_path) -> None:
    with held(tmp_path) as (holder, folder):
        holder.kill()
        holder.wait()
        with memory_folder(tmp_path, 1000) as again:
            assert again == folder
            assert not (again / "model.safetensors").exists()


def test_weights_that_do_not_fit_twice_go_over_the_disk_and_that_is_said(
    tmp_path, memory, caplog
) -> None:
    caplog.set_level("INFO")
    with memory_folder(tmp_path, 2**60) as folder:
        assert folder is None
    assert "the sampler's weights go over the disk" in caplog.text
    assert not folder_of(memory / NAME, tmp_path).exists()


def test_a_folder_that_others_may_enter_is_not_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory_folders, "SHARED_MEMORY", tmp_path)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME).chmod(0o777)
    with memory_folder(tmp_path / "work", 1000) as folder:
        assert folder is None


def test_what_a_container_may_not_use_does_not_count_as_room(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory_folders, "CONTAINER", tmp_path)
    (tmp_path / "memory.current").write_text("9000\n")
    (tmp_path / "memory.stat").write_text("anon 5000\ninactive_file 3000\n")
    for limit, has_room in (("10000", True), ("7999", False), ("max", True)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        with memory_folder(tmp_path / "work", 1000) as folder:
            assert (folder is not None) == has_room


def test_folders_come_and_go_while_others_look_for_abandoned_ones(tmp_path, memory) -> None:
    def use(work: Path) -> None:
        for _ in range(100):
            with memory_folder(work, 1000) as folder:
                assert folder is not None
                for name in map(str, range(20)):
                    (folder / name).touch()

    with ThreadPoolExecutor(4) as trainers:
        list(trainers.map(use, [tmp_path / name for name in "abcd"]))
    assert [path.name for path in (memory / NAME).iterdir()] == [memory_folders.LOCK]
