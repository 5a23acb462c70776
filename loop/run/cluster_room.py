"""Whether all models of a run in a Ray cluster fit into it together, and their shares if not.

If they fit, no model ever gives way to another. If they do not, each model takes its share of the
cluster, as models on one card do, and they take turns: otherwise the first would keep its GPUs
while the next waits for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ...configs.engines import NO_MODEL, EngineConfig
from ...configs.schema import RewardConfig, RunConfig
from ...configs.section import Section, single_place
from ...policies.workers.places import cpus_each, gpus_each
from ...policies.workers.ray_cluster import RayCluster, ray_cluster
from .turns import CLUSTER, Allocation


def is_crowded(config: RunConfig) -> bool:
    """Whether the run's models in a Ray cluster do not fit into it together."""
    parts = list(_in_cluster(config))
    return len(parts) > 1 and _share(parts) > 1


def in_turns(
    allocation: Allocation, part: EngineConfig | RewardConfig, config: RunConfig
) -> Allocation:
    """Return a model's allocation, with its share of the cluster if that is too small for all."""
    if single_place(part.place) != "ray" or not is_crowded(config):
        return allocation
    share = min(1.0, _share([part]))
    return replace(allocation, devices=frozenset((CLUSTER,)), share=share)


def _in_cluster(section: Section) -> Iterator[EngineConfig | RewardConfig]:
    """Yield the engines and the reward model that run in a cluster only."""
    named = getattr(section, "model", None) not in (None, NO_MODEL)
    for name in type(section).model_fields:
        part = getattr(section, name)
        if isinstance(part, RewardConfig):
            if single_place(part.place) == "ray" and part.model != NO_MODEL:
                yield part
        elif isinstance(part, EngineConfig):
            if single_place(part.place) == "ray" and named:
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
    wanted = part.replicas if isinstance(part.place, str) else part.place["ray"]
    return _cluster().replicas(gpus_each(part)) if wanted == "auto" else wanted


@lru_cache
def _cluster() -> RayCluster:
    """Return the cluster as it was at the first call, so that all stages see the same."""
    return ray_cluster()
