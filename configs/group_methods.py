"""The settings of GRPO, RLOO and online DPO, which train on groups of the policy's own answers.

Each step draws `group` answers to each of its prompts, and compares them with one another: these
methods have no value model.
"""

from typing import ClassVar, Literal

from pydantic import model_validator

from .methods import MissingEnd, PPOTraining, QuarkTraining, SamplingTraining
from .section import semantic


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
