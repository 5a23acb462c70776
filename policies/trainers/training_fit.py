"""The fit of a training on its devices: adapters, types, kernels and the division of the model.

Fields that can change the trained weights enter keys; the others change only memory and speed.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from ...configs.schema import RunConfig
from ...configs.section import Devices
from ...configs.training import LoRAConfig, TrainingConfig
from ...stores.keys import Json
from ..devices import cpu_type

ADAPTER = "adapter"
"""The folder, in a published model's, of the adapters that were merged into it."""

MASTER = "master"
"""The folder, in a published policy's, of its weights before they were rounded."""

SURVIVAL = "update/survival"
"""The metric: the share of an update that is left after the policy is published."""

NO_LORA = LoRAConfig()

PLACES = frozenset({"devices", "nodes"})
"""The fields about the place of a training."""

COSMETIC = frozenset({"gradient_checkpointing", "attention", "liger", "sharding"}) | PLACES
"""The fields that change only memory and speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFit:
    """The settings of the same names in `training`, with their defaults, for one job.

    Weights are updated in float32, which keeps the small steps of preference training, also over
    iterations; on a GPU the forward passes are bfloat16 in any case.
    """

    lora: LoRAConfig = NO_LORA
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    gradient_checkpointing: Literal["auto", "always", "never"] = "auto"
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"] = "auto"
    liger: bool = False
    group_by_length: bool = False
    publish: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    keep_master: bool = True
    sharding: Literal["none", "fsdp2"] = "none"
    devices: Devices = "auto"
    nodes: int = 1

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained, not the model's own weights."""
        return self.lora.r > 0


PLAIN = TrainingFit()
"""All weights in float32, by AdamW."""


def fit_of(training: TrainingConfig) -> TrainingFit:
    """Return the fit of a configuration's trainings; without a rank, it has no adapter."""
    fit = TrainingFit(**{field.name: getattr(training, field.name) for field in fields(PLAIN)})
    return fit if fit.adapts else replace(fit, lora=NO_LORA)


def policy_fit(config: RunConfig) -> TrainingFit:
    """Return the fit of a run's trainings of its policy: published in the type of its engine."""
    fit, sampled = fit_of(config.training), config.policy.engine.dtype
    return replace(fit, publish=sampled) if fit.publish == "auto" else fit


def placed_fit(config: RunConfig) -> TrainingFit:
    """Return `policy_fit` as it is on this machine: "auto" is the type that engines choose here.

    It is not part of a key: a run that resumes on another CPU repeats no work.
    """
    fit = policy_fit(config)
    narrow = fit.publish == "auto" and cpu_type() == "bfloat16"
    return replace(fit, publish="bfloat16") if narrow else fit


def master_of(model: Path) -> Path:
    """Return the folder of the weights that a training of a model begins with.

    These are the ones before rounding, if the model has them.
    """
    master = model / MASTER
    return master if master.is_dir() else model


def fit_params(fit: TrainingFit) -> dict[str, Json]:
    """Return the fields that change the trained weights, as part of a key; {} for the defaults."""

    def written(fit: TrainingFit) -> dict[str, Any]:
        return asdict(fit) | {"lora": fit.lora.model_dump(mode="json")}

    defaults = written(PLAIN)
    changed = {
        name: value
        for name, value in written(fit).items()
        if value != defaults[name] and name not in COSMETIC
    }
    return {"fit": changed} if changed else {}


def anywhere(fit: TrainingFit) -> TrainingFit:
    """Return a fit with the default devices and nodes."""
    return replace(fit, **{name: getattr(PLAIN, name) for name in PLACES})
