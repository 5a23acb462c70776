# pyright: basic
"""The networks of online methods: the policy, its frozen reference, and the value model.

Each is used within a `with` block, backward passes included: networks over one body switch its
adapters for the length of a block.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModel, PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion

from ..engines.canary import AGREEMENT
from ..engines.chat_template import load_tokenizer
from ..trainers.adapters import computing_type, published_type
from ..trainers.job import TrainingError, TrainJob
from ..trainers.sequences import Pass
from ..trainers.trained_model import drop_tied
from ..trainers.training_fit import master_of
from ..trainers.trl_trainer import load_model, load_trained, trained_loading
from .ranks import Ranks

if TYPE_CHECKING:
    from .shared_body import SharedBody

Networks: TypeAlias = "SeparateNetworks | SharedBody"
"""A policy, its frozen reference and its value model."""

FLOAT32_AGREEMENT = 5e-5
"""Nats per token by which a correct engine may differ from the trainer if both use float32.

Kernels of two libraries differ by less than 1e-6; an update moves a policy by far more than this.
"""

ROUNDED_AGREEMENT = 0.15
"""Nats per token by which it may differ if only the sampler's weights are rounded. SmolLM2-135M in
bfloat16 was off by up to 0.06; an engine that never loads new weights exceeds this within a run."""


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


class SeparateNetworks:
    """Networks that share no weights; the value model is a reward model's backbone.

    AlpacaFarm's Appendix B found a start from the policy worse. `trained` holds exactly the trained
    networks. If `sharded`, each process holds a part of the weights, the gradients and the
    optimizer's moments (FSDP2): all processes call the methods that gather weights, and only the
    first one gets them.
    """

    def __init__(
        self, job: TrainJob, device: torch.device, *, valued: bool, sharded: bool = False
    ) -> None:
        self._job = job
        self.is_sharded = sharded
        # From main memory the blocks go to the device one by one, each process's part of them.
        place = torch.device("cpu") if sharded else device
        self._policy = trainable(load_trained(job), job, place)
        path = master_of(job.reference or job.model)
        reference: Any = load_model(job, path, {"dtype": computing_type(job)})
        self._reference = reference.to(place).eval().requires_grad_(requires_grad=False)
        self.trained = nn.ModuleDict({"policy": self._policy})
        self._value = value_model(job, place) if valued else None
        if self._value is not None:
            self.trained["value"] = self._value
        for network in (self._policy, self._reference, self._value):
            if sharded and network is not None:
                shard(network)

    def policy(self) -> AbstractContextManager[Any]:
        """Yield the policy."""
        return nullcontext(self._policy)

    def reference(self) -> AbstractContextManager[Any]:
        """Yield the reference policy."""
        return nullcontext(self._reference)

    def value(self) -> AbstractContextManager[ValueModel]:
        """Yield the value model."""
        assert self._value is not None  # noqa: S101 -- only PPO asks
        return nullcontext(self._value)

    @property
    def config(self) -> PreTrainedConfig:
        """The policy's configuration."""
        return self._policy.config

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights, each in the type in which it computes, in main memory."""
        # To nearest, as the trainer's passes round them: the sampler then runs the same policy.
        # Random rounding takes it 0.02 nats a token away after one step, and 0.05 after seven.
        kind = published_type(self._job)
        own = self._policy.state_dict()
        return in_main_memory(self._policy, own, lambda _, value: value.to(kind))

    def save(self, folder: Path) -> None:
        """Save the files from which `assemble_model` makes the published model."""
        if not self.is_sharded:
            self._policy.save_pretrained(folder)
        elif own := gather(self._policy, self._policy.state_dict(), lambda _, value: value):
            self._policy.save_pretrained(folder, state_dict=own)


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


def agreement(job: TrainJob, device: torch.device) -> float:
    """Return how far the sampler may be off the policy, in nats per token."""
    computing, sampling = computing_type(job), published_type(job)
    if device.type == "cpu" and computing == sampling == torch.float32:
        return FLOAT32_AGREEMENT
    # Adapters are merged, then rounded; another type than the passes' rounds differently.
    return ROUNDED_AGREEMENT if job.fit.adapts or computing != sampling else AGREEMENT


def in_main_memory(
    model: Any, state: dict[str, Tensor], made: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return the result of `gather`, under the names in the model's files."""
    found = gather(model, state, made)
    return revert_weight_conversion(model, found) if found else found


def gather(
    model: Any, state: dict[str, Tensor], made: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return the results of `made` for a model's weights, in the first process.

    They are gathered, converted and moved to main memory one by one, because a GPU has no room
    for a second model. The other processes of a sharded model get an empty result.
    """
    found, is_first = dict[str, Tensor](), Ranks().is_first
    for name, value in drop_tied(model, state).items():
        part: Any = value
        whole = part.full_tensor() if isinstance(part, DTensor) else part
        if is_first:
            found[name] = made(name, whole).to("cpu")
    return found


def value_model(job: TrainJob, device: torch.device) -> ValueModel:
    """Build the value model from the reward model's weights, or else the policy's.

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
    trainable(backbone, job, device)
    return model.to(device)


def trainable(model: Any, job: TrainJob, device: torch.device) -> Any:
    """Prepare a network for gradients, without dropout: PPO's ratio must be 1 at the first step.

    A large one recomputes activations, which transformers supports in training mode only.
    """
    model.to(device).eval()
    if job.fit.gradient_checkpointing == "always":
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model
