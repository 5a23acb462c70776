"""The models that are loaded: opened or woken on demand, and put to sleep or closed for others.

A model stays in its process as long as the run may use it again. Shares of a device add up to 1 at
most. A model's share is the part of a card that vLLM reserves; on a machine without cards it is the
part of the machine's memory. Any other model on a card needs it alone. A model that occupies the
room for the next one sleeps: it moves its weights into the machine's memory and leaves a trace on
the device. It is closed if it cannot sleep, or if that memory cannot hold it. The least recently
used models give way first: `turn` decides it by arithmetic alone, and `LoadedModels` does it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from ...policies.engines.engine import Engine, EngineError, Scorer
from ...policies.workers.hosted_model import HostedModel

Model = TypeVar("Model", Engine, Scorer)

logger = logging.getLogger("lpfloop.models")


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


def turn(loaded: Sequence[Allocation], next_model: Allocation, *, ram: int) -> Turn:
    """Return which of the loaded models, the least recently used first, give way to `next_model`.

    `ram` is the bytes of the machine's memory that sleeping models may take together. Only
    models on a device without room are moved, and none is closed that could sleep.
    """
    others = {t.name: t for t in loaded if t.name != next_model.name}
    asleep: list[str] = []
    closed: list[str] = []
    for allocation in _in_the_way(others, next_model, asleep=False):
        slept = sum(t.ram for t in others.values() if t.asleep)
        if allocation.can_sleep and slept + allocation.ram <= ram:
            others[allocation.name] = replace(allocation, asleep=True)
            asleep.append(allocation.name)
        else:
            closed.append(others.pop(allocation.name).name)
    # The traces of many sleeping models can also be too much for a device.
    closed += [others.pop(t.name).name for t in _in_the_way(others, next_model, asleep=True)]
    return Turn(asleep=tuple(n for n in asleep if n in others), closed=tuple(closed))


def _in_the_way(
    others: Mapping[str, Allocation], next_model: Allocation, *, asleep: bool
) -> Iterator[Allocation]:
    """Yield the model to move next, among those asleep or awake; the caller moves it."""
    for allocation in [t for t in others.values() if t.asleep is asleep]:
        if allocation.devices & _crowded_devices(others, next_model):
            yield allocation


def _crowded_devices(others: Mapping[str, Allocation], next_model: Allocation) -> frozenset[int]:
    """Return the devices without room for `next_model` now."""

    def is_crowded(device: int) -> bool:
        there = [t for t in others.values() if device in t.devices]
        awake = [t for t in there if not t.asleep]
        if awake and (next_model.alone or any(t.alone for t in awake)):
            return True
        taken = sum(t.trace if t.asleep else t.share for t in there)
        return bool(there) and taken + next_model.share > FULL

    return frozenset(filter(is_crowded, next_model.devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A loaded model, and its share of the devices."""

    allocation: Allocation
    model: Engine | Scorer


@dataclass(kw_only=True)
class LoadedModels:
    """Holds models by name, the least recently used one first.

    `free_ram` returns the bytes of the machine's memory that models may still take.
    """

    free_ram: Callable[[], int]
    _models: dict[str, _Loaded] = field(default_factory=dict[str, _Loaded], init=False)

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def items(self) -> Iterator[tuple[str, Engine | Scorer]]:
        """Yield all models by name, asleep or awake."""
        yield from [(name, loaded.model) for name, loaded in list(self._models.items())]

    def get(self, name: str) -> Engine | Scorer | None:
        """Return a model as it is, asleep or awake; None if it is not loaded."""
        loaded = self._models.get(name)
        return None if loaded is None else loaded.model

    def bring(self, allocation: Allocation, open_model: Callable[[], Model]) -> Model:
        """Return the model of an allocation, awake; make room for it and open it if needed.

        Raises:
            EngineError: if it cannot be opened.
        """
        loaded = self._models.get(allocation.name)
        if loaded is None or loaded.allocation.asleep:
            self.make_room(allocation)
        if loaded is not None and loaded.allocation.asleep:
            self._wake(loaded)
        found = self._models.pop(allocation.name, None)
        model = open_model() if found is None else cast("Model", found.model)
        self._models[allocation.name] = _Loaded(allocation=allocation, model=model)
        return model

    def open_ahead(
        self, allocation: Allocation, open_model: Callable[[], Model], *later: Allocation
    ) -> bool:
        """Open a model before it is needed, if no model gives way for it, nor later for others.

        `later` are models or trainings that are to fit on the devices as well. A model that is
        served elsewhere, and one that is loaded, is left as it is.
        """
        loaded = [one.allocation for one in list(self._models.values())]
        if not allocation.devices or allocation.name in self._models:
            return False
        if any(turn([*loaded, allocation], one, ram=0) != Turn() for one in (allocation, *later)):
            return False
        self._models[allocation.name] = _Loaded(allocation=allocation, model=open_model())
        return True

    def replace(self, name: str, allocation: Allocation, change: Callable[[], None]) -> None:
        """Turn a loaded model into another, which is awake; close it if `change` fails."""
        self.make_room(replace(allocation, name=name))
        loaded = self._models.pop(name)
        try:
            change()
        except EngineError as error:
            logger.warning("the new weights get a new process: %s", error)
            loaded.model.close()
        else:
            self._models[allocation.name] = replace(loaded, allocation=allocation)

    def make_room(self, next_model: Allocation) -> None:
        """Put to sleep or close the models that occupy the room for a model or a training."""
        allocations = [loaded.allocation for loaded in list(self._models.values())]
        if not any(share_a_device(t, next_model) for t in allocations if t.name != next_model.name):
            return
        slept = sum(allocation.ram for allocation in allocations if allocation.asleep)
        moved = turn(allocations, next_model, ram=slept + self.free_ram())
        # First those that are closed: the others sleep in the memory that they free.
        for name in moved.closed:
            self.close(name)
        for name in moved.asleep:
            self._sleep(name)

    def close(self, name: str) -> None:
        """End a model's process, if it is loaded."""
        loaded = self._models.pop(name, None)
        if loaded is not None:
            loaded.model.close()

    def close_all(self) -> None:
        """End all of them."""
        for name in list(self._models):
            self.close(name)

    def _sleep(self, name: str) -> None:
        loaded = self._models[name]
        model = loaded.model
        try:
            if not (isinstance(model, HostedModel) and model.can_sleep()):
                self.close(name)
                return
            model.sleep()
        except EngineError as error:
            logger.warning("a model is closed, as it cannot sleep: %s", error)
            self.close(name)
        else:
            self._models[name] = replace(loaded, allocation=replace(loaded.allocation, asleep=True))

    def _wake(self, loaded: _Loaded) -> None:
        try:
            model = loaded.model
            if isinstance(model, HostedModel):
                model.wake()
        except EngineError as error:
            logger.warning("a model is opened again, as it does not wake: %s", error)
            self.close(loaded.allocation.name)
