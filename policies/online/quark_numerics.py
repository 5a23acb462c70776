"""Quark's loss as functions of tensors (Lu et al., 2022, Eq. 2, with AlpacaFarm's exact KL).

Shapes: b samples of W response positions; V the vocabulary of the policy, U <= V that of the
reference, whose tokens come first; the rest are tokens that only the policy has.
"""

from dataclasses import dataclass

from torch import Tensor

from .numerics import entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of the loss at each position, (b, W) each, in nats."""

    nll: Tensor
    kl: Tensor
    entropy: Tensor

    def loss(self, *, kl_coef: float, entropy_coef: float) -> Tensor:
        """-log p(y_t) + kl_coef · KL(policy || reference) - entropy_coef · H, (b, W)."""
        return self.nll + kl_coef * self.kl - entropy_coef * self.entropy


def terms(logits: Tensor, reference: Tensor, tokens: Tensor, *, vocabulary: int) -> Terms:
    """Return the terms of the loss: logits are (b, W, V) and (b, W, U), `tokens` (b, W).

    KL and entropy are over the first `vocabulary` tokens, which both models have. The likelihood is
    over all, as in sampling: so the policy learns not to say the tokens that only it has.
    """
    chosen = logits.gather(-1, tokens[..., None])[..., 0]
    shared = logits[..., :vocabulary]
    return Terms(
        nll=logits.logsumexp(dim=-1) - chosen,
        kl=exact_kl(shared, reference[..., :vocabulary]),
        entropy=entropy(shared),
    )


def exact_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """Return KL(policy || reference) at each position, summed over the whole vocabulary."""
    own, other = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (own.exp() * (own - other)).sum(dim=-1)
