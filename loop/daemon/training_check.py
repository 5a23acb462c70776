"""Whether the trainings of a run can be fitted as they are told, before anything is paid."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import yaml

from ...configs.schema import ConfigError, RunConfig
from ...configs.training import TrainingConfig
from ...policies.devices import installed
from ...policies.trainers.checks import refuse_missing_layers
from ...policies.trainers.job import Method, TrainingError
from ...policies.trainers.training_fit import fit_of
from ...stores.installation import pip_install
from ..run.models import is_endpoint
from .hardware import devices

LEAST_RATE = 1e-5
"""The learning rate below which adapters hardly learn."""

KERNELS = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}
"""The distributions that hold implementations of attention."""


def require_fit(config: RunConfig) -> None:
    """Refuse trainings that ask for what is not installed, or for two things that exclude another.

    Raises:
        ConfigError: naming the setting.
    """
    for reason in (*excluded(config.training), *_not_here(config)):
        raise ConfigError(reason)


def require_layers(config: RunConfig, location: str) -> None:
    """Refuse adapters on layers that the policy does not have.

    Raises:
        ConfigError: naming those there are.
    """
    if is_endpoint(location) or not Path(location).is_dir():
        return
    try:
        refuse_missing_layers(fit_of(config.training), Path(location))
    except TrainingError as error:
        raise ConfigError(str(error)) from error


def faint_rates(config: RunConfig, methods: Sequence[Method]) -> Iterator[str]:
    """Yield a remark on each of these trainings whose steps are small for adapters."""
    if not config.training.lora.r:
        return
    for method in methods:
        rate: float = getattr(config.training, method).learning_rate
        if rate < LEAST_RATE:
            yield (
                f"training.{method}.learning_rate={rate:g} suits whole weights: adapters usually "
                "learn at about 1e-4"
            )


def excluded(training: TrainingConfig) -> Iterator[str]:
    """Yield what is wrong with the settings themselves, wherever they run."""
    lora = training.lora
    if not lora.r and lora.quantise != "none":
        yield (
            f"training.lora.quantise={lora.quantise} is for weights below adapters, and "
            "training.lora.r is 0: set training.lora.r, such as 16"
        )
    if training.weights == "float32":
        return
    if lora.r:
        yield (
            "training.weights is bfloat16, and training.lora trains float32 adapters over frozen "
            "weights, which are bfloat16 on a GPU in any case: leave training.weights out"
        )
    if training.optimizer != "adamw":
        yield (
            "training.weights=bfloat16 brings an optimizer of its own, with float32 moments: leave "
            "training.optimizer out"
        )
    if training.accelerate_config is not None and _divides(Path(training.accelerate_config)):
        yield (
            f"training.weights=bfloat16 is for whole models, and {training.accelerate_config} "
            "divides them over processes: leave training.weights out"
        )


def _divides(file: Path) -> bool:
    """Return whether a file for accelerate divides a model: by FSDP or DeepSpeed."""
    try:
        found: object = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    settings = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return str(settings.get("distributed_type")).upper() in ("FSDP", "DEEPSPEED")


def _not_here(config: RunConfig) -> Iterator[str]:
    """Give what a setting needs and this machine does not have."""
    training = config.training
    asked = {
        "training.lora.quantise=nf4": ("bitsandbytes", training.lora.quantise == "nf4"),
        "training.optimizer=adamw_8bit": ("bitsandbytes", training.optimizer == "adamw_8bit"),
        "training.liger=true": ("liger-kernel", training.liger),
        f"training.attention={training.attention}": (
            KERNELS.get(training.attention, ""),
            training.attention in KERNELS,
        ),
    }
    for setting, (package, wanted) in asked.items():
        if not wanted:
            continue
        if not devices().on_gpu:
            yield f"{setting} needs an NVIDIA GPU, and this machine shows none: leave it out"
        if installed(package) is None:
            yield (
                f"{setting} needs {package}, which is not installed: {pip_install(package)}, or "
                "leave it out"
            )
