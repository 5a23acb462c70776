"""Replicas come and go, but none starts on devices lent to others."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from workers import ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Result
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.places import DeviceGroup, Placement
from lpfloop.policies.workers.replicas import Replicas
from lpfloop.policies.workers.work import Ans, In, WorkerInfo, WorkKind

FIRST, SECOND = (Placement(place="local", group=DeviceGroup(numbers=(n,))) for n in range(2))


class Idle(HostedModel):
    """A replica that only sleeps, wakes and ends."""

    waits = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def sleep(self) -> None:
        self.told.append("sleep")

    def wake(self) -> None:
        self.told.append("wake")

    def stream(
        self, items: Iterable[In], work: WorkKind[In, Ans], *, shared: bool = False
    ) -> Iterator[Result[Ans]]:
        for item in items:
            self.told.append(f"{item.key}{' shared' * shared}")
            yield Result(key=item.key, answers=())

    def loaded(self) -> WorkerInfo:
        return WorkerInfo(engine="idle", device="none", versions={}, window=9, sleeps=False)

    def nudge(self) -> None:
        pass

    def reload(self, folder: Path) -> None:
        self.told.append(f"reload {folder}")

    def configure(self, config: object) -> None:
        del config

    def close(self) -> None:
        self.told.append("close")


def test_sleeping_replicas_grow_when_they_wake() -> None:
    started = list[tuple[Placement, str, Idle]]()

    def start(_number: int, placement: Placement, model: str, _config: EngineConfig) -> Idle:
        started.append((placement, model, Idle()))
        return started[-1][2]

    def placements(config: EngineConfig) -> list[Placement]:
        return [FIRST, SECOND][: int(config.replicas)]

    one, two = EngineConfig(replicas=1), EngineConfig(replicas=2)
    pool = Replicas(start, "m0", one, placements)
    pool.sleep()
    pool.configure(two)
    assert [placement for placement, *_ in started] == [FIRST]
    pool.wake()
    assert [placement for placement, *_ in started] == [FIRST, SECOND]
    assert [replica.told for *_, replica in started] == [["sleep", "wake"], []]
    pool.configure(one)
    assert len(pool.replicas) == 1
    pool.sleep()
    pool.configure(two)
    pool.configure(one)
    pool.wake()
    assert len(started) == 2
    pool.reload(Path("m1"))
    pool.configure(two)
    assert [model for _, model, _ in started] == ["m0", "m0", "m1"]
    pool.close()


def test_the_only_replica_finishes_before_it_leaves() -> None:
    """The stream continues with the replica that replaced it."""
    started = list[Idle]()

    def start(*_: object) -> Idle:
        started.append(Idle())
        return started[-1]

    def placements(config: EngineConfig) -> list[Placement]:
        return [FIRST] if config.hang_timeout_s == 1 else [SECOND]

    pool = Replicas(start, "m0", EngineConfig(hang_timeout_s=1), placements)
    results = pool.generate(ordered(key, "x") for key in "abcd")
    assert next(results).key == "a"
    pool.configure(EngineConfig(hang_timeout_s=2))
    time.sleep(0.05)
    assert started[0].told == ["a"]
    assert sorted(result.key for result in results) == ["b", "c", "d"]
    assert started[1].told == ["b shared", "c shared", "d shared"]
    pool.close()
    assert started[0].told == ["a", "close"]
