"""The training of the next model on an iteration's rows: the methods' settings, and the place."""

from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, model_validator

from .group_methods import GRPOTraining, OnlineDPOTraining, RLOOTraining
from .methods import (
    DPOTraining,
    KTOTraining,
    NextToken,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SFTTraining,
)
from .section import AutoCount, Devices, Section, cosmetic, semantic

ALL = "all-linear"


def _as_names(value: object) -> object:
    """Take one name, or several with commas between them, for a list of names."""
    if value == ALL:
        return value
    names: object = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list | tuple):
        parts = [str(name).strip() for name in cast("list[object]", names)]
        if parts and all(parts):
            return parts
    raise ValueError(f"must be {ALL}, or names of layers such as [q_proj, v_proj]")


Targets = Annotated[tuple[str, ...] | Literal["all-linear"], BeforeValidator(_as_names)]
"""The layers that get adapters."""


class LoRAConfig(Section):
    """Low-rank adapters (Hu et al., 2021): a frozen model, and small matrices that are trained.

    They are merged into the model that is published.
    """

    r: int = semantic(0, "rank of the adapters; 0: all weights are trained, without adapters", ge=0)
    alpha: float = semantic(16.0, "the adapters are scaled by alpha / r", gt=0)
    dropout: float = semantic(
        0.0, "dropout before the adapters; online methods train without", ge=0, lt=1
    )
    targets: Targets = semantic(
        "all-linear", "names of the layers that get adapters; all-linear: all but the output layer"
    )
    quantise: Literal["none", "nf4"] = semantic(
        "none", "nf4: the frozen weights take half a byte each (QLoRA; needs bitsandbytes)"
    )


class TrainingConfig(Section):
    """How M_{t+1} is made from M_t and the iteration's pairs or demonstrations."""

    reference: Literal["previous", "initial"] = semantic("previous", "DPO's reference policy")
    thought: Literal["none", "own", "template"] = semantic(
        "none",
        "trained part of a thinking policy's turn. none: the answer, directly after the prompt; "
        "own: the answer after its thought; template: the turn as the chat template renders it "
        "(Qwen3: with an empty thought)",
    )
    min_pairs: int = semantic(
        64, "fewer pairs or demonstrations stop the loop before training", ge=1
    )
    dpo: DPOTraining = DPOTraining()
    sft: SFTTraining = SFTTraining()
    kto: KTOTraining = KTOTraining()
    reward: RewardTraining = RewardTraining()
    ppo: PPOTraining = PPOTraining()
    quark: QuarkTraining = QuarkTraining()
    grpo: GRPOTraining = GRPOTraining()
    rloo: RLOOTraining = RLOOTraining()
    online_dpo: OnlineDPOTraining = OnlineDPOTraining()
    next_token: NextToken = NextToken()
    devices: Devices = cosmetic(
        "auto",
        "GPUs of each node that it runs on, by number, such as [0, 1]; auto: all that are visible",
    )
    processes: AutoCount = cosmetic(
        1,
        "training processes, one per device, of all nodes together; auto: one for each of the "
        "devices",
    )
    nodes: int = cosmetic(
        1,
        "machines of the run's Slurm allocation that a training runs on, each with the same share "
        "of the processes, started by `srun`; they must see the lake's disk",
        ge=1,
    )
    sharding: Literal["none", "fsdp2"] = cosmetic(
        "none",
        "none: each process holds the whole model; fsdp2: each a part of weights, gradients and "
        "optimizer states",
    )
    lora: LoRAConfig = LoRAConfig()
    optimizer: Literal["adamw", "adamw_8bit"] = semantic(
        "adamw", "adamw_8bit: its moments take a byte each (needs bitsandbytes, on a GPU)"
    )
    gradient_checkpointing: Literal["auto", "always", "never"] = cosmetic(
        "auto",
        "activations are computed again in the backward pass; auto: if memory would not suffice",
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"] = (
        cosmetic("auto", "implementation of attention in training; auto: transformers' choice")
    )
    liger: bool = cosmetic(
        default=False, description="Liger's fused kernels (needs liger-kernel, on a GPU)"
    )
    group_by_length: bool = semantic(
        default=False,
        description="which of an optimizer step's rows share a forward pass is decided by their "
        "length: less padding, the same steps; not for KTO and online methods",
    )
    publish: Literal["auto", "float32", "bfloat16", "float16"] = semantic(
        "auto",
        "type in which the trained policy is published; auto: the one that its engine samples in. "
        "lpfloop rounds to it at random, so that small updates survive",
    )
    keep_master: bool = semantic(
        default=True,
        description="keep the float32 weights next to the published ones: the next iteration "
        "trains from them; false: from the rounded ones, for a third of the disk",
    )
    checkpoint_minutes: float = cosmetic(
        10.0, "minutes of training between checkpoints, from which it resumes; 0: each step", ge=0
    )
    retries: int = cosmetic(2, "restarts of a failed training", ge=0)
    hang_timeout_s: float = cosmetic(
        1800.0, "seconds without a sign of life after which a trainer counts as hung", gt=0
    )

    @model_validator(mode="after")
    def _check_sharding(self) -> Self:
        others = {
            "lora.quantise=nf4": self.lora.quantise != "none" and self.lora.r > 0,
            "optimizer=adamw_8bit": self.optimizer == "adamw_8bit",
        }
        other = next((name for name, is_set in others.items() if is_set), None)
        if self.sharding != "none" and other is not None:
            raise ValueError(f"sharding={self.sharding} does not go with {other}: leave one out")
        return self
