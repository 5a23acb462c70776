"""Which models may be awake at the same time, and which ones give way to the next.

Shares of a device add up to 1 at most. A model's share is the part of a card that vLLM reserves; on
a machine without cards it is the part of the machine's memory. Any other model on a card needs it
alone. A model that occupies the room for the next one sleeps: it moves its weights into the
machine's memory and leaves a trace on the device. It is closed if it cannot sleep, or if that
memory cannot hold it. The least recently used models give way first.

This is arithmetic alone; `loaded_models` carries it out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

MACHINE = -1
"""The device of all models on a machine without cards: its cores and its memory."""

CLUSTER = -2
"""The device of a run's models in a Ray cluster that cannot hold all of them at once."""

FULL = 1 + 1e-9
"""A whole device, plus the rounding error of a sum of shares such as 0.6, 0.3 and 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The devices and memory that a model, or a training, takes.

    It takes `share` of each device while it is awake, and `trace` while it sleeps, because its
    process stays; `alone`: no other model may be awake there. `ram` is the bytes of the
    machine's memory that it takes while it sleeps. A model served elsewhere takes no device.
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
    """The names of the models that fall asleep or are closed, to make room for another."""

    asleep: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


def share_a_device(one: Allocation, other: Allocation) -> bool:
    """Whether two models compete for the memory or the time of a device."""
    return bool(one.devices & other.devices)


def conflict(one: Allocation, other: Allocation) -> bool:
    """Whether two models cannot be awake at the same time."""
    alone = one.alone or other.alone
    return share_a_device(one, other) and (alone or one.share + other.share > FULL)


def turn(loaded: Sequence[Allocation], wanted: Allocation, *, ram: int) -> Turn:
    """Return which of the loaded models, the least recently used first, give way to `wanted`.

    `ram` is the bytes of the machine's memory that sleeping models may take together. Only
    models on a device without room are moved, and none is closed that could sleep.
    """
    others = {t.name: t for t in loaded if t.name != wanted.name}
    asleep: list[str] = []
    closed: list[str] = []
    for allocation in _in_the_way(others, wanted, asleep=False):
        slept = sum(t.ram for t in others.values() if t.asleep)
        if allocation.can_sleep and slept + allocation.ram <= ram:
            others[allocation.name] = replace(allocation, asleep=True)
            asleep.append(allocation.name)
        else:
            closed.append(others.pop(allocation.name).name)
    # The traces of many sleeping models can also be too much for a device.
    closed += [others.pop(t.name).name for t in _in_the_way(others, wanted, asleep=True)]
    return Turn(asleep=tuple(n for n in asleep if n in others), closed=tuple(closed))


def _in_the_way(
    others: Mapping[str, Allocation], wanted: Allocation, *, asleep: bool
) -> Iterator[Allocation]:
    """Yield the model to move next, among those asleep or awake; the caller moves it."""
    for allocation in [t for t in others.values() if t.asleep is asleep]:
        if allocation.devices & _crowded(others, wanted):
            yield allocation


def _crowded(others: Mapping[str, Allocation], wanted: Allocation) -> frozenset[int]:
    """Return the devices without room for `wanted` now."""

    def is_crowded(device: int) -> bool:
        there = [t for t in others.values() if device in t.devices]
        awake = [t for t in there if not t.asleep]
        if awake and (wanted.alone or any(t.alone for t in awake)):
            return True
        taken = sum(t.trace if t.asleep else t.share for t in there)
        return bool(there) and taken + wanted.share > FULL

    return frozenset(filter(is_crowded, wanted.devices))
