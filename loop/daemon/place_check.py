"""Whether there are the GPUs that a run's models are given, before anything is loaded.

Those of this machine are counted, and a Ray cluster is asked.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RewardConfig, RunConfig
from ...configs.section import WorkerPlace, WorkerPlaces
from ...policies.engines.engine import EngineError
from ...policies.trainers.job import ONLINE
from ...policies.workers.open import engine_kind
from ...policies.workers.places import (
    DeviceGroup,
    device_groups,
    local_groups,
    placements,
)
from ...policies.workers.ray_cluster import ray_request
from ..recipes.roles import NeededRole, trainings
from ..run.models import NLI, REWARD, located
from .memory_stages import engine_section

LOCAL = ("vllm", "transformers")


def places_of(
    config: RunConfig, roles: Sequence[NeededRole]
) -> Mapping[str, tuple[DeviceGroup, ...]]:
    """Return the GPUs of each replica of the models that run here, by role.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
        EngineError: when nothing installed can run a model.
    """
    found: dict[str, tuple[DeviceGroup, ...]] = {}
    for role in roles:
        if role.name == NLI:
            found[role.name] = device_groups(NLI, config.facts.nli.devices, 1)
        elif role.engine is None:
            found[role.name] = local_groups(config.reward, function=names_function(role.model))
        elif role.named and engine_kind(located(role.model), role.engine) in LOCAL:
            section = engine_section(role.name) or f"{role.name}: engine"
            found[role.name] = local_groups(role.engine, section)
    return found


def require_places(config: RunConfig, roles: Sequence[NeededRole]) -> None:
    """Refuse models whose GPUs are not there, and sampling elsewhere for an online method.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    try:
        places_of(config, roles)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    if config.policy.engine.place != "local" and ONLINE & {*trainings(roles)}:
        raise ConfigError(
            f"policy.engine.place: {config.recipe.name} gives its sampler new weights at every "
            "step, beside the training; set local"
        )
    for section, part in in_ray(config, roles):
        ray_request(part, section)


def in_ray(
    config: RunConfig, roles: Sequence[NeededRole]
) -> Iterator[tuple[str, EngineConfig | RewardConfig]]:
    """Yield the sections of the models that have workers in a Ray cluster."""
    for role in roles:
        part = config.reward if role.name == REWARD else role.engine
        if part is not None and role.named and "ray" in _named(part.place):
            yield engine_section(role.name) or role.name, part


def require_replicas(config: RunConfig, path: str) -> None:
    """Refuse a number or place of replicas that a living run cannot have; `path` is the setting.

    Raises:
        ConfigError: naming the setting that cannot be followed.
    """
    *sections, name = path.split(".")
    if name not in ("replicas", "place"):
        return
    found: object = config
    for section in sections:
        found = getattr(found, section)
    if isinstance(found, EngineConfig | RewardConfig):
        placements(found, ".".join(sections))


def _named(place: WorkerPlaces) -> tuple[WorkerPlace, ...]:
    return (place,) if isinstance(place, str) else tuple(place)
