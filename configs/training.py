"""The training of the next model on an iteration's rows: the methods' settings, and the place.

GRPO, RLOO and online DPO train on groups of the policy's own answers: each step draws `group`
answers to each of its prompts, and compares them with one another, without a value model.
"""

from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import BeforeValidator, model_validator

from .methods import (
    DPOTraining,
    KTOTraining,
    MissingEnd,
    NextToken,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SamplingTraining,
    SFTTraining,
)
from .section import AutoCount, Devices, Section, cosmetic, semantic


class GroupTraining(SamplingTraining):
    """The settings of methods that compare the answers to one prompt with one another."""

    reference_reward: ClassVar[bool] = False
    """An answer's reward is compared with its group's, never with a reference answer's."""

    prompts_per_step: int = semantic(64, "prompts a step", ge=1)
    group: int = semantic(8, "answers to a prompt, which are compared with one another", ge=2)
    batch_size: int = semantic(512, "answers an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "answers a forward pass on one device", ge=1)
    inner_epochs: int = semantic(1, "passes over a step's answers", ge=1)
    epochs: float = semantic(1.0, "passes over the prompts", gt=0)
    learning_rate: float = semantic(1e-6, "peak, after the warm-up", gt=0, le=1)
    adam_eps: ClassVar[float] = 1e-8
    scheduler: ClassVar[str] = "constant"
    max_grad_norm: ClassVar[float] = 1.0
    missing_eos: MissingEnd = semantic(
        "below",
        "the reward of an answer without an end token. below: the step's lowest of an answer that "
        "ended, less the standard deviation; replace: -1; subtract: its own, less 1",
    )
    missing_eos_penalty: ClassVar[float] = 1.0

    @property
    def rollouts(self) -> int:
        """The answers of a step."""
        return self.prompts_per_step * self.group


class GRPOTraining(GroupTraining):
    """Group relative policy optimisation (DeepSeekMath, Section 4.1)."""

    kl_coef: float = semantic(0.04, "beta: weight of the KL penalty in the loss (Eq. 3)", ge=0)
    clip: float = semantic(0.2, "epsilon: clipping of the probability ratio", gt=0, lt=1)
    clip_high: float | None = semantic(
        None, "clipping of the ratio from above; default: as `clip` (DAPO, Eq. 8: 0.28)", gt=0
    )
    scale: Literal["group", "none"] = semantic(
        "group",
        "advantages are divided by the standard deviation of their group's rewards, or not "
        "(Dr. GRPO, Section 3.2)",
    )
    loss: Literal["answer", "token", "constant"] = semantic(
        "answer",
        "answer: the mean over answers of their means over tokens (Eq. 3); token: the mean over "
        "all tokens (DAPO, Eq. 8); constant: each answer's sum over `policy.sampling.max_tokens` "
        "(Dr. GRPO)",
    )

    @model_validator(mode="after")
    def _check_clip_range(self) -> "GRPOTraining":
        """Refuse a range of the ratio that is narrower above than below."""
        if self.clip_high is not None and self.clip_high < self.clip:
            raise ValueError(
                f"clip_high={self.clip_high:g} is below clip={self.clip:g}: it leaves a likely "
                "answer less room to rise than to fall; set it to at least clip, or leave it out"
            )
        return self


class RLOOTraining(GroupTraining):
    """REINFORCE with the mean of the others as baseline, leave-one-out (Ahmadian et al., 2024)."""

    group: int = semantic(4, "k: answers to a prompt, each against the mean of the others", ge=2)
    batch_size: int = semantic(256, "answers an optimizer step", ge=1)
    kl_coef: float = semantic(0.03, "beta: weight of the KL in an answer's reward (Eq. 3)", ge=0)
    clip: float = semantic(
        0.2,
        "clipping of the ratio of an answer's probability, from a step's second update on: before "
        "that it is 1",
        gt=0,
        lt=1,
    )


class OnlineDPOTraining(GroupTraining):
    """DPO on pairs of the policy's own answers, drawn while it trains (Guo et al., 2024)."""

    group: int = semantic(2, "answers to a prompt: the best makes a pair with the worst", ge=2)
    batch_size: int = semantic(64, "pairs an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "pairs a forward pass on one device", ge=1)
    inner_epochs: int = semantic(1, "passes over a step's pairs", ge=1)
    learning_rate: float = semantic(5e-7, "peak, after the warm-up", gt=0, le=1)
    beta: float = semantic(0.1, "strength of the pull to the reference policy, which is M_0", gt=0)


OnlineSettings = PPOTraining | QuarkTraining | GroupTraining
"""The settings of a method that samples while it trains."""


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
