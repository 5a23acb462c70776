"""Workers that die or hang are restarted; what kills every worker fails alone.

The worker is a double in this process, which dies when a request orders it to.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from workers import happens, ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, BatchResult, Completion, EngineError
from lpfloop.policies.engines.feed import Feed
from lpfloop.policies.workers import sent_stream, supervised, wire, worker, worker_line
from lpfloop.policies.workers.channel import ChannelEndedError
from lpfloop.policies.workers.supervised import GivenUpError
from lpfloop.policies.workers.worker import Worker
from lpfloop.policies.workers.worker_models import WorkerEngine

STALL_S = 60.0
DEATHS = {"die": "killed by SIGKILL", "leave": "exit code 7"}
WINDOW = 8
READY = {"op": "ready", "engine": "double", "device": "cpu", "versions": {}}


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Double:
    """A channel to a worker that carries out the orders of its requests when it is read."""

    pid, name = None, "the double"

    def __init__(self, clock: Clock, opening: wire.Frame, *, waits: bool = False) -> None:
        self.waits = waits
        self._clock = clock
        self._batches: deque[wire.Frame] = deque()
        self._task, self._how, self._hangs = "", "", waits
        self._said: deque[wire.Frame] = deque([READY | {"window": WINDOW, "sleeps": False}])
        match opening["model"]:
            case "silent":
                self._hangs = True
            case "unloadable":
                self._said = deque([{"op": "failed", "message": "it cannot be loaded"}])
            case "stillborn":
                self._how = "exit code 1"
            case _:
                pass

    def send(self, frame: wire.Frame, limit_s: float) -> bool:
        if self._how:
            raise ChannelEndedError
        if frame["op"] == "begin":
            self._task = frame["task"]
        elif frame["op"] == "item" and self._is_deaf(frame):
            self._clock.sleep(limit_s)
            return False
        elif frame["op"] == "item":
            self._batches.append(frame)
        return True

    def _is_deaf(self, frame: wire.Frame) -> bool:
        orders = (r.messages[-1].content.split() for r in wire.read_batch(frame).requests)
        return any(order == "deaf" and happens(condition) for order, *condition in orders)

    def receive(self, timeout_s: float) -> wire.Frame | None:
        if self._how:
            raise ChannelEndedError
        if self._hangs or not (self._said or self._batches):
            self._clock.sleep(timeout_s)
            return None
        return self._said.popleft() if self._said else self._answer(self._batches.popleft())

    def _answer(self, frame: wire.Frame) -> wire.Frame | None:
        batch = wire.read_batch(frame)
        for request in batch.requests:
            order, *condition = request.messages[-1].content.split()
            if order in {*DEATHS, "hang", "refuse"} and happens(condition):
                if order == "refuse":
                    return {"op": "failed", "message": "no finite probabilities"}
                self._how, self._hangs = DEATHS.get(order, ""), order == "hang"
                return self.receive(0.0)
        completions = tuple(
            Completion(
                request_id=request.request_id,
                text=f"{request.messages[-1].content.split()[0]} {request.seed}",
                prompt_tokens=1,
                completion_tokens=1,
                finish_reason="stop",
                logprob=None,
            )
            for request in batch.requests
        )
        found = wire.result_frame(BatchResult(key=batch.key, completions=completions))
        return {"op": "result", "stream": frame["stream"], **found}

    def end(self) -> str:
        return self._how

    def last_words(self) -> str:
        return "its log ends"

    def kill(self) -> None:
        self._how = self._how or "killed by SIGKILL"

    close = kill


Opener = Callable[..., WorkerEngine]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    for module in (sent_stream, supervised, worker, worker_line):
        monkeypatch.setattr(module, "time", told)
    return told


@pytest.fixture
def opened(clock: Clock) -> Iterator[Opener]:
    engines: list[WorkerEngine] = []

    def open_engine(model: str = "none", **settings: object) -> WorkerEngine:
        config = EngineConfig.model_validate({"kind": "scripted", "stall_s": STALL_S, **settings})
        start = lambda opening: Worker(opening, Double(clock, opening))  # noqa: E731
        engines.append(WorkerEngine("scripted", model, config, start=start))
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
    return [r.getMessage() for r in caplog.records if "restart" in r.getMessage()]


FAULTS = {**DEATHS, "hang": "no result for 60 s", "refuse": "no finite probabilities"}


def test_one_failure_changes_no_result(opened, tmp_path, caplog, subtests) -> None:
    for fault, how in {**FAULTS, "deaf": "nothing read for 60 s"}.items():
        with subtests.test(fault=fault):
            caplog.clear()
            order = f"{fault} once {tmp_path / fault}"
            batches = ordered("a", "w"), ordered("bb", "x", order, "y"), ordered("ccc", "z")
            found = drawn(opened(), *batches)
            assert {c.request_id: c.text for c in found.values()} == {
                "a/0": "w 100",
                "bb/0": "x 200",
                "bb/1": f"{fault} 201",
                "bb/2": "y 202",
                "ccc/0": "z 300",
            }
            assert {c.finish_reason for c in found.values()} == {"stop"}
            [told] = restarts(caplog)
            assert how in told
            assert caplog.records[0].levelno == logging.WARNING


def test_poison_fails_alone(opened, subtests) -> None:
    for fault, how in FAULTS.items():
        with subtests.test(fault=fault):
            engine = opened()
            batches = [ordered("a", "x"), ordered("bb", "w", fault, "y"), ordered("ccc", "z", "z")]
            found = drawn(engine, *batches)
            failed = found.pop("bb/1")
            assert (failed.finish_reason, failed.text, failed.logprob) == ("failed", "", None)
            assert how in failed.error
            assert {c.text for c in found.values()} == {
                *("x 100", "w 200", "y 202", "z 300", "z 301")
            }
            assert {c.finish_reason for c in found.values()} == {"stop"}
            assert drawn(engine, ordered("a", "x"))["a/0"].text == "x 100"


def test_given_up_after_its_restarts(opened, caplog, tmp_path) -> None:
    for allowed in (0, 1, 3):
        caplog.clear()
        engine = opened(restarts=allowed)
        broken = tmp_path / f"{allowed}"
        broken.touch()
        with pytest.raises(EngineError, match="given up"):
            list(engine.generate([ordered(key, f"leave while {broken}") for key in "ab"]))
        assert len(restarts(caplog)) == allowed
        # The next call counts from zero again.
        broken.unlink()
        assert drawn(engine, ordered("a", "x"))["a/0"].text == "x 100"


def test_a_broken_machine_fails_no_request(opened, tmp_path) -> None:
    """Every request kills the worker from some moment on: that is no fault of the requests."""
    marker = tmp_path / "broken"
    engine = opened()
    poisoned = f"die while {marker}"
    drawn(engine, ordered("a", "x"), ordered("b", poisoned))
    marker.touch()
    with pytest.raises(EngineError, match="SIGKILL"):
        list(engine.generate([ordered(key, poisoned) for key in "abcdef"]))


def test_workers_that_do_not_load(opened, caplog, monkeypatch, subtests) -> None:
    monkeypatch.setattr(supervised, "LOAD_S", 5.0)
    for model, how, tries in (
        ("silent", "not loaded after 5 s", 1),
        ("stillborn", "exit code 1", 1),
        ("unloadable", "cannot be loaded", 0),
    ):
        with subtests.test(model=model):
            caplog.clear()
            with pytest.raises(EngineError, match=how):
                opened(model, restarts=1).ready()
            assert len(restarts(caplog)) == tries


def test_a_new_stall_limit_holds_at_once(opened, clock, tmp_path, caplog) -> None:
    engine = opened(stall_s=1e9)
    plain, asked = clock.sleep, [0]

    def sleep(seconds: float) -> None:
        plain(seconds)
        asked[0] += 1
        if asked[0] == 10:
            engine.configure(EngineConfig(stall_s=STALL_S))

    clock.sleep = sleep
    found = drawn(engine, ordered("a", f"hang once {tmp_path / 'marker'}"))
    assert found["a/0"].text == "hang 100"
    assert len(restarts(caplog)) == 1
    assert clock.now < 2 * STALL_S


def test_cancelled_during_a_search(opened, clock, tmp_path) -> None:
    """Two deaths begin a search, in which the last request hangs when it is alone."""
    feed, plain = Feed[Batch](), clock.sleep

    def sleep(seconds: float) -> None:
        plain(seconds)
        if clock.now > STALL_S:
            feed.cancel()

    clock.sleep = sleep
    deadly = [f"die once {tmp_path / name}" for name in "ab"]
    feed.put(ordered("a", *deadly, "hang"))
    assert list(opened(stall_s=1e6).generate(feed)) == []
    assert STALL_S < clock.now < 2 * STALL_S


def test_no_node_for_the_successor(clock: Clock) -> None:
    """What was in flight must not wait for room in a cluster: other replicas can take it."""
    waits = iter((False, True))
    engine = WorkerEngine(
        "scripted",
        "none",
        EngineConfig(kind="scripted"),
        start=lambda opening: Worker(opening, Double(clock, opening, waits=next(waits))),
    )
    with pytest.raises(GivenUpError, match="no node"):
        list(engine.generate([ordered("a", "die")]))
    assert clock.now < 2 * sent_stream.WITHOUT_S
