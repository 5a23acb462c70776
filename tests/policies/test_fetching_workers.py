"""A machine that still fetches weights can end, rejoin and serve others as if it did not."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from faulty import ordered
from joined import ENDS_S, TCP, TOKEN, Machines, scripted_pool
from s3 import bad_way
from waiting import wait_until

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.workers import wire
from lpfloop.policies.workers.join_listener import JoinListener
from lpfloop.policies.workers.join_protocol import RELAY, Heartbeat, Parcel
from lpfloop.policies.workers.weights import CACHE, sent_weights
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.policies.workers.worker_session import WorkerSession
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.durable import make_folder, publish_folder
from lpfloop.stores.node_copies import HASHING
from lpfloop.stores.objects import objects_of

pytestmark = pytest.mark.crash

PULSE = Heartbeat(beat_s=0.5, silence_s=120.0)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    started = Machines(tmp_path)
    yield started
    started.end()


@contextmanager
def listening(address: str = "127.0.0.1:0") -> Generator[JoinListener]:
    listener = JoinListener(address, TOKEN, pulse=PULSE)
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def endless_hashing(cache: Path) -> Generator[None]:
    """Be a process of a machine that hashes for ever, for which its others wait."""
    with (make_folder(cache) / HASHING).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def engine_at(listener: JoinListener, folder: Path) -> WorkerEngine:
    config = EngineConfig(kind="transformers")
    start = listener.starter("fetched", 0)
    return WorkerEngine("transformers", str(folder), config, start=start, elsewhere=True)


def answers(listener: JoinListener, folder: Path) -> int:
    """Have a model that needs no weights answer at a machine; return how often it did."""
    pool = scripted_pool(listener, [TCP], folder, "faulty:behave", "other")
    try:
        [result] = pool.generate([ordered("a", "w", "x")])
    finally:
        pool.close()
    return len(result.completions)


def wait_for_fetching(pid: int, cache: Path, *, opened: int = 1) -> None:
    """Wait until a process has so many descriptors of its cache's lock."""
    lock, process = str(cache / HASHING), psutil.Process(pid)
    wait_until(lambda: [file.path for file in process.open_files()].count(lock) >= opened)


def test_a_machine_that_fetches_is_free_for_others_and_rejoins_and_ends(
    machines: Machines, tiny_policy: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "nvme"
    with endless_hashing(cache):
        with listening() as listener:
            address = listener.address
            worker = machines.start(address, **{CACHE: str(cache)})
            engine = engine_at(listener, tiny_policy)
            wait_for_fetching(worker.pid, cache)
            wait_until(lambda: bool(listener.joined.machines) and listener.joined.idle == 0)
            engine.close()
            wait_until(lambda: listener.joined.idle == 1)
            assert answers(listener, tmp_path) == 2
            lost = engine_at(listener, tiny_policy)
            # What is fetched for nobody any more goes on.
            wait_for_fetching(worker.pid, cache, opened=2)
        with listening(address) as listener:
            assert answers(listener, tmp_path) == 2
            ending = engine_at(listener, tiny_policy)
            wait_for_fetching(worker.pid, cache, opened=3)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(ENDS_S) == 0
            ending.close()
        lost.close()


def test_a_machine_ends_in_the_middle_of_a_download(
    s3_server: str,
    bucket: str,
    machines: Machines,
    tiny_policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    run = lake_folder(f"s3://{bucket}/lake") / "runs" / "a"
    draft = shutil.copytree(tiny_policy, make_folder(run / "work") / "draft")
    folder = run / "checkpoints" / publish_folder(draft, make_folder(run / "checkpoints"))
    objects_of(run).publish(folder)
    asked, goes_on = list[str](), threading.Event()

    def stall(method: str, path: str) -> None:
        if method == "GET" and path.endswith(".safetensors"):
            asked.append(path)
            goes_on.wait()

    with bad_way(s3_server) as way, listening() as listener:
        way.faults = stall
        given = {CACHE: str(tmp_path / "nvme"), "AWS_ENDPOINT_URL": way.endpoint}
        engine = engine_at(listener, folder)
        # As for a machine that does not see the head's disk.
        folder.rename(folder.with_name("gone"))
        worker = machines.start(listener.address, **given)
        wait_until(lambda: bool(asked))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(ENDS_S) == 0
        # It did not try until its patience ended.
        assert len(asked) == 1
        engine.close()
        goes_on.set()


def test_a_second_signal_ends_a_worker_wherever_it_is(machines: Machines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        worker = machines.start(f"127.0.0.1:{mute.getsockname()[1]}")
        line, _ = mute.accept()
        line.recv(1)  # It waits for an answer, which does not come.
        while worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                worker.wait(0.2)
        assert worker.returncode == -signal.SIGTERM
        # It did not end because its patience did.
        assert "does not answer" not in worker.communicate()[1]
        line.close()


def test_a_loaded_model_that_fetches_new_weights_ends_at_once(
    root: Path, tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "nvme"
    monkeypatch.setenv(CACHE, str(cache))
    monkeypatch.setenv("PYTHONPATH", str(root / "tests" / "support"), prepend=os.pathsep)
    sent = list[Parcel]()
    session = WorkerSession(1, (), tmp_path / "log", send=sent.append, say=lambda _: None)
    config = EngineConfig(kind="scripted", script="faulty:behave").model_dump(mode="json")
    opening = {"op": "open", "role": "engine", "kind": "scripted", "model": "none"}
    session.take(wire.body(opening | {"config": config}))
    wait_until(lambda: [parcel.kind for parcel in sent] == [RELAY])
    with endless_hashing(cache):
        session.take(wire.body({"op": "item", "weights": sent_weights(tiny_policy)}))
        wait_for_fetching(os.getpid(), cache, opened=2)
        session.end(grace=False)
        assert session.wait(ENDS_S)
    [ended] = sent[1:]
    assert (ended.session, ended.said()["how"]) == (1, "killed by SIGKILL")
