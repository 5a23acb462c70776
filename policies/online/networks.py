# pyright: basic
"""The networks of online methods: the policy, its frozen reference, and the value model."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel

from ..engines.chat_template import load_tokenizer
from ..trainers.sequences import Pass
from ..trainers.trainer_faults import TrainingError
from ..trainers.trainer_job import LARGE, TrainJob
from ..trainers.trl_trainer import load_model, weight_bytes


class ValueModel(nn.Module):
    """V(s_t): a reward model's backbone under a new head with one output, initialised to zero.

    AlpacaFarm's Appendix B found a start from the policy worse.
    """

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


def trained_policy(job: TrainJob, device: torch.device) -> Any:
    """Load the policy to be trained."""
    return trainable(load_model(job, job.model), job.model, device)


def frozen_reference(job: TrainJob, device: torch.device) -> Any:
    """Load the reference policy, without gradients."""
    folder = job.reference or job.model
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model: Any = load_model(job, folder)
    return model.to(device=device, dtype=dtype).eval().requires_grad_(requires_grad=False)


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
    backbone: Any = AutoModel.from_pretrained(
        source, dtype=job.fit.weights, local_files_only=True, use_safetensors=True,
        trust_remote_code=False,
    )  # fmt: skip
    model = ValueModel(backbone, backbone.config.hidden_size).to(backbone.dtype)
    trainable(backbone, source, device)
    return model.to(device)


def trainable(model: Any, folder: Path, device: torch.device) -> Any:
    """Prepare a network for gradients, without dropout: PPO's ratio must be 1 at the first step.

    A large one recomputes activations, which transformers supports in training mode only.
    """
    model.to(device).eval()
    if weight_bytes(folder) > 2 * LARGE:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model
