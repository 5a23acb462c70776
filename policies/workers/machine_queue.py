"""Who of the workers that joined a run serves which of its models; no sockets.

Models ask for workers in a queue, and of those that somebody waits for the one that has waited
longest is served first. A pool has one replica in the queue at a time where it takes as many
workers as there are, so that several models take turns. Whoever waits for nothing but a worker can
be given one that idles: at once if its model has none at all, else when that has idled for a while.
So no model waits for ever for another one that is done, however few workers there are.

What it says is done by others: a `Worksite` sends, a `WorkerClaim` is what a channel holds (see
`machine_claim`). One thread alone uses a queue.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .channel import Blame
from .machine_claim import Machine, Parting, Unfit, WorkerClaim

IDLE_S = 1.0
"""How long a worker has idled before a model that has none is given it."""
LONG_IDLE_S = 15.0
"""How long before one that has others is: a model takes time to load."""
DEATHS = 3
"""Processes in a row that may end at a machine as they load, before it counts as unfit."""
RETRY_S = 600.0
"""How long a machine that could not serve a model is not asked for it: what it lacked may come."""
HOPELESS_S = 60.0
"""How long no machine that is there can serve a model before nobody waits for one that can."""
KEPT_S = 20.0
"""How long the places of a process that died are kept for its successor: more than the longest
pause before that is started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Who joined a run, as told to people: machines, places that idle, and which models wait.

    `command` is that by which one more joins.
    """

    address: str
    encrypted: bool
    machines: tuple[str, ...]
    idle: int
    waiting: tuple[str, ...]
    command: str = ""


class MachineQueue:
    """The machines that joined, and the models that wait for one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.members: list[Machine] = []
        self.waiting: list[WorkerClaim] = []
        self._clock = clock
        self._sessions = 0
        self._served: dict[str, float] = {}
        self._promised: Counter[Machine] = Counter()

    def join(self, member: Machine) -> None:
        """Take in a machine, and give it work."""
        self.members.append(member)
        self.arrange()

    def leave(self, member: Machine, how: str, blame: Blame) -> None:
        """Take a machine off the list: its models are without it."""
        self.members.remove(member)
        for claim in list(member.claims.values()):
            self._release(claim)
            claim.on_end(Parting(how, f"it ran at {member.name}", blame))

    def claim(self, claim: WorkerClaim) -> None:
        """Let a replica wait for a worker."""
        self.waiting.append(claim)
        self.arrange()

    def withdraw(self, claim: WorkerClaim, *, grace: bool) -> None:
        """End what a claim has, or its waiting; its places are free when its machine says so."""
        if claim in self.waiting:
            self.waiting.remove(claim)
        elif claim.member is not None and claim.session in claim.member.claims:
            claim.dismissed, claim.ending = claim.dismissed or grace, True
            claim.member.site.end(claim.session, grace=grace)

    def ended(self, member: Machine, session: int, parting: Parting) -> None:
        """Note that a session is over at its machine."""
        claim = member.claims.get(session)
        if claim is None:
            return
        self._release(claim)
        if parting.blame == "worker" and not claim.dismissed:
            # Else another replica of its pool may get them, and it would wait with what it has.
            member.kept[claim.replica] = (claim.taken, self._clock() + KEPT_S)
        if parting.blame == "worker" and not (claim.loaded or claim.dismissed):
            member.deaths[claim.model] += 1
            if member.deaths[claim.model] >= DEATHS:
                self._set_unfit(claim, member, f"{parting.how}; {parting.words}")
        claim.on_end(parting)
        self.arrange()

    def loaded(self, claim: WorkerClaim) -> None:
        """Note that a machine has loaded a model."""
        claim.loaded = True
        if claim.member is not None:
            claim.member.deaths.pop(claim.model, None)

    def unfit(self, claim: WorkerClaim, why: str) -> None:
        """Note that a machine cannot serve a model: for a while it is not asked for that one."""
        if claim.member is not None:
            self._set_unfit(claim, claim.member, why)
            claim.dismissed = True

    def arrange(self) -> None:
        """Give workers to those who wait, in their order; called whenever time has passed."""
        now = self._clock()
        self._promised.clear()
        for member in self.members:
            member.kept = {whose: kept for whose, kept in member.kept.items() if kept[1] > now}
            lately = now - RETRY_S
            member.unfit = {model: u for model, u in member.unfit.items() if u.since > lately}
            self._served |= dict.fromkeys((c.group for c in member.claims.values()), now)
        for claim in sorted(self.waiting, key=lambda claim: not claim.is_urgent(now)):
            urgent = claim.is_urgent(now)
            # A model that is not asked loads in advance, but does not hoard.
            found = self._place_for(claim) if urgent or self._lacks(claim.group) else None
            if found is not None:
                self._give(claim, found)
            elif not urgent:
                claim.since = now
            elif (why := self._hopeless(claim, now)) is not None:
                self.waiting.remove(claim)
                claim.on_end(Parting(why, "", "worker", fatal=True))
            else:
                self._make_way(claim, now)

    def close(self, how: str) -> None:
        """End all that anybody has, or waits for."""
        for member in list(self.members):
            self.leave(member, how, "nobody")
        waiting, self.waiting = self.waiting, []
        for claim in waiting:
            claim.on_end(Parting(how, "", "nobody"))

    def is_short(self, claim: WorkerClaim) -> bool:
        """Whether a model waits that has no worker at all."""
        return claim.is_urgent(self._clock()) and self._lacks(claim.group)

    def _lacks(self, group: str) -> bool:
        """Whether a model has no worker."""
        return not any(c.group == group for m in self.members for c in m.claims.values())

    def _place_for(self, claim: WorkerClaim) -> Machine | None:
        """Return the machine that keeps places for it, else that with the fewest that suffice."""
        for member in self._able(claim):
            if member.kept.pop(claim.replica, None) is not None:
                return member
        able, gpus = self._able(claim), claim.gpus
        fitting = [m for m in able if min(m.free, self._coming(m)) >= m.holds(gpus)]
        return min(fitting, key=lambda m: m.free, default=None)

    def _able(self, claim: WorkerClaim) -> Iterator[Machine]:
        for member in self.members:
            large = max(1, member.gpus) >= member.holds(claim.gpus)
            if large and claim.model not in member.unfit:
                yield member

    def _coming(self, member: Machine) -> int:
        """Return how many places a machine will have that are not promised to who waits longer."""
        return member.coming - self._promised[member]

    def _give(self, claim: WorkerClaim, member: Machine) -> None:
        self.waiting.remove(claim)
        self._sessions += 1
        claim.member, claim.session, claim.idle_since = member, self._sessions, None
        claim.taken = member.holds(claim.gpus)
        member.claims[claim.session] = claim
        member.site.begin(claim.session, claim.gpus if member.gpus else 0)
        claim.on_given()

    def _set_unfit(self, claim: WorkerClaim, member: Machine, why: str) -> None:
        member.unfit[claim.model] = Unfit(why, self._clock())
        member.kept.pop(claim.replica, None)

    def _release(self, claim: WorkerClaim) -> None:
        if claim.member is not None:
            del claim.member.claims[claim.session]

    def _hopeless(self, claim: WorkerClaim, now: float) -> str | None:
        """Return why a model that has no worker will not get one."""
        if not self._lacks(claim.group):
            return None
        unfit = [m.unfit[claim.model] for m in self.members if claim.model in m.unfit]
        if unfit and len(unfit) == len(self.members):
            last = max(reversed(unfit), key=lambda found: found.since)
            # Others may be about to join: the first one that came may be the bad one.
            return last.why if now - last.since > HOPELESS_S else None
        waited = now - max(claim.since, self._served.get(claim.group, 0.0))
        if claim.patience_s is not None and waited > claim.patience_s:
            return f"no worker was there for {claim.patience_s:.0f} s (workers.patience_s)"
        return None

    def _make_way(self, claim: WorkerClaim, now: float) -> None:
        """Take workers that idle from other models, where that makes room for one that waits.

        It is promised the room, so that no more of them are taken while they end.
        """
        for member in self._able(claim):
            if self._coming(member) >= member.holds(claim.gpus):
                self._promised[member] += member.holds(claim.gpus)
                return
        least = IDLE_S if self._lacks(claim.group) else LONG_IDLE_S
        if now - claim.since < IDLE_S:
            return
        for member in self._able(claim):
            room = self._coming(member)
            idle = [c for c in member.claims.values() if _can_go(c, claim, now, least)]
            leaving: list[WorkerClaim] = []
            for other in sorted(idle, key=lambda c: -c.idled(now)):
                if room >= member.holds(claim.gpus):
                    break
                room += other.taken
                leaving.append(other)
            if room >= member.holds(claim.gpus):
                for other in leaving:
                    self._take(other, claim.group)
                self._promised[member] += member.holds(claim.gpus)
                return

    def _take(self, claim: WorkerClaim, wanted_by: str) -> None:
        if claim.member is None:
            return
        claim.dismissed = claim.ending = True
        claim.member.site.end(claim.session, grace=False)
        # Its places are free once its machine says that it has ended; it is not asked again.
        claim.idle_since = None
        claim.on_end(Parting(f"it idled, and {wanted_by} needs the machine", "", "nobody"))


def _can_go(holder: WorkerClaim, claim: WorkerClaim, now: float, least: float) -> bool:
    other = holder.group != claim.group and not holder.ending
    return other and holder.idled(now) >= least
