# pyright: basic
"""Whole networks of which each process holds a part (FSDP2), gathered block by block in a pass.

Gradients and the optimizer's moments are divided alike. All processes make the same passes, and
take part in whatever gathers weights.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from transformers.core_model_loading import revert_weight_conversion

from ..trainers.job import TrainJob
from ..trainers.sharded_training import untied
from .networks import SeparateNetworks, for_sampler

WEIGHTS, OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"
"""The folders, within a checkpoint, of what every process writes its part of."""


class DividedNetworks(SeparateNetworks):
    """Separate networks, each of them divided over all processes."""

    is_divided = True

    def __init__(self, job: TrainJob, *, valued: bool) -> None:
        # From main memory the blocks go to the device one by one, each process's part of them.
        super().__init__(job, torch.device("cpu"), valued=valued)
        for network in (self._policy, self._reference, self._value):
            if network is not None:
                divide(network)

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights in the first process, nothing in the others."""
        found = self._gathered(partial(for_sampler, self._job))
        return revert_weight_conversion(self._policy, found) if found else found

    def save(self, folder: Path) -> None:
        """Save the policy, gathered; the first process writes."""
        weights = self._gathered(lambda _, value: value)
        if weights:
            self._policy.save_pretrained(folder, state_dict=weights)

    def _gathered(self, made: Callable[[str, Tensor], Tensor]) -> dict[str, Tensor]:
        is_first = distributed.get_rank() == 0
        found: dict[str, Tensor] = {}
        for name, value in untied(self._policy, self._policy.state_dict()).items():
            part: Any = value
            whole = part.full_tensor() if isinstance(part, DTensor) else part
            if is_first:
                found[name] = made(name, whole).to("cpu")
        return found


def divide(model: nn.Module) -> None:
    """Divide a network's weights over all processes, by transformers' blocks."""
    on_gpu = torch.cuda.is_available()
    narrow = torch.bfloat16 if on_gpu else None
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32)
    for block in blocks_of(model):
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the parts of a network that transformers never splits: its layers."""
    named = {
        name for part in model.modules() for name in getattr(part, "_no_split_modules", None) or ()
    }
    return [part for part in model.modules() if type(part).__name__ in named]


def save_parts(trained: nn.ModuleDict, optimizer: Optimizer, folder: Path) -> None:
    """Write this process's part of weights and moments into a checkpoint's folder."""
    weights, moments = get_state_dict(trained, optimizer)
    state_dict_saver.save(weights, checkpoint_id=folder / WEIGHTS)
    state_dict_saver.save(moments, checkpoint_id=folder / OPTIMIZER)


def load_parts(trained: nn.ModuleDict, optimizer: Optimizer, folder: Path) -> None:
    """Read this process's part of weights and moments."""
    weights, moments = get_state_dict(trained, optimizer)
    state_dict_loader.load(weights, checkpoint_id=folder / WEIGHTS)
    state_dict_loader.load(moments, checkpoint_id=folder / OPTIMIZER)
    set_state_dict(trained, optimizer, model_state_dict=weights, optim_state_dict=moments)
