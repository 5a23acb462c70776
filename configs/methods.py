"""How a model is trained: the settings of each method, with the papers' values as defaults."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

from pydantic import model_validator

from .section import AutoWeight, Place, Section, cosmetic, semantic

MissingEnd = Literal["none", "replace", "subtract", "below"]
"""The treatment of the reward of an answer without an end token."""


class FixedTraining(Section):
    """The settings of methods that learn from rows which were made before."""

    max_length: int = semantic(2048, "prompt and answer, in tokens", ge=16)
    scheduler: Literal["cosine", "linear", "constant"] = semantic(
        "cosine", "learning rate after the warm-up"
    )


class DPOTraining(FixedTraining):
    """Direct preference optimisation (Eq. 3)."""

    beta: float = semantic(0.1, "strength of the pull to the reference policy", gt=0)
    learning_rate: float = semantic(2e-6, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(1.0, "passes over the iteration's pairs", gt=0)
    batch_size: int = semantic(64, "pairs an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "pairs a forward pass on one device", ge=1)
    warmup_ratio: float = semantic(0.1, "share of the steps that warm up", ge=0, lt=1)
    sft_weight: float = semantic(
        0.0, "weight of the mean next-token loss on chosen answers, in nats a token", ge=0
    )
    loss: Literal["sigmoid", "sigmoid_norm", "ipo", "hinge", "apo_zero", "robust"] = semantic(
        "sigmoid",
        "on the pairs: sigmoid is Eq. 3; sigmoid_norm: of its means over tokens; ipo and hinge end "
        "at a margin; apo_zero is bounded and raises the chosen; robust: as label_smoothing says",
    )
    chosen_penalty: float = semantic(
        0.0,
        "lambda of DPO-Positive: penalty on chosen answers less probable than by the reference",
        ge=0,
    )
    label_smoothing: float = semantic(
        0.0, "share of pairs that are taken to be the wrong way round, by loss=robust", ge=0, lt=0.5
    )

    @model_validator(mode="after")
    def _together(self) -> "DPOTraining":
        """Refuse settings that the loss does not have."""
        if self.chosen_penalty and self.loss != "sigmoid":
            raise ValueError(
                f"chosen_penalty is part of loss=sigmoid (Eq. 3): with loss={self.loss} leave it "
                "at 0; sft_weight works with any loss"
            )
        if bool(self.label_smoothing) != (self.loss == "robust"):
            raise ValueError(
                "label_smoothing and loss=robust go together: set both, the first above 0, or none"
            )
        return self


class KTOTraining(FixedTraining):
    """Kahneman-Tversky optimisation (Ethayarajh et al., 2024, Eq. 7 and 8)."""

    beta: float = semantic(0.1, "how soon a gain or a loss saturates", gt=0)
    learning_rate: float = semantic(5e-6, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(1.0, "passes over the iteration's answers", gt=0)
    batch_size: int = semantic(32, "answers an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "answers a forward pass on one device", ge=1)
    warmup_ratio: float = semantic(0.1, "share of the steps that warm up", ge=0, lt=1)
    loss: Literal["kto", "apo_zero_unpaired"] = semantic(
        "kto", "kto: Eq. 7, against the KL of a pass; apo_zero_unpaired: without the KL"
    )
    desirable_weight: AutoWeight = semantic(
        "auto",
        "lambda_D: weight of a success; auto: all successes weigh as much as all failures, the "
        "lower end of Eq. 8",
    )
    undesirable_weight: float = semantic(1.0, "lambda_U: weight of a failure", gt=0)

    @model_validator(mode="after")
    def _check_pass(self) -> "KTOTraining":
        """Refuse a pass of one answer, whose KL would be that answer's own log-ratio."""
        if self.loss == "kto" and self.micro_batch_size == 1:
            raise ValueError(
                "micro_batch_size is 1: KTO measures the KL of a forward pass on its prompts with "
                "each other's answers; set it to 2 or more, or loss to apo_zero_unpaired"
            )
        return self


class SFTTraining(FixedTraining):
    """Supervised fine-tuning on a rejection-sampling set."""

    learning_rate: float = semantic(2e-5, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(3.0, "passes over the iteration's demonstrations", gt=0)
    batch_size: int = semantic(128, "demonstrations an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "demonstrations a forward pass on one device", ge=1)
    warmup_ratio: float = semantic(0.03, "share of the steps that warm up", ge=0, lt=1)


class RewardTraining(FixedTraining):
    """A reward model with a Bradley-Terry head on the last token (AlpacaFarm, Section 2.2)."""

    learning_rate: float = semantic(3e-6, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(1.0, "passes over the pairs", gt=0)
    batch_size: int = semantic(16, "pairs an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "pairs a forward pass on one device", ge=1)
    max_length: int = semantic(512, "prompt and answer, in tokens", ge=16)
    warmup_ratio: float = semantic(0.03, "share of the steps that warm up", ge=0, lt=1)
    l2_weight: float = semantic(
        0.0, "weight of r(x, y+)^2 + r(x, y-)^2, which keeps scores near 0 (Eq. 2)", ge=0
    )
    held_out: int = semantic(500, "held-out pairs, to measure the accuracy; at most a tenth", ge=0)
    margin: float = semantic(
        0.0,
        "by how much r(x, y+) - r(x, y-) is to exceed 0, for each point that the pair's scores "
        "differ by (Llama 2, Section 3.2.2); 0 for a pair without scores",
        ge=0,
    )
    min_rate: float = semantic(
        0.0, "share of the peak that scheduler=cosine ends at; 0.1 in Llama 2", ge=0, lt=1
    )
    model: Place | None = semantic(
        None, "the model that the reward model begins as, such as a base model; default: M_0"
    )
    template: Place | None = semantic(
        None, "chat template of `model` if it lacks one: alpaca, or a .jinja file"
    )

    @model_validator(mode="after")
    def _check_effect(self) -> "RewardTraining":
        """Refuse settings without an effect."""
        if self.min_rate and self.scheduler != "cosine":
            raise ValueError(
                f"min_rate is where scheduler=cosine ends: with {self.scheduler} leave it at 0"
            )
        if self.template is not None and self.model is None:
            raise ValueError(
                "template belongs to the reward model's initial model: set model, too, or "
                "policy.engine.template for M_0's"
            )
        return self


class SteppedTraining(Section):
    """The settings of methods that sample while they train: their intermediate policies."""

    publish_every: int = semantic(
        0,
        "publish a policy every so many steps and evaluate it on dev prompts; 0: only the last "
        "policy",
        ge=0,
    )
    choose: Literal["last", "best"] = semantic(
        "last", "which policy is M_t: the last, or the best of all published by the dev prompts"
    )
    held_out_each: bool = semantic(
        default=False,
        description="evaluate them on held-out prompts, too; these results never select a policy",
    )

    @model_validator(mode="after")
    def _check_published(self) -> "SteppedTraining":
        """Refuse settings about intermediate policies if none are published."""
        condition = "choose=best" if self.choose == "best" else "held_out_each=true"
        if not self.publish_every and (self.choose == "best" or self.held_out_each):
            raise ValueError(
                f"{condition} needs checkpoints within the training, and publish_every is 0: set "
                "it to a number of steps, such as 20"
            )
        return self


class SamplingTraining(SteppedTraining):
    """The settings that all methods that sample while they train share."""

    max_steps: int | None = semantic(None, "steps; default: what `epochs` gives", ge=1)
    max_length: int = semantic(2048, "prompt and answer, in tokens", ge=16)
    warmup_steps: int = semantic(5, "optimizer steps that warm up", ge=0)
    sampler_memory: float = cosmetic(
        0.3, "share of a GPU's memory for the sampler next to the trainer", gt=0, lt=1
    )


class PPOTraining(SamplingTraining):
    """Proximal policy optimisation (AlpacaFarm, Section 2.2 and Appendix B)."""

    rollouts: int = semantic(512, "rollouts a PPO step", ge=1)
    reference_reward: bool = semantic(
        default=False,
        description="optimise r(x, y) - r(x, y_ref), y_ref an answer of M_0 (ChatGLM-RLHF, Eq. 5); "
        "leaves `whiten_rewards` and `whiten_advantages` at none",
    )
    batch_size: int = semantic(256, "rollouts an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "rollouts a forward pass on one device", ge=1)
    inner_epochs: int = semantic(2, "passes over a step's rollouts", ge=1)
    epochs: float = semantic(10.0, "passes over the prompts", gt=0)
    learning_rate: float = semantic(1e-5, "of policy and value model", gt=0, le=1)
    adam_eps: ClassVar[float] = 1e-5
    scheduler: Literal["linear", "constant"] = semantic(
        "linear", "learning rate after the warm-up: falling to 0, or as it is"
    )
    max_grad_norm: float = semantic(1.0, "norm to which gradients are clipped", gt=0)
    kl_coef: float = semantic(0.0067, "weight of the KL penalty at each token", ge=0)
    kl_estimator: Literal["k1", "k1_clamped", "k3"] = semantic(
        "k1", "estimate of the KL at a token: log-ratio, log-ratio not below 0, or k3"
    )
    gamma: float = semantic(1.0, "discount", gt=0, le=1)
    lam: float = semantic(1.0, "GAE's lambda", ge=0, le=1)
    clip: float = semantic(0.2, "clipping of the probability ratio", gt=0)
    value_clip: float = semantic(0.2, "clipping of the value's change", gt=0)
    vf_coef: float = semantic(0.1, "weight of the value loss", ge=0)
    entropy_coef: float = semantic(0.0, "weight of the entropy bonus", ge=0)
    whiten_rewards: Literal["none", "scale"] = semantic(
        "none", "scale: divide a step's shaped rewards by their standard deviation"
    )
    whiten_advantages: Literal["batch", "none"] = semantic(
        "batch", "batch: a step's advantages get mean 0 and standard deviation 1"
    )
    missing_eos: MissingEnd = semantic(
        "below",
        "the reward of an answer without an end token. below: the step's lowest of an answer that "
        "ended, less the penalty; replace: the penalty, negative; subtract: its own, less that",
    )
    missing_eos_penalty: float = semantic(
        1.0,
        "the size of that penalty; below counts it in standard deviations of the step's rewards",
        ge=0,
    )

    @model_validator(mode="before")
    @classmethod
    def _set_whitening(cls, values: Any) -> Any:
        """Default to no whitening of advantages if rewards are relative."""
        if not isinstance(values, Mapping):
            return values
        given = cast("Mapping[str, Any]", values)
        relative = given.get("reference_reward") is True
        return {"whiten_advantages": "none", **given} if relative else given

    @model_validator(mode="after")
    def _check_normalisation(self) -> "PPOTraining":
        """Refuse to normalise rewards in two ways at once (ChatGLM-RLHF, Section 4.1)."""
        whitened = [
            n for n in ("whiten_rewards", "whiten_advantages") if getattr(self, n) != "none"
        ]
        if self.reference_reward and whitened:
            raise ValueError(
                f"reference_reward takes the place of normalisation: set {' and '.join(whitened)} "
                "to none, or reference_reward to false"
            )
        return self


class QuarkTraining(SamplingTraining):
    """Quark: SFT on the best quantile of the policy's samples, with a KL term (Lu et al., 2022)."""

    rollouts: int = semantic(512, "samples a step", ge=1)
    reference_reward: ClassVar[bool] = False
    """Samples are sorted by their absolute rewards."""
    batch_size: int = semantic(128, "samples an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "samples a forward pass on one device", ge=1)
    epochs: float = semantic(10.0, "passes over the prompts", gt=0)
    inner_epochs: int = semantic(2, "passes over a step's best samples", ge=1)
    learning_rate: float = semantic(3e-6, "peak, after the warm-up", gt=0, le=1)
    adam_eps: ClassVar[float] = 1e-8
    scheduler: ClassVar[str] = "linear"
    max_grad_norm: ClassVar[float] = 1.0
    quantiles: int = semantic(4, "quantiles of the reward", ge=2)
    kl_coef: float = semantic(0.05, "weight of the exact KL to the reference policy", ge=0)
    entropy_coef: float = semantic(0.0, "weight of the entropy bonus", ge=0)


class NextToken(Section):
    """A next-token loss on people's answers, added to a policy's loss (ChatGLM-RLHF, Eq. 6)."""

    weight: float = semantic(0.0, "beta of Eq. 6; 0 turns the loss off", ge=0)
    source: Place | None = semantic(
        None, "JSONL file of prompts with `output`, or tiny; default: as `prompts.source`"
    )
    batch_size: int = semantic(16, "demonstrations an optimizer step", ge=1)
