"""Replicas share a model's work: nothing is lost, given twice, or changed by how many there are."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from processes import ended, wait_until
from workers import SAMPLING, ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.canary import CanaryRow, prove
from lpfloop.policies.engines.engine import (
    Batch,
    EngineError,
    Request,
)
from lpfloop.policies.engines.feed import Feed
from lpfloop.policies.workers import supervised
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.stores.records import Message

CANARY = [
    CanaryRow(
        messages=(Message(role="user", content="Who?"),),
        answer="Me.",
        logprob_before=-20.0,
        logprob_after=-15.0,
        tokens=10,
    )
]

Opener = Callable[..., EnginePool]

SCRIPTS = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def named(request, sampling):
    time.sleep(0.02)
    return str(os.getpid())

def meeting(request, sampling):
    (HERE / f"{os.getpid()}.here").touch()
    while len(list(HERE.glob("*.here"))) < 2:
        time.sleep(0.01)
    return str(os.getpid())

def broken(request, sampling):
    os._exit(3)
"""


@pytest.fixture
def opened(
    tmp_path: Path, root: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    """Open pools of scripted replicas, one a script; they wait little before a restart."""
    (tmp_path / "scripts.py").write_text(SCRIPTS)
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(3600)\n")
    environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(root / "tests" / "helpers")])
    monkeypatch.setattr(supervised, "LONGEST_BACKOFF_S", 0.01)
    pools: list[EnginePool] = []

    def open_pool(*scripts: str, successors: Iterable[str] = (), **settings: object) -> EnginePool:
        """Open a replica for each script; those that take a place later run the successors."""
        names = [*scripts, *successors]
        given = {"kind": "scripted", **settings}
        log = tmp_path / "worker.log"

        def opener(_n: int, _berth: Berth, model: str, config: EngineConfig) -> WorkerEngine:
            own = config.model_copy(update={"script": names.pop(0)})
            return WorkerEngine("scripted", model, own, start=child_workers(log=log))

        config = EngineConfig.model_validate(given)
        pools.append(EnginePool(opener, "none", config, [Berth(place="local")] * len(scripts)))
        return pools[-1]

    yield open_pool
    for pool in pools:
        pool.close()


def batch(key: str, n: int = 1) -> Batch:
    messages = (Message(role="user", content="w"),)
    requests = (Request(request_id=f"{key}/{i}", messages=messages, seed=i) for i in range(n))
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


def batches(count: int, n: int = 1) -> list[Batch]:
    return [batch(f"b{number}", n) for number in range(count)]


def texts(engine: EnginePool | WorkerEngine, asked: Iterable[Batch]) -> dict[str, str]:
    """Draw all batches; no key may come twice."""
    results = list(engine.generate(asked))
    assert len({r.key for r in results}) == len(results)
    return {c.request_id: c.text for r in results for c in r.completions}


def test_both_replicas_work(opened: Opener) -> None:
    pids = texts(opened("scripts:meeting", "scripts:meeting"), batches(1000)).values()
    assert len(set(pids)) == 2
    asked = batches(40, 2)
    wanted = {f"b{n}/{i}": f"w {i}" for n in range(40) for i in range(2)}
    assert texts(opened("workers:behave", "workers:behave"), asked) == wanted


def test_killed_replicas_lose_nothing(opened: Opener) -> None:
    pool = opened("workers:behave", "workers:behave")
    asked = batches(200, 4)
    found = dict[str, str]()
    for number, result in enumerate(pool.generate(asked)):
        assert result.key not in found
        found |= {c.request_id: c.text for c in result.completions}
        if number in (3, 60):
            [pid, *_] = pool.pids if number == 3 else pool.pids[::-1]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    assert found == {f"b{n}/{i}": f"w {i}" for n in range(200) for i in range(4)}


def test_one_that_gives_up_is_replaced(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    pool = opened("scripts:broken", "scripts:named", successors=["scripts:named"], restarts=1)
    before = pool.pids[0]
    while "replaced (1 of 3)" not in caplog.text:  # one may do all before the other has loaded
        assert len(texts(pool, batches(60, 2))) == 120
    assert "replica 1 of 2" in caplog.text
    assert len(pool.pids) == 2
    assert before not in pool.pids


def test_one_that_cannot_be_loaded_is_left_out(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("scripts:named", "none.such:script", "scripts:named")
    prove(pool, CANARY)
    while len(pool.pids) == 3:
        assert len(texts(pool, batches(20))) == 20
    assert "left out: 2 are left" in caplog.text
    prove(pool, CANARY)
    none = opened("none.such:script", "none.such:script")
    with pytest.raises(EngineError, match="cannot be loaded"):
        prove(none, CANARY)


def test_the_source_is_asked_by_the_consumer(opened: Opener) -> None:
    pool = opened("workers:behave", "workers:behave")
    asked_by = set[int]()

    class Source(Feed[Batch]):
        def ready(self) -> bool:
            asked_by.add(threading.get_ident())
            return super().ready()

    feed = Source()
    feed.put(batch("first"))
    results = pool.generate(feed)
    assert next(results).key == "first"  # though more may follow
    feed.put(batch("second"))
    feed.put(batch("third"))
    assert {next(results).key, next(results).key} == {"second", "third"}
    feed.finish()
    assert list(results) == []
    assert asked_by <= {threading.get_ident()}


def test_closing_from_another_thread(opened: Opener) -> None:
    pool = opened("workers:behave", "workers:behave", "endless:never")
    feed: Feed[Batch] = Feed()
    feed.put(ordered("a", "x"))
    feed.put(ordered("b", "hang"))
    results = pool.generate(feed)
    assert next(results).key == "a"
    pids = [pid for pid in pool.pids if pid is not None]
    threading.Thread(target=pool.close, daemon=True).start()
    with pytest.raises(EngineError, match="was closed"):
        list(results)
    for pid in pids:
        wait_until(lambda pid=pid: ended(pid))
    with pytest.raises(EngineError, match="was closed"):
        texts(pool, batches(1))
