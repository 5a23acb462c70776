"""Who gets which worker that joined: in turns, and never so that one model waits for ever."""

from dataclasses import dataclass, field

import pytest

from lpfloop.policies.workers.machine_claim import Machine, Parting, WorkerClaim
from lpfloop.policies.workers.machine_queue import (
    MachineQueue,
)

pytestmark = pytest.mark.slow


@dataclass
class Site:
    """A machine that notes what it is told, and ends sessions when the test says so."""

    told: list[str] = field(default_factory=list)

    def post(self, session: int, frame: bytes) -> None:
        self.told.append(f"{session}: {frame.decode()}")

    def begin(self, session: int, gpus: int) -> None:
        self.told.append(f"begin {session} on {gpus}")


class World:
    """A queue on a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.machine_queue = MachineQueue(lambda: self.now)
        self.partings: dict[str, list[Parting]] = {}

    def machine(self, name: str, gpus: int = 0) -> Machine:
        member = Machine(name=name, gpus=gpus, site=Site())
        self.machine_queue.join(member)
        return member

    def claim(
        self,
        group: str,
        gpus: int = 1,
        patience_s: float | None = None,
        replica: object = None,
    ) -> WorkerClaim:
        partings = self.partings.setdefault(group, [])
        claim = WorkerClaim(
            group=group,
            model=group,
            gpus=gpus,
            patience_s=patience_s,
            replica=replica or object(),
            on_frame=lambda _: None,
            on_given=lambda: None,
            on_end=partings.append,
            since=self.now,
            polled=self.now,
        )
        self.machine_queue.claim(claim)
        return claim

    def later(self, seconds: float, *polled: WorkerClaim) -> None:
        """Let time pass in which somebody waits for the claims."""
        busy = [
            c for m in self.machine_queue.members for c in m.claims.values() if c.idle_since is None
        ]
        for _ in range(int(seconds / 0.5) + 1):
            self.now += 0.5
            for claim in (*polled, *busy):
                claim.polled = self.now
            self.machine_queue.arrange()


@pytest.fixture
def world() -> World:
    return World()


def test_who_waited_longest_is_served_first_and_models_take_turns(world: World) -> None:
    claims = [world.claim(group) for group in ("policy", "critic", "policy")]
    world.machine("a")
    assert [claim.member is not None for claim in claims] == [True, False, False]
    world.machine("b")
    assert [claim.member is not None for claim in claims] == [True, True, False]


def test_a_model_waits_for_a_worker_as_long_as_it_may(world: World) -> None:
    claim = world.claim("policy", patience_s=60)
    world.later(58, claim)
    assert not world.partings["policy"]
    world.later(4, claim)
    [parting] = world.partings["policy"]
    assert parting.fatal
    assert "no worker was there for 60 s" in parting.how
