"""Replicas come and go, but none starts on devices that were lent to others."""

from collections.abc import Iterable, Iterator

from lpfloop.policies.workers.places import Berth, DeviceGroup
from lpfloop.policies.workers.replica_pool import ReplicaPool
from lpfloop.policies.workers.work import In, Out, WorkKind
from lpfloop.policies.workers.worker import WorkerInfo

FIRST, SECOND = (Berth(place="local", group=DeviceGroup(numbers=(n,))) for n in (0, 1))


class Idle:
    """A replica that does nothing but sleep, wake and end."""

    pid: int | None = None
    waits = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def loaded(self, within_s: float) -> WorkerInfo | None:
        del within_s
        return None

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        del items, work
        yield from ()

    def sleep(self) -> None:
        self.told.append("sleep")

    def wake(self) -> None:
        self.told.append("wake")

    def close(self) -> None:
        self.told.append("close")


def test_sleeping_pool_grows_when_it_wakes() -> None:
    started = list[tuple[Berth, Idle]]()

    def start(_number: int, berth: Berth) -> Idle:
        started.append((berth, Idle()))
        return started[-1][1]

    pool = ReplicaPool(start, [FIRST])
    pool.sleep()
    pool.resize([FIRST, SECOND])
    assert [berth for berth, _ in started] == [FIRST]
    pool.wake()
    assert [berth for berth, _ in started] == [FIRST, SECOND]
    assert [replica.told for _, replica in started] == [["sleep", "wake"], []]
    pool.resize([FIRST])
    assert len(pool.seats) == 1
    pool.sleep()
    pool.resize([FIRST, SECOND])
    pool.resize([FIRST])
    pool.wake()
    assert len(started) == 2
    pool.close()
