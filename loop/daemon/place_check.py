"""Whether this machine has the GPUs that a run's models are given, before anything is loaded."""

from collections.abc import Mapping, Sequence

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, RunConfig
from ...policies.engines.engine import EngineError
from ...policies.workers.open import engine_kind
from ...policies.workers.places import DeviceGroup, device_groups, engine_groups, scorer_groups
from ..recipes.roles import NeededRole
from ..run.models import NLI, located
from .engine_stages import engine_section

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
            found[role.name] = scorer_groups(config.reward, function=names_function(role.model))
        elif role.named and engine_kind(located(role.model), role.engine) in LOCAL:
            section = engine_section(role.name) or f"{role.name}: engine"
            found[role.name] = engine_groups(role.engine, section)
    return found


def require_places(config: RunConfig, roles: Sequence[NeededRole]) -> None:
    """Refuse models whose GPUs are not there.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    try:
        places_of(config, roles)
    except EngineError as error:
        raise ConfigError(str(error)) from error
