# pyright: basic
"""The networks of online methods: the policy, its frozen reference, and the value model.

Each is used within a `with` block, backward passes included: networks over one body switch its
adapters for the length of a block.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModel, PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from ...stores.keys import derive_seed
from ..engines.chat_template import load_tokenizer
from ..trainers.adapters import computing_type, published_type
from ..trainers.bfloat16 import join_weights, rounded_at_random, split_weights
from ..trainers.job import TrainingError, TrainJob
from ..trainers.sequences import Pass
from ..trainers.sharded_training import untied
from ..trainers.training_fit import master_of
from ..trainers.trl_trainer import load_model, load_trained, recomputes, trained_loading


class Networks(ABC):
    """A policy, its reference and its value model.

    `trained` holds what changes, and nothing else. If the networks are sharded, all processes call
    the methods that gather weights, and only the first one gets them.
    """

    is_sharded: ClassVar[bool] = False
    trained: nn.ModuleDict

    @abstractmethod
    def policy(self) -> AbstractContextManager[Any]:
        """Give the policy."""

    @abstractmethod
    def reference(self) -> AbstractContextManager[Any]:
        """Give the reference policy, which has no gradients."""

    @abstractmethod
    def value(self) -> AbstractContextManager["ValueModel"]:
        """Give the value model."""

    @property
    @abstractmethod
    def config(self) -> PreTrainedConfig:
        """The policy's configuration, as its weights are written."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights, each in the type in which it computes, in main memory."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save what `assemble_model` makes the published model of."""


class ValueModel(nn.Module):
    """V(s_t): a backbone under a new head with one output, initialised to zero."""

    def __init__(self, backbone: nn.Module, width: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, work: Pass) -> Tensor:
        """Return the value of the state before each of the answers' tokens, (b, W)."""
        output = self.backbone(
            input_ids=work.ids,
            attention_mask=work.mask,
            position_ids=work.positions,
            use_cache=False,
        )
        states = output.last_hidden_state[:, work.queries - 1 : -1]
        return self.head(states.to(self.head.weight.dtype))[..., 0].float()


class SeparateNetworks(Networks):
    """Networks that share no weights; the value model is a reward model's backbone.

    AlpacaFarm's Appendix B found a start from the policy worse.
    """

    def __init__(self, job: TrainJob, device: torch.device, *, valued: bool) -> None:
        self._job = job
        self._narrow = job.fit.weights == "bfloat16"
        self._policy = trainable(load_trained(job), job, device)
        path = master_of(job.reference or job.model)
        reference: Any = load_model(job, path, {"dtype": computing_type(job)})
        self._reference = reference.to(device).eval().requires_grad_(requires_grad=False)
        self.trained = nn.ModuleDict({"policy": self._policy})
        self._value = value_model(job, device) if valued else None
        if self._value is not None:
            self.trained["value"] = self._value

    def policy(self) -> AbstractContextManager[Any]:
        """Give the policy."""
        return nullcontext(self._policy)

    def reference(self) -> AbstractContextManager[Any]:
        """Give the reference policy."""
        return nullcontext(self._reference)

    def value(self) -> AbstractContextManager[ValueModel]:
        """Give the value model."""
        assert self._value is not None  # noqa: S101 -- only PPO asks
        return nullcontext(self._value)

    @property
    def config(self) -> PreTrainedConfig:
        """The policy's configuration."""
        return self._policy.config

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights."""
        own = self._policy.state_dict()
        return in_main_memory(self._policy, own, lambda _, value: value, self._job)

    def save(self, folder: Path) -> None:
        """Save the policy, with the bits that the optimizer keeps of it."""
        if self._narrow:
            join_weights(self._policy)
        self._policy.save_pretrained(folder)
        if self._narrow:
            split_weights(self._policy)


class ShardedNetworks(SeparateNetworks):
    """Separate networks of which each process holds a part (FSDP2), gathered block by block.

    Gradients and the optimizer's moments are sharded alike.
    """

    is_sharded = True

    def __init__(self, job: TrainJob, *, valued: bool) -> None:
        # From main memory the blocks go to the device one by one, each process's part of them.
        super().__init__(job, torch.device("cpu"), valued=valued)
        for network in (self._policy, self._reference, self._value):
            if network is not None:
                shard(network)

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


def shard(model: nn.Module) -> None:
    """Divide a network's weights over all processes, by the layers that transformers names."""
    narrow = torch.bfloat16 if torch.cuda.is_available() else None
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32)
    layers = {
        name for part in model.modules() for name in getattr(part, "_no_split_modules", None) or ()
    }
    for part in [part for part in model.modules() if type(part).__name__ in layers]:
        fully_shard(part, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def computes_exactly(job: TrainJob, device: torch.device) -> bool:
    """Return whether the policy computes in float32, as its sampler then does."""
    whole = job.fit.adapts or job.fit.weights == "float32"
    return device.type == "cpu" and whole and computing_type(job) == torch.float32


def in_main_memory(
    model: Any, state: dict[str, Tensor], whole: Callable[[str, Tensor], Tensor], job: TrainJob
) -> dict[str, Tensor]:
    """Return what `whole` makes of a model's weights, under the names that its files have.

    They are made, rounded and moved one by one: a GPU has no room for a second model.
    """
    single = remove_tied_weights_from_state_dict(state, model)
    moved = {n: for_sampler(job, n, whole(n, value)).to("cpu") for n, value in single.items()}
    return revert_weight_conversion(model, moved)


def for_sampler(job: TrainJob, name: str, value: Tensor) -> Tensor:
    """Return a weight as the sampler gets it: rounded at random, by the same numbers each step."""
    return rounded_at_random(value, published_type(job), derive_seed(job.seed, "rollout", name))


def value_model(job: TrainJob, device: torch.device) -> ValueModel:
    """Build the value model of the reward model's weights, or the policy's if there is none.

    Raises:
        TrainingError: of kind `refused`, when the reward model's tokenizer is not the policy's.
    """
    source = job.value_source
    own, other = (load_tokenizer(folder).get_vocab() for folder in (job.model, source))
    if own != other:
        raise TrainingError(
            "refused",
            f"PPO's value model begins as the reward model {source}, which has another tokenizer "
            f"than the policy {job.model}; give a reward model of the policy's family",
        )
    backbone: Any = AutoModel.from_pretrained(source, **trained_loading(job))
    model = ValueModel(backbone, backbone.config.hidden_size).to(backbone.dtype)
    if job.fit.weights == "bfloat16":
        split_weights(model)
    trainable(backbone, job, device)
    return model.to(device)


def trainable(model: Any, job: TrainJob, device: torch.device) -> Any:
    """Prepare a network for gradients, without dropout: PPO's ratio must be 1 at the first step.

    A large one recomputes activations, which transformers supports in training mode only.
    """
    model.to(device).eval()
    if recomputes(job):
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model
