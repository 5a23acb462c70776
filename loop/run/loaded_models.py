"""The models that are loaded: brought when they are wanted, and put aside for one another.

A model stays in its process for as long as the run may ask it again. Where devices are too small
for all, `turns` decides who sleeps and who is closed; here that is done.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from ...policies.engines.engine import Engine, EngineError, Scorer, Sleeper
from .turns import Tenant, share_a_device, turn

Model = TypeVar("Model", Engine, Scorer)

logger = logging.getLogger("lpfloop.models")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lodger:
    """A loaded model, and what it takes of the devices."""

    tenant: Tenant
    model: Engine | Scorer


@dataclass(kw_only=True)
class LoadedModels:
    """Holds models by name, the one used longest ago first.

    `free_ram` gives the bytes of the machine's memory that models may still take.
    """

    free_ram: Callable[[], int]
    _inside: dict[str, _Lodger] = field(default_factory=dict[str, _Lodger], init=False)

    def __contains__(self, name: str) -> bool:
        return name in self._inside

    def items(self) -> Iterator[tuple[str, Engine | Scorer]]:
        """Yield all models by name, asleep or awake."""
        yield from [(name, lodger.model) for name, lodger in list(self._inside.items())]

    def get(self, name: str) -> Engine | Scorer | None:
        """Return a model as it is, asleep or awake; None if it is not loaded."""
        lodger = self._inside.get(name)
        return None if lodger is None else lodger.model

    def bring(self, tenant: Tenant, open_model: Callable[[], Model]) -> Model:
        """Return the tenant's model, awake: others give way, and it is opened unless it is there.

        Raises:
            EngineError: if it cannot be opened.
        """
        lodger = self._inside.get(tenant.name)
        if lodger is None or lodger.tenant.asleep:
            self.make_room(tenant)
        if lodger is not None and lodger.tenant.asleep:
            self._wake(lodger)
        found = self._inside.pop(tenant.name, None)
        model = open_model() if found is None else cast("Model", found.model)
        self._inside[tenant.name] = _Lodger(tenant=tenant, model=model)
        return model

    def replace(self, name: str, tenant: Tenant, change: Callable[[], None]) -> None:
        """Let a loaded model become another, which is awake; where `change` fails, close it."""
        self.make_room(replace(tenant, name=name))
        lodger = self._inside.pop(name)
        try:
            change()
        except EngineError as error:
            logger.warning("the new weights get a new process: %s", error)
            lodger.model.close()
        else:
            self._inside[tenant.name] = replace(lodger, tenant=tenant)

    def make_room(self, wanted: Tenant) -> None:
        """Put aside what is in the way of a model, or of a training."""
        tenants = [lodger.tenant for lodger in list(self._inside.values())]
        if not any(share_a_device(t, wanted) for t in tenants if t.name != wanted.name):
            return
        slept = sum(tenant.ram for tenant in tenants if tenant.asleep)
        moved = turn(tenants, wanted, ram=slept + self.free_ram())
        # First those that leave for good: those that sleep take their place in the memory.
        for name in moved.closed:
            self.close(name)
        for name in moved.asleep:
            self._sleep(name)

    def close(self, name: str) -> None:
        """End a model's process, if it is loaded."""
        lodger = self._inside.pop(name, None)
        if lodger is not None:
            lodger.model.close()

    def close_all(self) -> None:
        """End all of them."""
        for name in list(self._inside):
            self.close(name)

    def _sleep(self, name: str) -> None:
        lodger = self._inside[name]
        model = lodger.model
        try:
            if not (isinstance(model, Sleeper) and model.can_sleep()):
                self.close(name)
                return
            model.sleep()
        except EngineError as error:
            logger.warning("a model is closed, as it does not fall asleep: %s", error)
            self.close(name)
        else:
            self._inside[name] = replace(lodger, tenant=replace(lodger.tenant, asleep=True))

    def _wake(self, lodger: _Lodger) -> None:
        try:
            cast("Sleeper", lodger.model).wake()
        except EngineError as error:
            logger.warning("a model is opened again, as it does not wake: %s", error)
            self.close(lodger.tenant.name)
