# pyright: basic
"""GRPO, RLOO and online DPO: methods that compare the answers to one prompt, without a value model.

A step samples a group of answers to each of its prompts. GRPO and RLOO learn each answer by its
advantage over its group; online DPO learns the best answer of a group against the worst.
"""

import statistics
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...configs.training import (
    GroupTraining,
    GRPOTraining,
    OnlineDPOTraining,
    RLOOTraining,
)
from ...stores.keys import row_id
from ...stores.records import Message, Pair
from ..trainers.sequences import Pass, answer_logits, chosen_logprobs, pick
from ..trainers.step_files import StepRows
from . import numerics
from .environment import ScoredRollout
from .online_trainer import Lesson, Lessons, Measurements, OnlineTrainer, reward_metrics
from .truncation_penalty import apply_rule

RULE = "best_worst"
"""The rule by which online DPO makes a pair of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroups:
    """The measured answers of a step with their rewards after the rule for cut answers.

    A group is the indices of the answers to one prompt.
    """

    measured: Measurements
    rewards: list[float]
    groups: list[list[int]]

    @property
    def rewards_by_group(self) -> list[list[float]]:
        """The rewards of each group."""
        return [[self.rewards[i] for i in group] for group in self.groups]


@dataclass(frozen=True, kw_only=True)
class GroupLessons(Lessons):
    """The lessons of a step's groups; GRPO and RLOO have `advantages` of the answers, (B,)."""

    advantages: Tensor


class GroupTrainer(OnlineTrainer[GroupLessons]):
    """Policy, reference and optimizer, and the step over groups of answers."""

    nothing_to_learn = "no prompt has two answers with a reward to compare"
    estimator: ClassVar[numerics.KLEstimator]
    settings: GroupTraining

    @abstractmethod
    def compare(self, answers: AnswerGroups) -> tuple[list[Lesson], list[float]]:
        """Return the lessons of a step's groups, and the advantages of its answers, if any."""

    @abstractmethod
    def group_loss(
        self, logprobs: Tensor, work: Pass, batch: Sequence[Lesson], learned: GroupLessons
    ) -> tuple[Tensor, ...]:
        """Return a pass's part of a batch's `terms`, of its answers' log-probabilities (b, W)."""

    def groups(self, drawn: Sequence[ScoredRollout]) -> list[list[ScoredRollout]]:
        """Return the trainable answers of each prompt that has at least two."""
        size = self.settings.group
        groups = (drawn[first : first + size] for first in range(0, len(drawn), size))
        trainable = ([r for r in group if r.trainable] for group in groups)
        return [group for group in trainable if len(group) > 1]

    def learnable(self, drawn: Sequence[ScoredRollout]) -> list[ScoredRollout]:
        """Return the answers that can be compared with others to their prompt."""
        return [r for group in self.groups(drawn) for r in group]

    def idle(self, number: int, drawn: Sequence[ScoredRollout]) -> dict[str, float]:
        """Return the metrics of a step without groups to compare."""
        return super().idle(number, drawn) | {"groups/compared": 0.0}

    def advantages(self, measured: Measurements) -> GroupLessons:
        """Return the lessons of the groups.

        The rule for cut answers, and the metrics of rewards, also count the answers without others
        to compare them with.
        """
        s, every = self.settings, [r for r in measured.drawn if r.trainable]
        ended, penalty = [r.ended for r in every], s.missing_eos_penalty
        rewards = apply_rule([r.known_score for r in every], ended, s.missing_eos, penalty)
        reward_of = {r.drawn.candidate_id: reward for r, reward in zip(every, rewards, strict=True)}
        number = count()
        answers = AnswerGroups(
            measured=measured,
            rewards=[reward_of[r.drawn.candidate_id] for r in measured.rollouts],
            groups=[[next(number) for _ in group] for group in self.groups(measured.drawn)],
        )
        by_group = answers.rewards_by_group
        lessons, advantages = self.compare(answers)
        return GroupLessons(
            measured=measured,
            answers=measured.spoken,
            lessons=lessons,
            rewards=answers.rewards,
            columns={"advantage_mean": advantages} if advantages else {},
            metrics={
                **reward_metrics(every, rewards),
                "reward/group_std": statistics.fmean(map(statistics.stdev, by_group)),
                "groups/compared": float(len(by_group)),
                "groups/even": float(sum(map(numerics.is_even, by_group))),
                "groups/alone": float(len(every) - len(measured.rollouts)),
            },
            advantages=torch.tensor(advantages, device=self.device),
        )

    def loss(
        self, policy: Any, work: Pass, batch: Sequence[Lesson], learned: GroupLessons
    ) -> tuple[Tensor, ...]:
        """Return a pass's part of a batch's `terms`."""
        with self.accelerator.autocast():
            logits = answer_logits(policy, work)
        logprobs = chosen_logprobs(logits, work.answers, self.temperature)
        mask = pick(learned.measured.mask, work)
        return self.group_loss(logprobs * mask, work, batch, learned)


def one_by_one(advantages: Iterable[Sequence[float]]) -> tuple[list[Lesson], list[float]]:
    """Return each answer as a lesson, and its advantage; groups stay together."""
    every = [value for group in advantages for value in group]
    return [(i,) for i in range(len(every))], every


class GRPOTrainer(GroupTrainer):
    """Group relative policy optimisation (Shao et al., 2024: DeepSeekMath, Section 4.1).

    Each answer's advantage is its reward's distance from its group's mean, in standard deviations,
    the same at all its tokens; the KL to the reference is a term of the loss.
    """

    name = "grpo"
    estimator = "k3"
    terms = ("loss", "loss/policy", "loss/kl", "kl/update", "clipped/policy")
    settings: GRPOTraining

    def compare(self, answers: AnswerGroups) -> tuple[list[Lesson], list[float]]:
        """Return every answer with its advantage."""
        scaled = self.settings.scale == "group"
        groups = answers.rewards_by_group
        return one_by_one(numerics.relative_advantages(group, scaled=scaled) for group in groups)

    def group_loss(
        self, logprobs: Tensor, work: Pass, batch: Sequence[Lesson], learned: GroupLessons
    ) -> tuple[Tensor, ...]:
        """Return the terms of Eq. 3, negated: the clipped surrogate, and beta times k3 (Eq. 4)."""
        s, measured = self.settings, learned.measured
        mask, old = pick(measured.mask, work), pick(measured.logprobs, work)
        advantage = learned.advantages[work.rows, None]
        high = s.clip if s.clip_high is None else s.clip_high
        tokens = self.positions(batch, learned.answers)
        longest = self.environment.online.sampling.max_tokens
        weights = numerics.position_weights(
            mask, s.loss, answers=len(batch), tokens=tokens, longest=longest
        )
        surrogate = numerics.policy_losses(logprobs, old, advantage, s.clip, high)
        kl = numerics.kl_estimate(logprobs, pick(measured.reference, work), "k3")
        policy, held = (surrogate * weights).sum(), s.kl_coef * (kl * weights).sum()
        cut = numerics.cut_share((logprobs - old).exp(), advantage, s.clip, high)
        by_token = mask / tokens
        moved = (numerics.approximate_kl(logprobs, old) * by_token).sum()
        return policy + held, policy, held, moved, (cut * by_token).sum()


class RLOOTrainer(GroupTrainer):
    """REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024).

    A whole answer is one action: its reward has the KL to the reference taken off, and the mean of
    the other answers to its prompt is its baseline. The first update of a step is plain REINFORCE;
    later ones weigh an answer by the ratio of its probabilities, clipped as PPO's.
    """

    name = "rloo"
    estimator = "k1"
    terms = ("loss", "kl/update", "clipped/policy")
    settings: RLOOTraining

    def compare(self, answers: AnswerGroups) -> tuple[list[Lesson], list[float]]:
        """Return every answer with its advantage: of r(x, y) - beta log(π/π_ref), summed."""
        penalties = (self.settings.kl_coef * answers.measured.kl.sum(dim=1)).tolist()
        shaped = [r - penalty for r, penalty in zip(answers.rewards, penalties, strict=True)]
        by_group = replace(answers, rewards=shaped).rewards_by_group
        return one_by_one(map(numerics.leave_one_out, by_group))

    def group_loss(
        self, logprobs: Tensor, work: Pass, batch: Sequence[Lesson], learned: GroupLessons
    ) -> tuple[Tensor, ...]:
        """Return the mean over answers of the clipped surrogate of their whole probabilities."""
        clip, answers = self.settings.clip, len(batch)
        old = pick(learned.measured.logprobs, work)
        whole, before = logprobs.sum(dim=1), old.sum(dim=1)
        advantage = learned.advantages[work.rows]
        losses = numerics.policy_losses(whole, before, advantage, clip)
        moved = numerics.approximate_kl(logprobs, old).sum()
        cut = numerics.cut_share((whole - before).exp(), advantage, clip, clip)
        tokens = self.positions(batch, learned.answers)
        return losses.sum() / answers, moved / tokens, cut.sum() / answers


class OnlineDPOTrainer(GroupTrainer):
    """DPO on pairs of the policy's own answers, sampled while it trains (Guo et al., 2024).

    The answer with the highest reward of each group is chosen, the one with the lowest rejected.
    A group whose answers all have the same reward gives no pair.
    """

    name = "online_dpo"
    estimator = "k1"
    terms = (
        *("loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
        *("logps/chosen", "logps/rejected"),
    )
    settings: OnlineDPOTraining

    @classmethod
    def planned_updates(cls, settings: OnlineDPOTraining) -> int:
        """Return how many optimizer steps a step makes at most: it has one pair a group."""
        return settings.inner_epochs * -(-settings.prompts_per_step // settings.batch_size)

    def compare(self, answers: AnswerGroups) -> tuple[list[Lesson], list[float]]:
        """Return a pair of each group that is not even, and no advantages."""
        pairs: list[Lesson] = []
        for group, rewards in zip(answers.groups, answers.rewards_by_group, strict=True):
            found = numerics.best_and_worst(rewards)
            if found is not None:
                pairs.append((group[found[0]], group[found[1]]))
        return pairs, []

    def group_loss(
        self, logprobs: Tensor, work: Pass, batch: Sequence[Lesson], learned: GroupLessons
    ) -> tuple[Tensor, ...]:
        """Return the mean over pairs of DPO's loss, and of TRL's numbers about it."""
        row_of = {place: row for row, place in enumerate(work.rows)}
        pairs = [lesson for lesson in batch if lesson[0] in row_of]
        rows = torch.tensor([row_of[lesson[side]] for side in (0, 1) for lesson in pairs])
        whole = logprobs.sum(dim=1)[rows]
        reference = pick(learned.measured.reference, work).sum(dim=1)[rows]
        chosen, rejected = numerics.dpo_margins(whole, reference, self.settings.beta)
        parts = (
            numerics.dpo_losses(chosen, rejected),
            *(chosen, rejected, chosen - rejected, (chosen > rejected).float()),
            *whole.chunk(2),
        )
        return tuple(part.sum() / len(batch) for part in parts)

    def rows(
        self,
        number: int,
        drawn: Sequence[ScoredRollout],
        metrics: Mapping[str, float],
        learned: GroupLessons | None,
    ) -> StepRows:
        """Return the rows of a step, its pairs among them."""
        rows = super().rows(number, drawn, metrics, learned)
        if learned is None:
            return replace(rows, pairs=[])
        rollouts, iteration = learned.measured.rollouts, self.environment.online.iteration
        pairs = [
            pair_row(iteration, rank, [(rollouts[i], learned.rewards[i]) for i in pair])
            for rank, pair in enumerate(learned.lessons)
        ]
        return replace(rows, pairs=pairs)


def pair_row(iteration: int, rank: int, pair: Sequence[tuple[ScoredRollout, float]]) -> Pair:
    """Return the row of a chosen and a rejected answer with their rewards."""
    (chosen, chosen_reward), (rejected, rejected_reward) = pair
    ids = (chosen.drawn.candidate_id, rejected.drawn.candidate_id)
    return Pair(
        pair_id=row_id("pair", [*ids, RULE, iteration]),
        prompt_id=chosen.drawn.prompt.prompt_id,
        iteration=iteration,
        chosen_id=ids[0],
        rejected_id=ids[1],
        rule=RULE,
        rank=rank,
        chosen_ratings=(),
        rejected_ratings=(),
        chosen_reward=chosen_reward,
        rejected_reward=rejected_reward,
        prompt=chosen.drawn.prompt.messages,
        chosen=(Message(role="assistant", content=chosen.completion.text),),
        rejected=(Message(role="assistant", content=rejected.completion.text),),
        chosen_cut=None if chosen.ended else True,
        rejected_cut=None if rejected.ended else True,
    )
