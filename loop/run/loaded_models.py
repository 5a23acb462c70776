"""The models that are loaded: opened or woken on demand, and put to sleep or closed for others.

A model stays in its process as long as the run may use it again. If devices are too small for all,
`turns` decides which models sleep and which are closed, and `LoadedModels` does it.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from ...policies.engines.engine import Engine, EngineError, Scorer, Sleeper
from .turns import Allocation, share_a_device, turn

Model = TypeVar("Model", Engine, Scorer)

logger = logging.getLogger("lpfloop.models")


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

    def make_room(self, wanted: Allocation) -> None:
        """Put to sleep or close the models that occupy the room for a model or a training."""
        allocations = [loaded.allocation for loaded in list(self._models.values())]
        if not any(share_a_device(t, wanted) for t in allocations if t.name != wanted.name):
            return
        slept = sum(allocation.ram for allocation in allocations if allocation.asleep)
        moved = turn(allocations, wanted, ram=slept + self.free_ram())
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
            if not (isinstance(model, Sleeper) and model.can_sleep()):
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
            cast("Sleeper", loaded.model).wake()
        except EngineError as error:
            logger.warning("a model is opened again, as it does not wake: %s", error)
            self.close(loaded.allocation.name)
