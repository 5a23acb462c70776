# pyright: basic
"""FSDP: loading a model that is divided over processes, and saving it whole.

accelerate and TRL divide it, by the settings in the launcher's file. They leave the steps here to
their caller: without these the model is lost, or learns from a wrong reference.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Trainer
from transformers.distributed.fsdp import is_fsdp_enabled

LOADS_ONCE = "FSDP_CPU_RAM_EFFICIENT_LOADING"
"""The variable by which transformers gives weights to the first process, zeros to the others."""


def is_sharded() -> bool:
    """Whether the launcher's file configures FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


@contextmanager
def loaded_in_each_process() -> Generator[None]:
    """Make every process load the weights of a reference.

    The first process sends the trained model's weights to the others, but not a reference's, which
    would then be zeros.
    """
    if not is_fsdp_enabled():
        yield
        return
    os.environ[LOADS_ONCE] = "false"
    try:
        yield
    finally:
        os.environ[LOADS_ONCE] = "true"


def fit_sharding(trainer: Trainer) -> None:
    """Sum gradients over processes in float32, whatever type the passes compute in."""
    plugin: Any = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    policy: Any = getattr(plugin, "mixed_precision_policy", None)
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = MixedPrecisionPolicy(
            param_dtype=policy.param_dtype,
            reduce_dtype=torch.float32,
            output_dtype=policy.output_dtype,
        )


def save_whole(trainer: Trainer, folder: Path) -> None:
    """Save the weights and the config of a trained model, whole, however it is divided."""
    plugin: Any = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        trainer.save_model(str(folder))
        return
    # Not by the trainer's `save_model`: of shards, which checkpoints are, it writes nothing.
    plugin.set_state_dict_type("FULL_STATE_DICT")
    weights: Any = trainer.accelerator.get_state_dict(trainer.model)
    if trainer.args.should_save:
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        model.save_pretrained(folder, state_dict=untied(model, weights))


def untied(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights without those that are tied to others: gathered, they are copies."""
    tied: Any = model.all_tied_weights_keys
    return {name: tensor for name, tensor in weights.items() if name not in tied}
