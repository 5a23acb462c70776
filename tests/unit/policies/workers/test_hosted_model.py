"""Restarts of workers that die or hang; a request that kills every worker fails alone.

The worker is a double in this process, which dies if a request orders it to. Replicas come and go,
but none starts on devices lent to others.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from workers import happens, ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Feed,
    Source,
)
from lpfloop.policies.workers import hosted_model, model_process
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import (
    Answer,
    Failure,
    Frame,
    Item,
    ModelProcess,
    Order,
    Reply,
    WorkerInfo,
)
from lpfloop.policies.workers.places import DeviceGroup, Placement

STALL_S = 60.0
DEATHS = {"die": "killed by SIGKILL", "leave": "exit code 7"}
READY = WorkerInfo(window=8, sleeps=False)


class Clock:
    """Time that passes only while a thread waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Double(ModelProcess):
    """A process that carries out the orders of its requests when its parent waits for it."""

    name = "the double"

    def __init__(
        self, clock: Clock, model: str, wake: threading.Event, *, waits: bool = False
    ) -> None:
        super().__init__(wake)
        if waits:
            self.started = None
        self.model, self.told = model, list[str]()
        self._clock = clock
        self._items: deque[Item | Order] = deque()
        self._how, self._hangs, self._over = "", waits, False
        self._said: deque[Reply] = deque([READY])
        match model:
            case "silent":
                self._hangs = True
            case "unloadable":
                self._said = deque([Failure("it cannot be loaded")])
            case "stillborn":
                self._how = "exit code 1"
            case _:
                pass

    def _put(self, frame: Frame, limit_s: float) -> None:
        if self._how:
            raise BrokenPipeError
        if isinstance(frame, Item):
            if self._is_deaf(frame):
                self._clock.sleep(limit_s)
                raise BlockingIOError
            self._items.append(frame)
            self.told.append(frame.batch.key)
        if isinstance(frame, Order):
            self._items.append(frame)
            self.told.append(frame.task)

    def _is_deaf(self, item: Item) -> bool:
        orders = (r.messages[-1].content.split() for r in item.batch.requests)
        return any(order == "deaf" and happens(condition) for order, *condition in orders)

    def act(self) -> bool:
        """Do the next thing; return False if there is nothing to do."""
        if self._how:
            was_over, self._over = self._over, True
            if not was_over:
                self._deliver(None)
            return not was_over
        if self._hangs or not (self._said or self._items):
            return False
        if self._said:
            self._deliver(self._said.popleft())
            return True
        item = self._items.popleft()
        reply = Answer(item.call) if isinstance(item, Order) else self._answer(item)
        if reply is not None:
            self._deliver(reply)
        return True

    def _answer(self, item: Item) -> Reply | None:
        batch = item.batch
        assert isinstance(batch, Batch)
        for request in batch.requests:
            order, *condition = request.messages[-1].content.split()
            if order in {*DEATHS, "hang", "refuse"} and happens(condition):
                if order == "refuse":
                    return Failure("no finite probabilities")
                self._how, self._hangs = DEATHS.get(order, ""), order == "hang"
                return None
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
        return Answer(item.call, BatchResult(key=batch.key, answers=completions))

    def _describe_end(self) -> str:
        return self._how

    def _last_words(self) -> str:
        return "its log ends"

    def kill(self) -> None:
        self._how = self._how or "killed by SIGKILL"

    close = kill


class Clocked(HostedModel[EngineConfig]):
    """A model whose processes are doubles, on a clock that stands while they work."""

    clock: Clock
    doubles: list[Double]
    is_slow = False
    """Whether the processes do everything before the model looks at their replies."""

    def _wait(self, seconds: float) -> None:
        acted = sum(double.act() for double in self.doubles)
        while self.is_slow and any(double.act() for double in self.doubles):
            pass
        if not acted:
            self.clock.sleep(seconds)
        self._require_open()


HERE, THERE = (Placement(place="local", group=DeviceGroup(numbers=(n,))) for n in range(2))


def placements(config: EngineConfig) -> list[Placement]:
    return [HERE, THERE][: int(config.replicas) if config.replicas != "auto" else 1]


Opener = Callable[..., Clocked]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    for module in (hosted_model, model_process):
        monkeypatch.setattr(module, "time", told)
    return told


@pytest.fixture
def opened(clock: Clock) -> Iterator[Opener]:
    engines: list[Clocked] = []

    def open_engine(
        model: str = "none",
        *,
        waits: Sequence[bool] = (),
        placed: Callable[[EngineConfig], list[Placement]] = placements,
        **settings: object,
    ) -> Clocked:
        """Open a model; `waits` says of each process whether a node lacks room for it."""
        config = EngineConfig.model_validate(
            {"kind": "scripted", "hang_timeout_s": STALL_S, **settings}
        )
        doubles, waiting = list[Double](), iter(waits)

        def start(
            _number: int, _at: Placement, model: str, _config: EngineConfig, wake: threading.Event
        ) -> Double:
            doubles.append(Double(clock, model, wake, waits=next(waiting, False)))
            return doubles[-1]

        engines.append(Clocked(start, model, config, placed))
        engines[-1].clock, engines[-1].doubles = clock, doubles
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()


def drawn(engine: Clocked, *batches: Batch) -> dict[str, Completion]:
    """Draw all batches; each key comes once, with all its requests in order."""
    results = list(engine.generate(batches))
    assert sorted(r.key for r in results) == sorted(b.key for b in batches)
    wanted = {b.key: [r.request_id for r in b.requests] for b in batches}
    assert {r.key: [c.request_id for c in r.answers] for r in results} == wanted
    return {c.request_id: c for r in results for c in r.answers}


def restarts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "restart" in r.getMessage()]


FAULTS = {**DEATHS, "hang": "no result for 60 s", "refuse": "no finite probabilities"}


def test_single_failure_keeps_results(opened, tmp_path, caplog, subtests) -> None:
    hows = {**FAULTS, "deaf": "nothing read for 60 s"}
    for (fault, how), is_slow in product(hows.items(), (False, True)):
        with subtests.test(fault=fault, is_slow=is_slow):
            caplog.clear()
            order = f"{fault} once {tmp_path / f'{fault}-{is_slow}'}"
            batches = ordered("a", "w"), ordered("bb", "x", order, "y"), ordered("ccc", "z")
            engine = opened()
            engine.is_slow = is_slow
            found = drawn(engine, *batches)
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
    """From some moment on every request kills the worker: lpfloop blames no request."""
    marker = tmp_path / "broken"
    engine = opened()
    poisoned = f"die while {marker}"
    drawn(engine, ordered("a", "x"), ordered("b", poisoned))
    marker.touch()
    with pytest.raises(EngineError, match="SIGKILL"):
        list(engine.generate([ordered(key, poisoned) for key in "abcdef"]))


def test_workers_that_do_not_load(opened, caplog, monkeypatch, subtests) -> None:
    monkeypatch.setattr(hosted_model, "LOAD_S", 5.0)
    for model, how, tries in (
        ("silent", "not loaded after 5 s", 1),
        ("stillborn", "exit code 1", 1),
        ("unloadable", "cannot be loaded", 0),
    ):
        with subtests.test(model=model):
            caplog.clear()
            with pytest.raises(EngineError, match=how):
                drawn(opened(model, restarts=1), ordered("a", "x"))
            assert len(restarts(caplog)) == tries


def test_new_stall_limit_applies_immediately(opened, clock, tmp_path, caplog) -> None:
    """A change wakes the threads that wait for a result."""
    engine = opened(hang_timeout_s=1e9)
    plain, waits = clock.sleep, [0]

    def sleep(seconds: float) -> None:
        waits[0] += 1
        if seconds < 1e8:
            plain(seconds)
        else:
            engine.configure(EngineConfig(hang_timeout_s=STALL_S))

    clock.sleep = sleep
    found = drawn(engine, ordered("a", f"hang once {tmp_path / 'marker'}"))
    assert found["a/0"].text == "hang 100"
    assert len(restarts(caplog)) == 1
    assert clock.now < 2 * STALL_S
    assert waits[0] < 10


class Budgeted(Source[Batch]):
    """Two batches; the engine may take the second once the first has its answer."""

    def __init__(self) -> None:
        self.answered = False
        self._batches = iter([ordered("a", "x"), ordered("b", "y")])
        self._taken = 0

    def take(self) -> Batch | None:
        return None if self._taken == 1 and not self.answered else next(self)

    def __next__(self) -> Batch:
        assert self._taken != 1 or self.answered, "it waits while its own answers are in flight"
        self._taken += 1
        return next(self._batches)


def test_a_source_that_waits_for_answers(opened) -> None:
    source = Budgeted()
    found: list[str] = []
    for result in opened().generate(source):
        found.append(result.key)
        source.answered = True
    assert found == ["a", "b"]


def test_closed_during_a_search(opened, clock, tmp_path) -> None:
    """Two deaths start a search, in which the last request hangs alone."""
    engine, plain = opened(hang_timeout_s=1e6), clock.sleep

    def sleep(seconds: float) -> None:
        if seconds > STALL_S:
            engine.close()
        else:
            plain(seconds)

    clock.sleep = sleep
    deadly = [f"die once {tmp_path / name}" for name in "ab"]
    with pytest.raises(EngineError, match="was closed"):
        drawn(engine, ordered("a", *deadly, "hang"))
    assert clock.now < STALL_S


def test_no_node_for_the_successor(opened, clock) -> None:
    """Requests in flight do not wait for space in a cluster if another replica can take them."""
    pool = opened(replicas=2, waits=(False, False, True))
    found = drawn(pool, ordered("a", "die"), ordered("b", "x"))
    assert [found[key].finish_reason for key in ("a/0", "b/0")] == ["failed", "stop"]
    alone, plain = opened(waits=(False, True)), clock.sleep

    def sleep(seconds: float) -> None:
        if seconds == math.inf:
            alone.close()
        else:
            plain(seconds)

    clock.sleep = sleep
    with pytest.raises(EngineError, match="was closed"):
        drawn(alone, ordered("a", "die"))


def test_process_waiting_for_node_is_idle(opened, clock) -> None:
    engine = opened(waits=(True,))
    engine.sleep()
    engine.wake()
    engine.prove(())
    assert engine.can_sleep()
    assert clock.now == 0.0


def test_sleeping_replicas_grow_when_they_wake(opened) -> None:
    one, two = EngineConfig(replicas=1), EngineConfig(replicas=2)
    pool = opened()
    pool.sleep()
    pool.configure(two)
    assert len(pool.doubles) == 1
    pool.wake()
    assert [replica.placement for replica in pool.replicas] == [HERE, THERE]
    assert [double.told for double in pool.doubles] == [["sleep", "wake"], []]
    pool.configure(one)
    assert len(pool.replicas) == 1
    pool.sleep()
    pool.configure(two)
    pool.configure(one)
    pool.wake()
    assert len(pool.doubles) == 2
    pool.reload(Path("m1"))
    pool.configure(two)
    assert [double.model for double in pool.doubles] == ["none", "none", "m1"]


def test_the_only_replica_finishes_before_it_leaves(opened) -> None:
    """The stream continues with the replica that replaced it."""
    here = [HERE]
    pool = opened(placed=lambda _config: here)
    source = Feed[Batch]()
    for key in "ab":
        source.put(ordered(key, "x"))
    results = pool.generate(source)
    assert next(results).key == "a"
    here[:] = [THERE]
    pool.configure(EngineConfig(hang_timeout_s=2))
    for key in "cd":
        source.put(ordered(key, "x"))
    source.finish()
    assert sorted(result.key for result in results) == ["b", "c", "d"]
    assert [double.told for double in pool.doubles] == [["a", "b"], ["c", "d"]]
    assert pool.replicas[0].placement == THERE
