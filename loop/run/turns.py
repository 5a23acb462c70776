"""Which models may be awake side by side, and who gives way where they may not.

A device has room for shares that sum up to 1. What a model takes there is its share: for vLLM the
part of a card that it reserves; on a machine without cards its part of the machine's memory.
Whatever else runs on a card wants it alone. Whoever is in the way of what is wanted next sleeps: it
leaves a trace on the device and moves its weights into the machine's memory. It is closed where it
cannot sleep, or that memory cannot hold it. Those used longest ago give way first.

Processes do not occur here: `models` carries out what this module decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

MACHINE = -1
"""The device of all models on a machine without cards: its cores and its memory."""

CLUSTER = -2
"""The device of a run's models in a Ray cluster that cannot hold all of them at once."""

FULL = 1 + 1e-9
"""A whole device, and what the sum of shares such as 0.6, 0.3 and 0.1 may be off by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A model, or a training, and what it takes of the devices that it is on.

    `share` is taken of each device while it is awake, `trace` while it sleeps, as its process
    stays; `alone`: nobody else may be awake there. `ram` are the bytes of the machine's memory that
    it takes while it sleeps. What is served elsewhere is on no device.
    """

    name: str
    devices: frozenset[int] = frozenset()
    share: float = 0.0
    trace: float = 0.0
    ram: int = 0
    alone: bool = False
    can_sleep: bool = False
    asleep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Who falls asleep and who is closed, by name, so that what is wanted finds room."""

    asleep: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


def share_a_device(one: Tenant, other: Tenant) -> bool:
    """Whether two models compete for a device, be it for its memory or for its time."""
    return bool(one.devices & other.devices)


def conflict(one: Tenant, other: Tenant) -> bool:
    """Whether two models cannot be awake side by side."""
    alone = one.alone or other.alone
    return share_a_device(one, other) and (alone or one.share + other.share > FULL)


def turn(loaded: Sequence[Tenant], wanted: Tenant, *, ram: int) -> Turn:
    """Return who of the loaded models, the one used longest ago first, gives way to `wanted`.

    `ram` are the bytes of the machine's memory that sleeping models may take together. Only those
    on a device without room are moved, and nobody is closed who could sleep.
    """
    others = {t.name: t for t in loaded if t.name != wanted.name}
    asleep: list[str] = []
    closed: list[str] = []
    for tenant in _in_the_way(others, wanted, asleep=False):
        slept = sum(t.ram for t in others.values() if t.asleep)
        if tenant.can_sleep and slept + tenant.ram <= ram:
            others[tenant.name] = replace(tenant, asleep=True)
            asleep.append(tenant.name)
        else:
            closed.append(others.pop(tenant.name).name)
    # What sleepers leave on a device can be too much, too, where many of them gather.
    closed += [others.pop(t.name).name for t in _in_the_way(others, wanted, asleep=True)]
    return Turn(asleep=tuple(n for n in asleep if n in others), closed=tuple(closed))


def _in_the_way(others: Mapping[str, Tenant], wanted: Tenant, *, asleep: bool) -> Iterator[Tenant]:
    """Yield whom to move next, among those asleep or those awake; the caller moves it."""
    for tenant in [t for t in others.values() if t.asleep is asleep]:
        if tenant.devices & _crowded(others, wanted):
            yield tenant


def _crowded(others: Mapping[str, Tenant], wanted: Tenant) -> frozenset[int]:
    """Return the devices on which `wanted` finds no room as things are."""

    def is_crowded(device: int) -> bool:
        there = [t for t in others.values() if device in t.devices]
        awake = [t for t in there if not t.asleep]
        if awake and (wanted.alone or any(t.alone for t in awake)):
            return True
        taken = sum(t.trace if t.asleep else t.share for t in there)
        return bool(there) and taken + wanted.share > FULL

    return frozenset(filter(is_crowded, wanted.devices))
