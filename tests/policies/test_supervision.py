"""Workers that die or hang are started again; what kills them each time fails alone."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from faulty import SAMPLING, ordered
from waiting import ended, wait_until

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.policies.engines.engine import (
    Batch,
    Completion,
    EngineError,
    Request,
    ScoreBatch,
    ScoreRequest,
)
from lpfloop.policies.engines.feed import Feed
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.policies.workers import supervised
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine, WorkerScorer
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

STALL_S = 2.0
PATIENT_S = 120.0
"""A deadline that only what never answers can miss, also on a busy machine."""
FAULTS = {
    "die": "killed by SIGKILL",
    "crash": "killed by SIGSEGV",
    "leave": "exit code 7",
    "overflow": "exit code 1",
    "refuse": "the model gives no finite probabilities",
    "hang": "no result for 2 s",
    "stop": "no result for 2 s",
}

Opener = Callable[..., WorkerEngine]


@pytest.fixture
def opened(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open engines whose model is `faulty.behave`; they wait little before a restart."""
    monkeypatch.setenv("PYTHONPATH", str(root / "tests" / "support"), prepend=os.pathsep)
    monkeypatch.setattr(supervised, "LONGEST_BACKOFF_S", 0.01)
    engines: list[WorkerEngine] = []

    def open_engine(**settings: object) -> WorkerEngine:
        config = EngineConfig.model_validate(
            {"kind": "scripted", "script": "faulty:behave", "stall_s": PATIENT_S, **settings}
        )
        engines.append(
            WorkerEngine(
                "scripted", "none", config, start=child_workers(log=tmp_path / "worker.log")
            )
        )
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()


def drawn(engine: WorkerEngine, *batches: Batch) -> dict[str, Completion]:
    """Draw all batches; no key may come twice, and each with all its requests in order."""
    results = list(engine.generate(batches))
    assert sorted(r.key for r in results) == sorted(b.key for b in batches)
    wanted = {b.key: [r.request_id for r in b.requests] for b in batches}
    assert {r.key: [c.request_id for c in r.completions] for r in results} == wanted
    return {c.request_id: c for r in results for c in r.completions}


def restarts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of restarts."""
    records = (r for r in caplog.records if r.name == "lpfloop.worker")
    return [r.getMessage() for r in records if "restart" in r.getMessage()]


def stall_s(fault: str) -> float:
    """Return how long a worker may say nothing that has such a fault."""
    return STALL_S if fault in ("hang", "stop") else PATIENT_S


@contextmanager
def impatient(
    engine: WorkerEngine, marker: Path, caplog: pytest.LogCaptureFixture
) -> Generator[None]:
    """Let a worker that hangs have little time, and its successor as much as it needs."""

    def watch() -> None:
        wait_until(marker.exists)
        engine.configure(EngineConfig(stall_s=STALL_S))
        wait_until(lambda: bool(restarts(caplog)))
        engine.configure(EngineConfig(stall_s=PATIENT_S))

    watching = threading.Thread(target=watch)
    watching.start()
    yield
    watching.join()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_that_fails_once_is_not_noticed_in_the_results(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    engine, marker = opened(), tmp_path / "marker"
    batches = ordered("a", "w"), ordered("bb", "x", f"{fault} once {marker}", "y")
    with impatient(engine, marker, caplog) if fault in ("hang", "stop") else nullcontext():
        found = drawn(engine, *batches, ordered("ccc", "z"))
    assert {c.request_id: c.text for c in found.values()} == {
        "a/0": "w 100",
        "bb/0": "x 200",
        "bb/1": f"{fault} 201",
        "bb/2": "y 202",
        "ccc/0": "z 300",
    }
    assert {c.finish_reason for c in found.values()} == {"stop"}
    [told] = restarts(caplog)
    assert FAULTS[fault] in told
    assert str(tmp_path / "worker.log") in told
    assert caplog.records[0].levelno == logging.WARNING


def test_the_reason_holds_the_logs_last_line(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drawn(opened(), ordered("a", f"overflow once {tmp_path / 'marker'}"))
    assert "MemoryError: no memory is left on the device" in restarts(caplog)[0]


def test_what_was_given_back_is_not_given_again(opened: Opener) -> None:
    engine = opened()
    feed: Feed[Batch] = Feed()
    results = engine.generate(feed)
    given: list[str] = []
    for key in ("a", "b", "c"):
        feed.put(ordered(key, "x", "y"))
        given.append(next(results).key)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
    feed.put(ordered("d", "x"))
    feed.finish()
    assert [*given, *(r.key for r in results)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("fault", ["die", "overflow", "hang"])
def test_a_request_that_kills_each_time_fails_alone(opened: Opener, fault: str) -> None:
    batches = [ordered("a", "x"), ordered("bb", "w", fault, "y"), ordered("ccc", "z", "z")]
    found = drawn(opened(stall_s=stall_s(fault)), *batches)
    failed = found.pop("bb/1")
    assert failed == Completion(
        request_id="bb/1",
        text="",
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="failed",
        logprob=None,
        error=f"it ends every worker that works on it alone: {FAULTS[fault]}",
    )
    assert {c.text for c in found.values()} == {"x 100", "w 200", "y 202", "z 300", "z 301"}
    assert {c.finish_reason for c in found.values()} == {"stop"}


def test_a_conversation_that_kills_with_every_seed_fails_with_all_its_requests(
    opened: Opener,
) -> None:
    batches = [ordered("a", "x"), ordered("bb", *["die"] * 4), ordered("ccc", "y")]
    found = drawn(opened(), *batches)
    assert [c.finish_reason for c in found.values()].count("failed") == 4
    assert (found["a/0"].text, found["ccc/0"].text) == ("x 100", "y 300")


def test_poison_in_the_first_batch_of_all_is_found(opened: Opener) -> None:
    """A run that is resumed may begin with it."""
    found = drawn(opened(), ordered("a", "die", "x"))
    assert [c.finish_reason for c in found.values()] == ["failed", "stop"]


def test_the_engine_works_on_after_poison(opened: Opener) -> None:
    engine = opened()
    drawn(engine, ordered("a", "x"), ordered("bb", "die"))
    assert drawn(engine, ordered("a", "x"))["a/0"].text == "x 100"


@pytest.mark.parametrize("restarts_allowed", [0, 1, 3])
def test_a_worker_that_never_answers_is_given_up_soon(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture, restarts_allowed: int
) -> None:
    engine = opened(restarts=restarts_allowed)
    with pytest.raises(EngineError) as caught:
        list(engine.generate([ordered("a", "leave"), ordered("b", "leave")]))
    assert len(restarts(caplog)) == restarts_allowed
    for told in ("exit code 7", "the last words", str(tmp_path / "worker.log")):
        assert told in str(caught.value)


def test_a_machine_that_breaks_later_fails_no_request(opened: Opener, tmp_path: Path) -> None:
    """Every request kills the worker from some moment on: that is no fault of the requests."""
    marker = tmp_path / "broken"
    engine = opened()
    poisoned = f"die while {marker}"
    drawn(engine, ordered("a", "x"), ordered("b", poisoned))
    marker.touch()
    with pytest.raises(EngineError, match="killed by SIGKILL"):
        list(engine.generate([ordered(key, poisoned) for key in "abcdef"]))


def test_a_request_that_was_answered_before_shows_whether_the_machine_is_broken(
    opened: Opener, tmp_path: Path
) -> None:
    """Nothing is left that could answer, and the worker dies of everything: no poison."""
    marker = tmp_path / "broken"
    engine = opened(restarts=6)
    good = f"die while {marker}"
    drawn(engine, ordered("a", good))
    marker.touch()
    with pytest.raises(EngineError, match="given up: 7 deaths in a row"):
        drawn(engine, ordered("b", "die"))
    marker.unlink()
    assert drawn(engine, ordered("b", "die"))["b/0"].finish_reason == "failed"


def test_a_given_up_engine_starts_anew_with_the_next_call(opened: Opener, tmp_path: Path) -> None:
    marker = tmp_path / "broken"
    marker.touch()
    engine = opened(restarts=1)
    with pytest.raises(EngineError):
        drawn(engine, ordered("a", f"die while {marker}"))
    marker.unlink()
    assert drawn(engine, ordered("a", "x"))["a/0"].text == "x 100"


def test_a_worker_that_dies_while_loading_is_started_again(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    engine = opened()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert engine.ready().engine == "scripted"
    assert len(restarts(caplog)) == 1


def test_a_worker_that_never_loads_is_given_up(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "LOAD_S", 0.0)
    with pytest.raises(EngineError, match="not loaded after 0 s"):
        opened(restarts=1).ready()


def test_a_process_that_can_not_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = EngineConfig(kind="scripted")
    with pytest.raises(EngineError, match="no worker process can be started"):
        WorkerEngine(
            "scripted", "none", config, start=child_workers(log=tmp_path / "file" / "worker.log")
        )


def test_a_model_that_can_not_be_loaded_is_not_tried_again(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(EngineError, match="cannot be loaded"):
        opened(script="no.such:function").ready()
    assert not restarts(caplog)


def test_a_worker_that_reads_nothing_counts_as_hung(real_python: None, opened: Opener) -> None:
    """More is sent than pipes hold: a stopped reader must not stop the writer for ever."""
    engine = opened(stall_s=STALL_S)
    engine.ready()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    long = "word " * 100_000
    [result] = engine.generate([ordered("a", long)])
    assert result.completions[0].text == "word 100"


def test_a_new_deadline_holds_from_now_on(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, marker = opened(stall_s=3600), tmp_path / "marker"
    with impatient(engine, marker, caplog):
        found = drawn(engine, ordered("a", f"hang once {marker}"))
    assert [c.text for c in found.values()] == ["hang 100"]
    assert len(restarts(caplog)) == 1


def test_a_dead_workers_processes_end_with_it(
    real_python: None, opened: Opener, tmp_path: Path
) -> None:
    """Also those that hold its pipe open, and so hide its end."""
    marker = tmp_path / "marker"
    drawn(opened(stall_s=3600), ordered("a", f"orphan once {marker}"))
    pids = [int(pid) for pid in Path(f"{marker}.pids").read_text().split()]
    assert len(pids) == 3
    for pid in pids:
        wait_until(lambda pid=pid: ended(pid))


def test_a_hung_workers_processes_end_with_it(
    real_python: None, opened: Opener, tmp_path: Path
) -> None:
    engine = opened(stall_s=STALL_S)
    engine.ready()
    first = engine.pid
    drawn(engine, ordered("a", f"hang once {tmp_path / 'marker'}"))
    assert first is not None
    assert engine.pid != first
    assert ended(first)


# sources that are not ready


class Slow:
    """A source that is not ready until it was asked often; it counts who asked."""

    def __init__(self, batches: list[Batch], patience: int) -> None:
        self.left = list(batches)
        self.patience = patience
        self.asked = 0

    def ready(self) -> bool:
        self.asked += 1
        return self.asked > self.patience

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if not self.left:
            raise StopIteration
        self.asked = 0
        return self.left.pop(0)


def test_a_paused_source_holds_back_no_result(opened: Opener) -> None:
    """The pause would outlast the test: what is in flight comes none the less."""
    feed: Feed[Batch] = Feed()
    results = opened().generate(feed)
    feed.put(ordered("a", "x"))
    feed.put(ordered("b", "y"))
    assert {next(results).key, next(results).key} == {"a", "b"}
    feed.finish()
    assert not list(results)


def test_a_source_that_becomes_ready_later_is_noticed(opened: Opener, tmp_path: Path) -> None:
    """While the first batch hangs, the second is asked for, and taken, again and again."""
    source = Slow([ordered("a", f"hang once {tmp_path / 'marker'}"), ordered("b", "y")], 10)
    results = opened(stall_s=STALL_S).generate(source)
    assert {r.key for r in results} == {"a", "b"}
    assert not source.left


def test_a_worker_that_dies_in_a_pause_is_started_again(opened: Opener, tmp_path: Path) -> None:
    feed: Feed[Batch] = Feed()
    feed.put(ordered("a", f"die once {tmp_path / 'marker'}"))
    results = opened().generate(feed)
    assert next(results).completions[0].text == "die 100"
    feed.finish()
    assert not list(results)


def test_a_script_in_this_process_gives_each_result_before_it_asks_for_more() -> None:
    feed: Feed[Batch] = Feed()
    results = ScriptedEngine(EngineConfig(kind="scripted")).generate(feed)
    for key in ("a", "b"):
        feed.put(ordered(key, "x"))
        assert next(results).key == key
    feed.finish()
    assert not list(results)


# what else an engine is asked


def test_a_script_measures_nothing(opened: Opener) -> None:
    conversation = (Message(role="user", content="x"), Message(role="assistant", content="y"))
    assert opened().logprobs([conversation, conversation]) == [None, None]
    assert opened().logprobs([]) == []


@pytest.mark.model
def test_a_scorer_is_started_again(tiny_reward: Path, tmp_path: Path) -> None:
    turns = (Message(role="user", content="Who?"), Message(role="assistant", content="I."))
    batches = [
        ScoreBatch(key=key, requests=(ScoreRequest(request_id=key, messages=turns),))
        for key in "abc"
    ]
    scorer = WorkerScorer(tiny_reward, RewardConfig(), start=child_workers(log=tmp_path / "log"))
    unkilled = list(scorer.score(batches))
    killed: list[object] = []
    for result in scorer.score(batches):
        killed.append(result)
        if len(killed) == 1:
            assert scorer.pid is not None
            os.kill(scorer.pid, signal.SIGKILL)
    scorer.close()
    assert killed == unkilled


@pytest.mark.model
def test_a_vllm_worker_killed_in_mid_generation_draws_the_same(
    tiny_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last batch is asked for when the many of the others are being drawn."""
    question = (Message(role="user", content="Tom has 3 apples and buys 4 more. How many?"),)
    batches = [
        Batch(
            key=key,
            requests=tuple(
                Request(request_id=f"{key}/{i}", messages=question, seed=derive_seed(0, key, i))
                for i in range(size)
            ),
            sampling=SAMPLING,
        )
        for key, size in {"a": 1, "b": 80, "c": 80, "d": 80}.items()
    ]
    config = EngineConfig(kind="vllm", cpu_threads=1)
    engine = WorkerEngine(
        "vllm", str(tiny_policy), config, start=child_workers(log=tmp_path / "log")
    )
    unkilled = {r.key: r for r in engine.generate(batches)}

    def source() -> Iterator[Batch]:
        yield from batches[:-1]
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        yield batches[-1]

    results = list(engine.generate(source()))
    killed = {result.key: result for result in results}
    assert len(results) == len(killed)
    engine.close()
    assert len(restarts(caplog)) == 1
    assert killed == unkilled
