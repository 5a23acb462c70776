"""The places of stages: two stages that need the same place take turns, all others overlap.

A place is a GPU, or the CPU, which all models of a machine without GPUs share. An endpoint is not a
place: stages that ask the same model there share its engine and its limit of requests in flight.
On other machines the workers of each model are a place, and so is a Ray cluster that is too small
for all of a run's models at once. A stage without a model runs in the main thread of the loop.
"""

from dataclasses import dataclass
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import RunConfig
from ...configs.section import Devices
from ...policies.workers.engine_factory import engine_kind
from ...policies.workers.places import DeviceGroup, device_groups, local_groups
from .device_inventory import is_crowded
from .models import Served, locate_model

Places = frozenset[str]

HERE = "the main thread"
MAIN_THREAD: Places = frozenset((HERE,))
CPU = "the CPU"
ELSEWHERE: Places = frozenset()
"""The places of a model that endpoints serve: no other model waits for it."""
CLUSTER = "the Ray cluster"
"""A place only if the cluster cannot hold all of the run's models at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlacement:
    """The places of a run's models; without `overlap` all models' place is the main thread."""

    config: RunConfig

    def of(self, served: Served) -> Places:
        """Return the places of a model that generates texts or probabilities."""
        engine = served.engine
        if not self.config.overlap:
            return MAIN_THREAD
        kind = engine_kind(served.location, engine)
        if kind == "openai":
            return ELSEWHERE
        if kind == "scripted":
            numbers = () if engine.devices == "auto" else engine.devices
            return frozenset(map(_gpu, numbers)) or frozenset((f"script {served.identity}",))
        return _local(local_groups(engine)) or self._there(*_workers(served, self.config))

    def of_reward(self, folder: Path | None) -> Places:
        """Return the places of a reward model: the one in `folder`, or the configured one."""
        location = str(folder or locate_model(self.config.reward.model, "reward"))
        if not self.config.overlap:
            return MAIN_THREAD
        if not names_function(location):
            groups = local_groups(self.config.reward)
            return _local(groups) or self._there("the reward model's workers")
        # It may hold a model on a GPU, but on a CPU it competes with no model.
        groups = local_groups(self.config.reward, function=True)
        return frozenset((f"function {location}",)) | (_local(groups) - {CPU})

    def _there(self, *workers: str) -> Places:
        """Return the places of a model whose workers are all on other machines."""
        cluster = (CLUSTER,) if is_crowded(self.config) else ()
        return frozenset((*workers, *cluster))

    def of_training(self, devices: Devices) -> Places:
        """Return the places of a training, which the main thread watches."""
        if not self.config.overlap:
            return MAIN_THREAD
        return MAIN_THREAD | _local(device_groups("training", devices, "auto"))


def _workers(served: Served, config: RunConfig) -> tuple[str, ...]:
    """Return the names of a model's workers elsewhere, which serve one stage at a time.

    A policy's workers load the weights of the next, so only one policy is used at a time.
    """
    policy = config.policy
    first = served.engine == policy.engine and served.location == locate_model(policy.model)
    shared = ("the policy's workers",) if first or served.canary is not None else ()
    return (f"the workers of {served.engine_name}", *shared)


def _local(groups: tuple[DeviceGroup, ...]) -> Places:
    """Return the places of a model's local replicas, or `ELSEWHERE`."""
    if not groups:
        return ELSEWHERE
    numbers = [number for group in groups for number in group.numbers]
    return frozenset(map(_gpu, numbers)) or frozenset((CPU,))


def _gpu(number: int) -> str:
    return f"GPU {number}"
