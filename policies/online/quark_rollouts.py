# pyright: basic
"""A Quark step's samples measured under the models before the update, and their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...stores.records import Rollout
from .environment import ScoredRollout
from .missing_end import cut_metrics
from .quantiles import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSamples:
    """Samples before the update, (B,) each: sums over an answer's tokens, in nats.

    `whole` is under the unscaled distribution over the whole vocabulary, as engines report it.
    """

    logprob: Tensor
    reference: Tensor
    kl: Tensor
    entropy: Tensor
    whole: Tensor


def sample_of(rollout: ScoredRollout) -> Sample:
    """Return a rollout as the pool keeps it: with r(x, y), or r(x, y) - r(x, y_ref)."""
    return Sample(
        prompt_id=rollout.drawn.asked.prompt_id,
        answer=tuple(rollout.spoken.answer),
        ended=rollout.ended,
        score=rollout.known_score - rollout.reference.score,
    )


def described(
    drawn: Sequence[ScoredRollout], measured: MeasuredSamples, rewards: Sequence[float]
) -> dict[str, float]:
    """Return metrics of a step's samples: means by answer or by token.

    `rewards` are those of the trainable ones, after the rule for samples without an end.
    """
    scores = [r.score for r in drawn if r.score is not None]
    whole = [r.ended for r in drawn if r.trainable]
    tokens = sum(len(r.spoken.answer) for r in drawn)
    return {
        "reward": sum(rewards) / len(rewards),
        "kl": float(measured.kl.mean()),
        "entropy": float(measured.entropy.sum()) / tokens,
        "score": sum(scores) / len(scores),
        "length": tokens / len(drawn),
        "tokens": float(tokens),
        "missing_eos": sum(not r.ended for r in drawn) / len(drawn),
        "unscored": float(sum(r.score is None for r in drawn)),
        **cut_metrics(rewards, whole),
    }


def rollout_rows(
    iteration: int,
    step: int,
    rollouts: Sequence[ScoredRollout],
    measured: MeasuredSamples,
    rewards: Sequence[float],
    quantiles: Sequence[int],
) -> list[Rollout]:
    """Return a row for each sample."""
    sums = zip(
        rewards,
        measured.kl.tolist(),
        measured.logprob.tolist(),
        measured.reference.tolist(),
        quantiles,
        strict=True,
    )
    return [
        Rollout(
            candidate_id=rollout.drawn.candidate_id,
            prompt_id=rollout.drawn.asked.prompt_id,
            iteration=iteration,
            step=step,
            reward=reward,
            kl=kl,
            logprob=logprob,
            reference_logprob=reference,
            tokens=len(rollout.spoken.answer),
            value=None,
            advantage_mean=None,
            advantage_std=None,
            quantile=quantile,
        )
        for rollout, (reward, kl, logprob, reference, quantile) in zip(rollouts, sums, strict=True)
    ]
