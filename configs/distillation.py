"""How a policy learns a distribution over answers, and not answers alone: its settings."""

from typing import Literal

from .section import Section, semantic


class DistillationTraining(Section):
    """The policy with the critique before it teaches the policy without, token by token."""

    divergence: Literal["forward_kl", "reverse_kl", "jsd"] = semantic(
        "forward_kl",
        "of teacher p and student q at each token, over the whole vocabulary. forward_kl: "
        "KL(p || q); reverse_kl: KL(q || p); jsd: the mean of both to (p + q) / 2",
    )
    temperature: float = semantic(
        1.0, "by which the logits of both are divided before they are compared", gt=0
    )
    learning_rate: float = semantic(2e-5, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(1.0, "passes over the iteration's distillations", gt=0)
    batch_size: int = semantic(64, "distillations an optimizer step", ge=1)
    micro_batch_size: int = semantic(4, "distillations a forward pass on one device", ge=1)
    max_length: int = semantic(
        4096, "the teacher's prompt, with draft and critique, and the answer, in tokens", ge=16
    )
    warmup_ratio: float = semantic(0.03, "share of the steps that warm up", ge=0, lt=1)
    scheduler: Literal["cosine", "linear", "constant"] = semantic(
        "cosine", "learning rate after the warm-up"
    )
