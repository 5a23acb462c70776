"""Workers that join by TCP give what those of this machine give."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import wait_until
from workers import ENDS_S, LOCAL, TCP, TOKEN, Machines, ordered, scripted_pool

from lpfloop.policies.engines.engine import Batch, EngineError
from lpfloop.policies.workers import supervised
from lpfloop.policies.workers.join_listener import JoinListener
from lpfloop.policies.workers.join_protocol import Heartbeat
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool

pytestmark = [pytest.mark.crash, pytest.mark.slow]

PULSE = Heartbeat(beat_s=0.5, silence_s=120.0)
Listening = Callable[..., JoinListener]
Opened = Callable[..., EnginePool]


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """Listen for workers, which are not lost by silence: a busy machine is none."""
    monkeypatch.setattr(supervised, "LONGEST_BACKOFF_S", 0.01)
    open_: list[JoinListener] = []

    def listen(patience_s: float | None = None) -> JoinListener:
        open_.append(JoinListener("127.0.0.1:0", TOKEN, pulse=PULSE, patience_s=patience_s))
        return open_[-1]

    yield listen
    for listener in open_:
        listener.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    started = Machines(tmp_path)
    yield started
    started.end()


@pytest.fixture
def opened(tmp_path: Path, root: Path, environ: dict[str, str]) -> Iterator[Opened]:
    """Open pools of scripted replicas, here or at machines that join."""
    folders = [str(tmp_path), str(root / "tests" / "helpers"), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(folders)
    pools: list[EnginePool] = []

    def open_pool(listener: JoinListener, *berths: Berth) -> EnginePool:
        pools.append(scripted_pool(listener, berths, tmp_path, "workers:behave", "model"))
        return pools[-1]

    yield open_pool
    for pool in pools:
        pool.close()


def batches(count: int) -> list[Batch]:
    return [ordered(f"b{number:04}", "w", "w") for number in range(count)]


def count(listener: JoinListener) -> int:
    return len(listener.joined.machines)


def test_killed_machine_loses_nothing(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    processes = [machines.start(listener.address) for _ in range(2)]
    pool = opened(listener, TCP, TCP, LOCAL)
    wait_until(lambda: count(listener) == 2)
    found = dict[str, str]()
    for number, result in enumerate(pool.generate(batches(300))):
        assert not found.keys() & {c.request_id for c in result.completions}
        found |= {c.request_id: c.text for c in result.completions}
        if number == 20:
            for process in processes:
                process.kill()
    assert found == {f"b{n:04}/{i}": f"w {500 + i}" for n in range(300) for i in range(2)}


def test_wrong_token(
    listening: Listening, machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    listener = listening()
    worker = machines.start(listener.address, LPFLOOP_JOIN_TOKEN="another token, long enough")
    _, said = worker.communicate(timeout=ENDS_S)
    assert (worker.returncode, "the token is another" in said) == (2, True)
    # The head refuses before it says so itself.
    wait_until(lambda: "cannot join as a worker: the token is another" in caplog.text)
    assert count(listener) == 0


def test_patience(listening: Listening, opened: Opened) -> None:
    listener = listening(patience_s=2.0)
    pool = opened(listener, TCP)
    with pytest.raises(EngineError, match=r"no worker was there for 2 s \(workers.patience_s\)"):
        list(pool.generate(batches(1)))
