"""The share of this machine's devices, or of a Ray cluster, that models and trainings take.

If all models of a run in a Ray cluster fit into it together, none ever gives way to another. If
they do not, each takes its share of the cluster, as models on one card do, and they take turns:
otherwise the first would keep its GPUs while the next waits for them.

A stage's places are GPUs, or the CPU, which all models of a machine without GPUs share: two stages
that need the same place take turns, all others overlap. An endpoint is not a place: stages that ask
the same model there share its engine and its limit of requests in flight. On other machines the
workers of each model are a place, and so is a Ray cluster that is too small for all of a run's
models at once. A stage without a model runs in the main thread of the loop.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import psutil

from ...configs.engines import NO_MODEL, EngineConfig
from ...configs.own_function import names_function
from ...configs.schema import RewardConfig, RunConfig
from ...configs.section import Devices, Section
from ...policies.devices import visible_gpus
from ...policies.engines.weight_files import weight_files
from ...policies.memory.shapes import UnknownShapeError, shape_of
from ...policies.memory.terms import (
    CUDA_BYTES,
    GIB,
    GRAPHS_BYTES,
    PROCESS_BYTES,
    inference_of,
)
from ...policies.workers.engine_factory import engine_kind
from ...policies.workers.places import (
    DeviceGroup,
    cpus_each,
    device_groups,
    gpus_each,
    local_groups,
)
from ...policies.workers.ray_cluster import RayCluster, ray_cluster
from .loaded_models import CLUSTER, MACHINE, Allocation
from .served import Served, locate_model

LEFT_FREE = 0.1
"""The share of the machine's memory that is reserved for other programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInventory:
    """The devices that models share: the bytes of each GPU by its number, and the machine's."""

    cards: Mapping[int, int]
    ram: int

    @classmethod
    def here(cls) -> "DeviceInventory":
        """Return this machine's; a GPU of unknown memory counts as a whole one."""
        cards = {number: gpu.memory or 0 for number, gpu in enumerate(visible_gpus())}
        return cls(cards=cards, ram=psutil.virtual_memory().total)

    def free_ram(self) -> int:
        """Return the bytes of the machine's memory that models may still take."""
        return max(0, psutil.virtual_memory().available - round(LEFT_FREE * self.ram))

    def is_free(self, allocation: Allocation) -> bool:
        """Whether other programs leave an allocation its part of the machine's memory.

        The memory of cards is left to the models' shares of them.
        """
        size = allocation.share * (1 - LEFT_FREE) * self.ram
        return MACHINE not in allocation.devices or size <= self.free_ram()

    def engine(self, name: str, location: str, config: EngineConfig) -> Allocation:
        """Return the allocation of a model's engine; empty for one that runs elsewhere."""
        kind = engine_kind(location, config)
        if kind not in ("vllm", "transformers"):
            return Allocation(name=name)
        groups = local_groups(config)
        if not groups:
            return Allocation(name=name)
        weights = self._weights(Path(location), config, by_vllm=kind == "vllm")
        if not self.cards:
            cache = config.kv_cache_gib * GIB if kind == "vllm" else 0
            return self._on_cpu(name, len(groups) * (weights + cache + PROCESS_BYTES))
        graphs = 0 if kind != "vllm" or config.vllm.enforce_eager else GRAPHS_BYTES
        return self._on_cards(
            name,
            groups,
            share=config.memory_utilization if kind == "vllm" else None,
            trace=CUDA_BYTES + graphs,
            weights=len(groups) * weights,
        )

    def scorer(self, name: str, location: str, config: RewardConfig) -> Allocation:
        """Return the allocation of a reward model; a function of the user's may take its cards."""
        own = names_function(location)
        weights = 0 if own else self._weights(Path(location), EngineConfig(), by_vllm=False)
        groups = local_groups(config, function=own)
        if not groups:
            return Allocation(name=name)
        if not self.cards:
            return self._on_cpu(name, len(groups) * (weights + PROCESS_BYTES))
        found = self._on_cards(name, groups, share=None, trace=CUDA_BYTES, weights=weights)
        return replace(found, can_sleep=not own)

    def training(self, devices: Devices, size: int) -> Allocation:
        """Return the allocation of a training whose processes need `size` bytes of a device."""
        name = "training"
        if not self.cards:
            return self._on_cpu(name, size)
        groups = device_groups(name, devices, "auto")
        there = _numbers(groups)
        return Allocation(name=name, devices=there, share=self._part(size, there), alone=True)

    def _on_cpu(self, name: str, size: int) -> Allocation:
        most = (1 - LEFT_FREE) * self.ram
        return Allocation(name=name, devices=frozenset((MACHINE,)), share=min(1.0, size / most))

    def _on_cards(
        self,
        name: str,
        groups: Collection[DeviceGroup],
        *,
        share: float | None,
        trace: int,
        weights: int,
    ) -> Allocation:
        """Return the allocation of `share` of the cards, or of whole cards if `share` is None."""
        there = _numbers(groups)
        needed = self._part(trace + weights, there) if share is None else share
        return Allocation(
            name=name,
            devices=there,
            share=needed,
            alone=share is None,
            trace=self._part(trace, there),
            ram=weights,
            can_sleep=True,
        )

    def _part(self, size: int, devices: frozenset[int]) -> float:
        """Return `size` bytes as a part of the smallest of the devices."""
        smallest = min((self.cards.get(device, 0) for device in devices), default=0)
        return min(1.0, size / smallest) if smallest else 0.0

    def _weights(self, folder: Path, config: EngineConfig, *, by_vllm: bool) -> int:
        """Return the bytes of a model's weights once loaded, or else of its files."""
        try:
            shape = shape_of(folder)
        except UnknownShapeError:
            return sum(file.stat().st_size for file in weight_files(folder))
        inference = inference_of(shape, config, by_vllm=by_vllm, on_gpu=bool(self.cards))
        return inference.weights(shape) * inference.tensor_parallel


def _numbers(groups: Collection[DeviceGroup]) -> frozenset[int]:
    return frozenset(number for group in groups for number in group.numbers)


def is_crowded(config: RunConfig) -> bool:
    """Whether the run's models in a Ray cluster do not fit into it together."""
    parts = list(_in_cluster(config))
    return len(parts) > 1 and _share(parts) > 1


def in_turns(
    allocation: Allocation, part: EngineConfig | RewardConfig, config: RunConfig
) -> Allocation:
    """Return a model's allocation, with its share of the cluster if that is too small for all."""
    if part.place != "ray" or not is_crowded(config):
        return allocation
    share = min(1.0, _share([part]))
    return replace(allocation, devices=frozenset((CLUSTER,)), share=share)


def _in_cluster(section: Section) -> Iterator[EngineConfig | RewardConfig]:
    """Yield the engines and the reward model that run in a cluster only."""
    named = getattr(section, "model", None) not in (None, NO_MODEL)
    for name in type(section).model_fields:
        part = getattr(section, name)
        if isinstance(part, RewardConfig):
            if part.place == "ray" and part.model != NO_MODEL:
                yield part
        elif isinstance(part, EngineConfig):
            if part.place == "ray" and named:
                yield part
        elif isinstance(part, Section):
            yield from _in_cluster(part)


def _share(parts: Sequence[EngineConfig | RewardConfig]) -> float:
    """Return the part of the cluster that the models take together."""
    cluster = _cluster()
    if cluster.gpus:
        return sum(_replicas(part) * gpus_each(part) for part in parts) / cluster.gpus
    return sum(_replicas(part) * cpus_each(part) for part in parts) / max(1, cluster.cpus)


def _replicas(part: EngineConfig | RewardConfig) -> int:
    if part.replicas == "auto":
        return _cluster().replicas(gpus_each(part))
    return part.replicas


@lru_cache
def _cluster() -> RayCluster:
    """Return the cluster as it was at the first call, so that all stages see the same."""
    return ray_cluster()


Places = frozenset[str]

HERE = "the main thread"
MAIN_THREAD: Places = frozenset((HERE,))
CPU = "the CPU"
ELSEWHERE: Places = frozenset()
"""The places of a model that endpoints serve: no other model waits for it."""


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
        cluster = ("the Ray cluster",) if is_crowded(self.config) else ()
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
