"""Replicas share a model's work: nothing is lost or given twice, and any number answers alike."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from processes import ended, wait_until
from workers import SAMPLING, ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.canary import CanaryRow
from lpfloop.policies.engines.engine import (
    Batch,
    EngineError,
    Feed,
    Request,
)
from lpfloop.policies.workers import hosted_model
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import ChildProcess, Opening
from lpfloop.policies.workers.places import Placement
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

Pool = HostedModel[EngineConfig]
Opener = Callable[..., Pool]

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
    if not (HERE / "mended").exists():
        os._exit(3)
    return str(os.getpid())
"""


@pytest.fixture
def opened(
    tmp_path: Path, root: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    """Open pools of scripted replicas, one a script, with a short delay before restarts."""
    (tmp_path / "scripts.py").write_text(SCRIPTS)
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(3600)\n")
    environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(root / "tests" / "helpers")])
    monkeypatch.setattr(hosted_model, "LONGEST_PAUSE", 0.01)
    pools: list[Pool] = []

    def open_pool(*scripts: str, more: Iterable[str] = (), **settings: object) -> Pool:
        """Open a replica for each script; later replicas run the scripts `more`."""
        names, named = [*scripts, *more], dict[int, str]()
        config = EngineConfig.model_validate(
            {"kind": "scripted", "replicas": len(scripts)} | settings
        )
        log = tmp_path / "worker.log"

        def start(
            number: int,
            _at: Placement,
            model: str,
            config: EngineConfig,
            wake: threading.Event,
        ) -> ChildProcess:
            script = named[number] = named.get(number) or names.pop(0)
            own = config.model_copy(update={"script": script})
            opening = Opening(kind="scripted", model=model, config=own)
            return ChildProcess(opening, wake, log=log)

        def placements(config: EngineConfig) -> list[Placement]:
            return [Placement(place="local")] * int(config.replicas)

        pools.append(HostedModel(start, "none", config, placements))
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


def texts(engine: Pool, asked: Iterable[Batch]) -> dict[str, str]:
    """Draw all batches; check that no key comes twice."""
    results = list(engine.generate(asked))
    assert len({r.key for r in results}) == len(results)
    return {c.request_id: c.text for r in results for c in r.answers}


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
        found |= {c.request_id: c.text for c in result.answers}
        if number in (3, 60):
            [pid, *_] = pool.pids if number == 3 else pool.pids[::-1]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    assert found == {f"b{n}/{i}": f"w {i}" for n in range(200) for i in range(4)}


def test_one_that_gives_up_is_tried_again(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("scripts:broken", "scripts:named", restarts=1)

    def mend() -> None:
        while "tried again (1 of 3)" not in caplog.text:
            time.sleep(0.01)
        (tmp_path / "mended").touch()

    mending = threading.Thread(target=mend, daemon=True)
    mending.start()
    while "tried again (1 of 3)" not in caplog.text:  # one may do all before the other loads
        assert len(texts(pool, batches(60, 2))) == 120
    mending.join()
    assert "replica 1 of 2" in caplog.text
    while len({*texts(pool, batches(60, 2)).values()}) < 2:
        pass
    assert len(pool.pids) == 2


def test_one_that_gives_up_again_and_again_is_left_out(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("scripts:broken", "scripts:named", restarts=0)
    while len(pool.pids) == 2:
        assert len(texts(pool, batches(60, 2))) == 120
    assert "left out: 1 are left" in caplog.text


def test_replicas_join_and_leave_a_stream(opened: Opener) -> None:
    """A single replica works in the consumer's thread, until others join."""
    pool = opened("scripts:named", more=["scripts:named"] * 2)
    feed = Feed[Batch]()
    for number in range(3):
        feed.put(batch(f"first{number}"))
    results = pool.generate(feed)
    alone = {next(results).answers[0].text for _ in range(3)}
    assert len(alone) == 1
    pool.configure(EngineConfig(kind="scripted", replicas=3))
    found = set[str]()
    number = 0
    while len(found) < 3:
        for part in range(3):
            feed.put(batch(f"then{number}-{part}"))
        number += 1
        found |= {next(results).answers[0].text for _ in range(3)}
    pool.configure(EngineConfig(kind="scripted", replicas=1))
    for number in range(20):
        feed.put(batch(f"last{number}"))
    feed.finish()
    assert len([*results]) == 20
    assert len(pool.pids) == 1


def test_one_that_cannot_be_loaded_is_left_out(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("scripts:named", "none.such:script", "scripts:named")
    pool.prove(CANARY)
    while len(pool.pids) == 3:
        assert len(texts(pool, batches(20))) == 20
    assert "left out: 2 are left" in caplog.text
    pool.prove(CANARY)
    none = opened("none.such:script", "none.such:script")
    with pytest.raises(EngineError, match="cannot be loaded"):
        none.prove(CANARY)


def test_lone_replica_answers_before_its_source_ends(opened: Opener) -> None:
    feed = Feed[Batch]()
    feed.put(batch("first"))
    results = opened("workers:behave").generate(feed)
    assert next(results).key == "first"
    feed.finish()
    assert list(results) == []


def test_consumer_drives_source(opened: Opener) -> None:
    pool = opened("workers:behave", "workers:behave")
    asked_by = set[int]()

    class Source(Feed[Batch]):
        def take(self) -> Batch | None:
            asked_by.add(threading.get_ident())
            return super().take()

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
