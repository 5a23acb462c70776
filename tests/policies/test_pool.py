"""Replicas share a model's work: nothing is lost, given twice, or changed by how many there are."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from faulty import SAMPLING, ordered
from waiting import ended, wait_until

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.policies.engines.canary import CanaryRow, prove
from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    EngineError,
    Request,
    Sampling,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from lpfloop.policies.engines.feed import Feed
from lpfloop.policies.workers import supervised
from lpfloop.policies.workers.open import open_engine, open_scorer
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.replica_pool import ReplicaPool, Seat
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

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
from faulty import behave

HERE = Path(__file__).parent

def done(name):
    path = HERE / name
    return path.stat().st_size if path.exists() else 0

def note(name):
    with (HERE / name).open("a") as noted:
        noted.write("x")

def wait_until(due):
    until = time.monotonic() + 60
    while not due() and time.monotonic() < until:
        time.sleep(0.001)

def slowly(request, sampling):
    wait_until(lambda: 5 * done("slow") < done("quick"))
    note("slow")
    return f"slow {request.seed}"

def quickly(request, sampling):
    wait_until(lambda: done("quick") < 5 * (done("slow") + 2))
    note("quick")
    return f"quick {request.seed}"

def named(request, sampling):
    time.sleep(0.02)
    note("named")
    return str(os.getpid())

def never(request, sampling):
    time.sleep(3600)

def broken(request, sampling):
    os._exit(3)
"""


@pytest.fixture
def opened(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open pools of scripted replicas, one a script; they wait little before a restart."""
    (tmp_path / "scripts.py").write_text(SCRIPTS)
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(3600)\n")
    for folder in (root / "tests" / "support", tmp_path):
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
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


def test_both_replicas_work_and_give_what_one_gives(opened: Opener) -> None:
    pids = set[str]()
    # One may load long before the other, and would draw all of a few.
    for result in opened("scripts:named", "scripts:named").generate(batches(20_000)):
        pids.add(result.completions[0].text)
        if len(pids) == 2:
            break
    assert len(pids) == 2
    asked = batches(40, 2)
    wanted = {f"b{n}/{i}": f"w {i}" for n in range(40) for i in range(2)}
    assert texts(opened("faulty:behave", "faulty:behave"), asked) == wanted


def test_a_replica_that_is_five_times_slower_gets_a_fifth(opened: Opener) -> None:
    """Each waits for the other, so that it is five times slower on a busy machine, too."""
    pool = opened("scripts:slowly", "scripts:quickly")
    results = pool.generate(batches(10_000))
    drawn = (result.completions[0].text.split()[0] for result in results)
    list(islice(drawn, 50))  # both are at work
    shares = Counter(islice(drawn, 250))
    assert 1 / 8 < shares["slow"] / shares["quick"] < 1 / 3


def test_a_replica_that_still_loads_holds_nobody_up(opened: Opener) -> None:
    pool = opened("endless:never", "faulty:behave")
    assert len(texts(pool, batches(20))) == 20


def test_a_killed_replica_gives_its_slices_all_the_same(opened: Opener) -> None:
    pool = opened("faulty:behave", "faulty:behave")
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


def test_one_that_gives_up_is_replaced_and_the_others_get_its_slices(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("scripts:broken", "faulty:behave", successors=["faulty:behave"], restarts=1)
    before = pool.pids[0]
    while "replaced (1 of 3)" not in caplog.text:  # one may do all before the other has loaded
        assert len(texts(pool, batches(60, 2))) == 120
    assert "replica 1 of 2" in caplog.text
    assert len(pool.pids) == 2
    assert before not in pool.pids


def test_one_that_gives_up_for_good_is_left_out(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    successors = ["scripts:broken"] * 3
    pool = opened("scripts:broken", "scripts:named", successors=successors, restarts=0)
    assert len(set(texts(pool, batches(60, 2)).values())) == 1
    texts(pool, batches(20))
    texts(pool, batches(20))
    while len(pool.pids) == 2:
        texts(pool, batches(20))
    assert "left out: 1 are left" in caplog.text
    assert len(texts(pool, batches(20))) == 20


def test_the_last_one_tells_why(opened: Opener) -> None:
    pool = opened("scripts:broken", "scripts:broken", successors=["scripts:broken"] * 6, restarts=0)
    with pytest.raises(EngineError, match="exit code 3"):
        texts(pool, batches(4))


def test_what_no_replica_can_load_is_told_whenever_it_is_asked(opened: Opener) -> None:
    pool = opened("none.such:script", "none.such:script")
    for _ in range(2):
        with pytest.raises(EngineError, match="cannot be loaded"):
            texts(pool, batches(4))
    pool.close()
    with pytest.raises(EngineError, match="was closed"):
        texts(pool, batches(4))


def test_one_that_cannot_be_loaded_is_left_out_though_all_are_to_prove_their_weights(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("faulty:behave", "none.such:script", "faulty:behave")
    prove(pool, CANARY)
    while len(pool.pids) == 3:
        assert len(texts(pool, batches(20))) == 20
    assert "left out: 2 are left" in caplog.text
    prove(pool, CANARY)
    none = opened("none.such:script", "none.such:script")
    with pytest.raises(EngineError, match="cannot be loaded"):
        prove(none, CANARY)


def test_one_that_gives_up_while_all_are_asked_is_replaced(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened("faulty:behave", "faulty:behave", successors=["faulty:behave"], restarts=0)
    prove(pool, CANARY)
    killed, other = pool.pids
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    prove(pool, CANARY)
    while "replaced (1 of 3)" not in caplog.text:
        assert len(texts(pool, batches(20))) == 20
    prove(pool, CANARY)
    assert killed not in pool.pids
    assert pool.pids[1] == other


@pytest.mark.model
@pytest.mark.usefixtures("opened")
def test_one_that_cannot_take_new_weights_is_opened_anew_and_the_others_go_on(
    tmp_path: Path, tiny_policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = ["transformers", "scripted", "transformers"]

    def opener(_n: int, _berth: Berth, model: str, config: EngineConfig) -> WorkerEngine:
        return WorkerEngine(kinds.pop(0), model, config, start=child_workers(log=tmp_path / "log"))

    config = EngineConfig(script="faulty:behave", cpu_threads=1)
    pool = EnginePool(opener, str(tiny_policy), config, [Berth(place="local")] * 2)
    goes_on = pool.pids[0]
    pool.reload(tiny_policy)
    prove(pool, ())
    while "it cannot reload: scripted holds no such weights; replaced (1 of 3)" not in caplog.text:
        assert len(texts(pool, batches(1))) == 1
    prove(pool, ())
    assert pool.pids[0] == goes_on
    said = pool.logprobs([CANARY[0].conversation] * 40)
    assert said == said[:1] * 40
    assert said[0] is not None
    pool.close()


def test_a_pool_that_cannot_open_all_its_replicas_leaves_none_behind() -> None:
    closed = list[int]()

    class Opened:
        pid, waits = None, False

        def close(self) -> None:
            closed.append(1)

    def start(number: int, _berth: Berth) -> Opened:
        if number == 2:
            raise EngineError("no more")
        return Opened()

    with pytest.raises(EngineError, match="no more"):
        ReplicaPool(start, [Berth(place="local")] * 3)  # type: ignore[type-var]
    assert len(closed) == 2


def test_a_seat_whose_thread_has_ended_says_so() -> None:
    seat = Seat(0, 0, Berth(place="local"), object())  # type: ignore[type-var]
    assert seat.do(lambda: "done").result() == "done"
    seat.leave()
    with pytest.raises(EngineError, match="was closed"):
        seat.do(lambda: "late").result()


def test_a_request_that_kills_every_replica_fails_alone(opened: Opener) -> None:
    pool = opened("faulty:behave", "faulty:behave")
    asked = [ordered("a", "x"), ordered("bb", "w", "die", "y"), *batches(20)]
    results = {c.request_id: c for r in pool.generate(asked) for c in r.completions}
    assert {name for name, c in results.items() if c.finish_reason == "failed"} == {"bb/1"}
    assert len(results) == 24


def test_the_source_is_asked_by_the_consumer_alone_and_never_waited_for(opened: Opener) -> None:
    pool = opened("faulty:behave", "faulty:behave")
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


def test_a_stream_that_is_left_ends_and_the_next_one_is_answered(
    opened: Opener, tmp_path: Path
) -> None:
    pool = opened("scripts:named", "scripts:named")
    left = pool.generate(batches(2000, 8))
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert len(texts(pool, [batch("other", 2)])) == 2
    assert (tmp_path / "named").stat().st_size < 8 * 2000


def test_closing_from_another_thread_ends_a_stream_with_an_error(opened: Opener) -> None:
    pool = opened("faulty:behave", "faulty:behave", "endless:never")
    feed: Feed[Batch] = Feed()
    feed.put(ordered("a", "x"))
    feed.put(ordered("b", "hang"))
    results = pool.generate(feed)
    assert next(results).key == "a"
    pids = [pid for pid in pool.pids if pid is not None]
    threading.Timer(0.3, pool.close).start()
    with pytest.raises(EngineError, match="was closed"):
        list(results)
    for pid in pids:
        wait_until(lambda pid=pid: ended(pid))
    with pytest.raises(EngineError, match="was closed"):
        texts(pool, batches(1))


def test_two_slices_of_one_key_are_a_mistake(opened: Opener) -> None:
    pool = opened("scripts:never", "scripts:never")
    with pytest.raises(ValueError, match="have the key b0"):
        list(pool.generate([batch("b0", 50), batch("b0", 50)]))


@pytest.mark.model
def test_a_model_draws_the_same_in_one_replica_in_two_and_with_one_killed(
    tmp_path: Path, tiny_policy: Path
) -> None:
    questions = [f"Tom has {n} apples and buys {n + 4}. How many has he?" for n in range(6)]
    asked = [
        Batch(
            key=str(number),
            requests=tuple(
                Request(
                    request_id=f"{number}/{i}",
                    messages=(Message(role="user", content=question),),
                    seed=derive_seed(0, str(number), i),
                )
                for i in range(12)
            ),
            sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=24),
        )
        for number, question in enumerate(questions)
    ]
    config = EngineConfig(kind="transformers", cpu_threads=1)

    def opened(replicas: int) -> WorkerEngine | EnginePool:
        own = config.model_copy(update={"replicas": replicas})
        engine = open_engine(str(tiny_policy), own, log=tmp_path / "engine.log")
        assert isinstance(engine, WorkerEngine | EnginePool)
        return engine

    one, two = opened(1), opened(2)
    alone = {r.key: r for r in one.generate(asked)}
    one.close()
    assert {r.key: r for r in two.generate(asked)} == alone
    killed = dict[str, BatchResult]()
    assert isinstance(two, EnginePool)
    for result in two.generate(asked):
        assert result.key not in killed
        if not killed:
            for pid in two.pids[:1]:
                os.kill(pid or 0, signal.SIGKILL)
        killed[result.key] = result
    two.close()
    assert killed == alone


@pytest.mark.model
def test_scores_do_not_depend_on_the_number_of_replicas(tmp_path: Path, tiny_reward: Path) -> None:
    def asked() -> list[ScoreBatch]:
        return [
            ScoreBatch(
                key=str(number),
                requests=tuple(
                    ScoreRequest(
                        request_id=f"{number}/{i}",
                        messages=(
                            Message(role="user", content="Tom has 3 apples. How many?"),
                            Message(role="assistant", content=f"{'3 ' * i}It is {number}."),
                        ),
                    )
                    for i in range(16)
                ),
            )
            for number in range(12)
        ]

    def scores(replicas: int) -> dict[str, ScoreResult]:
        config = RewardConfig(replicas=replicas)
        scorer = open_scorer(tiny_reward, config, log=tmp_path / "reward.log")
        try:
            return {result.key: result for result in scorer.score(asked())}
        finally:
            scorer.close()

    assert scores(2) == scores(1)
    assert {path.name for path in tmp_path.iterdir()} >= {"reward-1.log", "reward-2.log"}
