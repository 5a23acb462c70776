# pyright: basic
"""A step's answers in their groups: what can be learned of them, and the rows that say so."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...configs.group_methods import GroupTraining
from ...stores.keys import row_id
from ...stores.records import Message, Pair, Rollout
from ..trainers.sequences import Spoken
from .environment import ScoredRollout, describe_drawn
from .group_numerics import is_even
from .missing_end import cut_metrics, ruled
from .numerics import masked_mean

RULE = "best_worst"
"""The rule by which online DPO makes a pair of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroups:
    """The answers of a step that can be compared with others to their prompt.

    `rewards` are theirs after the rule for answers without an end; a group is the places of its
    members among `rollouts`. `alone` counts the answers that are left out since all others to
    their prompt have no reward; `everyone` are the rewards with these.
    """

    rollouts: list[ScoredRollout]
    rewards: list[float]
    groups: list[list[int]]
    alone: int
    everyone: list[float]

    @property
    def grouped_rewards(self) -> list[list[float]]:
        """The rewards group by group."""
        return [[self.rewards[place] for place in group] for group in self.groups]

    def compared(
        self, rewards: Sequence[float], compare: Callable[[Sequence[float]], Sequence[float]]
    ) -> list[float]:
        """Return what a comparison of each group's rewards says of its answers, in their order."""
        found = [0.0] * len(rewards)
        for group in self.groups:
            values = compare([rewards[place] for place in group])
            for place, value in zip(group, values, strict=True):
                found[place] = value
        return found


def grouped(drawn: Sequence[ScoredRollout], settings: GroupTraining) -> AnswerGroups:
    """Return the groups of a step's rollouts, which lie one behind the other."""
    places = [place for place, rollout in enumerate(drawn) if rollout.trainable]
    everyone = ruled(
        [drawn[place].known_score for place in places],
        [drawn[place].ended for place in places],
        settings.missing_eos,
        settings.missing_eos_penalty,
    )
    members: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        members.setdefault(place // settings.group, []).append(number)
    together = [group for group in members.values() if len(group) > 1]
    kept = [number for group in together for number in group]
    moved = {number: place for place, number in enumerate(kept)}
    return AnswerGroups(
        rollouts=[drawn[places[number]] for number in kept],
        rewards=[everyone[number] for number in kept],
        groups=[[moved[number] for number in group] for group in together],
        alone=len(places) - len(kept),
        everyone=everyone,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeasurements:
    """B answers of T positions before the update: (B, T) each, but for `whole`, (B,).

    `kl` is the method's estimate at each token. `whole` sums the unscaled log-probabilities of an
    answer's tokens, as engines report them.
    """

    spoken: list[Spoken]
    mask: Tensor
    logprobs: Tensor
    reference: Tensor
    entropy: Tensor
    kl: Tensor
    whole: Tensor


def rollout_rows(
    iteration: int,
    step: int,
    groups: AnswerGroups,
    measured: GroupMeasurements,
    advantages: Sequence[float] | None,
) -> list[Rollout]:
    """Return a row for each answer that was compared; its advantage is that of all its tokens."""
    sums = torch.stack([part.sum(dim=1) for part in (measured.kl, measured.logprobs)], dim=1)
    reference = measured.reference.sum(dim=1).tolist()
    return [
        Rollout(
            candidate_id=rollout.drawn.candidate_id,
            prompt_id=rollout.drawn.asked.prompt_id,
            iteration=iteration,
            step=step,
            reward=groups.rewards[place],
            kl=kl,
            logprob=logprob,
            reference_logprob=reference[place],
            tokens=len(rollout.spoken.answer),
            value=None,
            advantage_mean=None if advantages is None else advantages[place],
            advantage_std=None,
            quantile=None,
        )
        for place, (rollout, (kl, logprob)) in enumerate(
            zip(groups.rollouts, sums.tolist(), strict=True)
        )
    ]


def pair_rows(iteration: int, groups: AnswerGroups, pairs: Sequence[tuple[int, ...]]) -> list[Pair]:
    """Return a row for each pair of a better and a worse answer, which are places."""
    return [
        _pair_row(iteration, groups, rank, chosen, rejected)
        for rank, (chosen, rejected) in enumerate(pairs)
    ]


def _pair_row(iteration: int, groups: AnswerGroups, rank: int, chosen: int, rejected: int) -> Pair:
    better, worse = groups.rollouts[chosen], groups.rollouts[rejected]
    ids = (better.drawn.candidate_id, worse.drawn.candidate_id)
    return Pair(
        pair_id=row_id("pair", [*ids, RULE, iteration]),
        prompt_id=better.drawn.asked.prompt_id,
        iteration=iteration,
        chosen_id=ids[0],
        rejected_id=ids[1],
        rule=RULE,
        rank=rank,
        chosen_ratings=(),
        rejected_ratings=(),
        chosen_reward=groups.rewards[chosen],
        rejected_reward=groups.rewards[rejected],
        prompt=better.drawn.asked.messages,
        chosen=(_said(better),),
        rejected=(_said(worse),),
        chosen_cut=None if better.ended else True,
        rejected_cut=None if worse.ended else True,
    )


def _said(rollout: ScoredRollout) -> Message:
    return Message(role="assistant", content=rollout.completion.text)


def describe(
    drawn: Sequence[ScoredRollout], groups: AnswerGroups, measured: GroupMeasurements
) -> dict[str, float]:
    """Return metrics of a step's answers: means by answer, by token or by group.

    Answers without a reward or without others count where nothing is asked of the models.
    """
    trainable = [r for r in drawn if r.trainable]
    every = groups.grouped_rewards
    return {
        "reward": statistics.fmean(groups.everyone),
        "reward/group_std": statistics.fmean(statistics.stdev(rewards) for rewards in every),
        "kl": float(measured.kl.sum(dim=1).mean()),
        "entropy": float(masked_mean(measured.entropy, measured.mask)),
        "score": statistics.fmean(r.known_score for r in trainable),
        "groups/compared": float(len(every)),
        "groups/even": float(sum(map(is_even, every))),
        "groups/alone": float(groups.alone),
        **describe_drawn(drawn),
        **cut_metrics(groups.everyone, [r.ended for r in trainable]),
    }
