"""Who gets which worker that joined: in turns, and never so that one model waits for ever."""

from dataclasses import dataclass, field

import pytest

from lpfloop.policies.workers.machine_claim import Machine, Parting, WorkerClaim
from lpfloop.policies.workers.machine_queue import (
    DEATHS,
    HOPELESS_S,
    IDLE_S,
    KEPT_S,
    LONG_IDLE_S,
    RETRY_S,
    MachineQueue,
)


@dataclass
class Site:
    """A machine that notes what it is told, and ends sessions when the test says so."""

    told: list[str] = field(default_factory=list)

    def post(self, session: int, frame: bytes) -> None:
        self.told.append(f"{session}: {frame.decode()}")

    def begin(self, session: int, gpus: int) -> None:
        self.told.append(f"begin {session} on {gpus}")

    def end(self, session: int, *, grace: bool) -> None:
        self.told.append(f"{'close' if grace else 'kill'} {session}")


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


def test_a_machine_holds_as_many_models_as_its_gpus(world: World) -> None:
    large = world.machine("large", gpus=4)
    two, one, four = world.claim("p", 2), world.claim("r", 1), world.claim("c", 4)
    assert two.member is one.member is large
    assert (four.member, large.free) == (None, 1)
    assert large.site.told == ["begin 1 on 2", "begin 2 on 1"]  # type: ignore[attr-defined]
    cpu = world.machine("cpu")
    # On a CPU a model spans nothing.
    assert (four.member, cpu.free) == (cpu, 0)


def test_a_model_is_put_where_the_fewest_gpus_stay_free(world: World) -> None:
    world.machine("large", gpus=8)
    small = world.machine("small", gpus=2)
    assert world.claim("p", 2).member is small


def test_one_that_idles_gives_way_to_a_model_that_has_none(world: World) -> None:
    machine = world.machine("only")
    policy, critic = world.claim("policy"), world.claim("critic")
    world.later(100, critic)
    assert critic.member is None  # the policy works
    policy.idle_since = world.now
    world.later(IDLE_S + 1, critic)
    [parting] = world.partings["policy"]
    assert (parting.blame, critic.member) == ("nobody", None)
    assert "critic needs the machine" in parting.how
    world.machine_queue.ended(machine, policy.session, Parting("killed", "", "worker"))
    assert critic.member is machine
    assert not machine.deaths


def test_one_that_idles_gives_way_to_a_model_that_has_others_later(world: World) -> None:
    world.machine("a")
    world.machine("b")
    policy, critic, more = world.claim("policy"), world.claim("critic"), world.claim("policy")
    critic.idle_since = world.now
    world.later(LONG_IDLE_S - 1, more)
    assert not world.partings["critic"]
    world.later(2, more)
    assert len(world.partings["critic"]) == 1
    assert policy.member is not None


def test_nobody_gives_way_to_what_nobody_waits_for(world: World) -> None:
    world.machine("only")
    policy = world.claim("policy")
    policy.idle_since = world.now
    world.claim("critic").polled = 0
    world.later(100)
    assert not world.partings["policy"]


def test_a_model_that_is_not_asked_hoards_no_machines(world: World) -> None:
    first, more = world.claim("policy"), world.claim("policy")
    first.polled = more.polled = 0
    machine = world.machine("a")
    other = world.machine("b")
    assert (first.member, more.member) == (machine, None)
    assert world.claim("critic").member is other
    # It loaded in advance, and nobody has waited for it since.
    reward = world.claim("reward")
    world.now += 10
    reward.polled = world.now
    world.machine_queue.arrange()
    world.later(2, reward)
    assert len(world.partings["policy"]) == 1


def test_two_that_idle_make_room_for_one_that_spans_them(world: World) -> None:
    world.machine("pair", gpus=2)
    ones = [world.claim("reward"), world.claim("reward")]
    wide = world.claim("policy", gpus=2)
    ones[0].idle_since = world.now
    world.later(10, wide)
    assert not world.partings["reward"]
    ones[1].idle_since = world.now
    world.later(10, wide)
    assert len(world.partings["reward"]) == 2


def end(world: World, claim: WorkerClaim) -> None:
    assert claim.member is not None
    parting = Parting("killed", "", "worker")
    world.machine_queue.ended(claim.member, claim.session, parting)


def test_no_more_give_way_than_are_waited_for_however_long_they_take_to_end(world: World) -> None:
    for number in range(8):
        world.machine(f"m{number}")
    policies = [world.claim("policy") for _ in range(8)]
    for claim in policies:
        claim.idle_since = world.now
    first = world.claim("critic")
    world.later(60, first)
    assert len(world.partings["policy"]) == 1
    second = world.claim("reward")
    world.later(60, first, second)
    ending = [claim for claim in policies if claim.ending]
    assert len(ending) == len(world.partings["policy"]) == 2
    for claim in ending:
        end(world, claim)
    assert first.member is not None
    assert second.member is not None


def test_who_waits_longer_gets_the_room_that_was_made_for_it(world: World) -> None:
    world.machine("pair", gpus=2)
    ones = [world.claim("reward"), world.claim("reward")]
    for claim in ones:
        claim.idle_since = world.now
    wide = world.claim("policy", gpus=2)
    world.later(10, wide)
    small = world.claim("critic")
    end(world, ones[0])
    world.later(2, wide, small)
    assert (wide.member, small.member) == (None, None)
    end(world, ones[1])
    assert wide.member is not None


def test_a_machine_that_cannot_serve_a_model_is_asked_for_others_alone(world: World) -> None:
    bad = world.machine("bad")
    first = world.claim("policy")
    other = world.machine("other")
    assert world.claim("reward").member is other
    world.machine_queue.unfit(first, "no such folder")
    world.machine_queue.withdraw(first, grace=False)
    world.machine_queue.ended(bad, first.session, Parting("killed", "", "worker"))
    again = world.claim("policy")
    assert again.member is None
    assert world.claim("critic").member is bad
    good = world.machine("good")
    assert again.member is good


def test_a_model_that_no_machine_can_serve_is_told_why(world: World) -> None:
    for name in ("a", "b"):
        machine = world.machine(name)
        claim = world.claim("policy")
        world.machine_queue.unfit(claim, f"{name} has no such folder")
        world.machine_queue.ended(machine, claim.session, Parting("exit code 1", "", "worker"))
    world.partings["policy"].clear()
    waiting = world.claim("policy")
    world.later(HOPELESS_S - 1, waiting)
    assert not world.partings["policy"]
    world.later(2, waiting)
    [parting] = world.partings["policy"]
    assert (parting.fatal, parting.how) == (True, "b has no such folder")


def test_a_machine_that_joins_after_a_bad_one_serves(world: World) -> None:
    bad = world.machine("bad")
    first = world.claim("policy")
    world.machine_queue.unfit(first, "the disk is full")
    world.machine_queue.ended(bad, first.session, Parting("exit code 1", "", "worker"))
    waiting = world.claim("policy")
    world.later(HOPELESS_S - 5, waiting)
    good = world.machine("good")
    assert waiting.member is good
    assert not world.partings["policy"][1:]


def test_a_machine_that_could_not_serve_a_model_is_asked_again_later(world: World) -> None:
    bad, _ = world.machine("bad"), world.machine("good")
    first, second = world.claim("policy"), world.claim("policy")
    world.machine_queue.unfit(first, "the bucket does not answer")
    world.machine_queue.ended(bad, first.session, Parting("exit code 1", "", "worker"))
    waiting = world.claim("policy")
    world.later(RETRY_S - 5, waiting)
    assert (waiting.member, second.member is None) == (None, False)
    world.later(5, waiting)
    assert waiting.member is bad


def test_a_machine_where_a_model_dies_again_and_again_is_not_asked_again(world: World) -> None:
    machine = world.machine("broken")
    for _ in range(DEATHS):
        claim = world.claim("policy", replica="first")
        assert claim.member is machine
        world.machine_queue.ended(
            machine, claim.session, Parting("killed by SIGSEGV", "", "worker")
        )
    assert world.claim("policy").member is None


def test_what_a_model_is_asked_is_not_held_against_its_machine(world: World) -> None:
    machine = world.machine("a")
    for loads in (False, False, True, *[True] * DEATHS, False, False):
        claim = world.claim("policy", replica="first")
        assert claim.member is machine
        if loads:
            world.machine_queue.loaded(claim)
        parting = Parting("killed by SIGKILL", "", "worker")
        world.machine_queue.ended(machine, claim.session, parting)
    assert world.claim("policy", replica="first").member is machine


def test_the_place_of_a_process_that_died_is_its_successors_for_a_while(world: World) -> None:
    machine = world.machine("only")
    died = Parting("killed by SIGKILL", "", "worker")
    first, other = world.claim("policy", replica="first"), world.claim("policy", replica="other")
    world.machine_queue.loaded(first)
    world.machine_queue.ended(machine, first.session, died)
    world.later(1, other)
    assert other.member is None
    again = world.claim("policy", replica="first")
    assert (again.member, other.member) == (machine, None)
    # A successor that was there before the end was told gets it as well.
    third = world.claim("policy", replica="first")
    world.machine_queue.ended(machine, again.session, died)
    assert (third.member, other.member) == (machine, None)
    world.machine_queue.ended(machine, third.session, died)
    world.later(KEPT_S, other)
    assert other.member is machine


def test_a_model_waits_for_a_worker_as_long_as_it_may(world: World) -> None:
    claim = world.claim("policy", patience_s=60)
    world.later(58, claim)
    assert not world.partings["policy"]
    world.later(4, claim)
    [parting] = world.partings["policy"]
    assert parting.fatal
    assert "no worker was there for 60 s" in parting.how


def test_what_its_machine_says_of_a_session_that_is_over_is_nobodys(world: World) -> None:
    machine = world.machine("a")
    claim = world.claim("policy")
    world.machine_queue.leave(machine, "nothing was heard", "line")
    world.machine_queue.ended(machine, claim.session, Parting("exit code 0", "", "worker"))
    assert [parting.blame for parting in world.partings["policy"]] == ["line"]


def test_all_end_when_the_run_does(world: World) -> None:
    world.machine("a")
    world.claim("policy")
    world.claim("critic")
    world.machine_queue.close("the run ended")
    assert [p.how for p in world.partings["policy"]] == ["the run ended"]
    assert [p.how for p in world.partings["critic"]] == ["the run ended"]
