# pyright: basic
"""The networks of online methods: the policy, its frozen reference, and the value model.

Each is had for the length of a block, backward passes included: where they share one body, a block
is what decides which of them that body is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from ...stores.keys import derive_seed
from ..engines.chat_template import load_tokenizer
from ..trainers.adapters import computing_type, published_type
from ..trainers.bfloat16 import join_weights, rounded_at_random, split_weights
from ..trainers.job import TrainingError, TrainJob
from ..trainers.sequences import Pass
from ..trainers.training_fit import master_of
from ..trainers.trl_trainer import load_model, load_trained, recomputes, trained_loading


class Networks(Protocol):
    """A policy, its reference and its value model.

    `trained` holds what changes, and nothing else. If the networks `is_divided`, all processes call
    what gathers weights, and the first one alone has them then.
    """

    trained: nn.ModuleDict
    is_divided: bool

    def policy(self) -> AbstractContextManager[Any]:
        """Give the policy."""
        ...

    def reference(self) -> AbstractContextManager[Any]:
        """Give the reference policy, which has no gradients."""
        ...

    def value(self) -> AbstractContextManager["ValueModel"]:
        """Give the value model."""
        ...

    @property
    def config(self) -> PreTrainedConfig:
        """The policy's configuration, as its weights are written."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights, each in the type in which it computes, in main memory."""
        ...

    def save(self, folder: Path) -> None:
        """Save what `assemble_model` makes the published model of."""
        ...


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
    """Networks that have nothing in common; the value model is a reward model's backbone.

    AlpacaFarm's Appendix B found a start from the policy worse.
    """

    is_divided = False

    def __init__(self, job: TrainJob, device: torch.device, *, valued: bool) -> None:
        self._job = job
        self._narrow = job.fit.weights == "bfloat16"
        self._policy = trained_policy(job, device)
        self._reference = frozen_reference(job, device)
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
        assert self._value is not None  # noqa: S101 -- PPO alone asks
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


def trained_policy(job: TrainJob, device: torch.device) -> Any:
    """Load the policy to be trained."""
    return trainable(load_trained(job), job, device)


def frozen_reference(job: TrainJob, device: torch.device) -> Any:
    """Load the reference policy, without gradients."""
    path = master_of(job.reference or job.model)
    model: Any = load_model(job, path, {"dtype": computing_type(job)})
    return model.to(device).eval().requires_grad_(requires_grad=False)


def value_model(job: TrainJob, device: torch.device) -> ValueModel:
    """Build the value model: of the reward model's weights, or the policy's where that has none.

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
