# pyright: basic
"""What GRPO, RLOO and online DPO share: a step over groups of answers, without a value model.

A step draws a group of answers to each of its prompts, measures them under policy and reference,
and learns *lessons*: one answer by its advantage, or two of them as a pair. A method says what its
lessons are, and what the loss of one is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from torch import Tensor

from ...configs.group_methods import GroupTraining
from ..trainers.job import MEASURED_TOGETHER, TrainJob
from ..trainers.next_token import METRIC
from ..trainers.sequences import (
    Pass,
    answer_logits,
    answer_mask,
    chosen_logprobs,
    passes,
    picked,
    spread,
)
from ..trainers.step_files import StepRows, statistics
from . import numerics
from .environment import Clock, Environment
from .groups import (
    AnswerGroups,
    GroupMeasurements,
    describe,
    grouped,
    pair_rows,
    rollout_rows,
)
from .networks import Networks
from .online_trainer import IDLE, OnlineTrainer
from .state import StepOutcome, update_weights

Lesson = tuple[int, ...]
"""The places of the answers that are learned together: one, or a pair, the better one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLessons:
    """What a step learns: its lessons; for methods that have them, the answers' advantages."""

    measured: GroupMeasurements
    lessons: list[Lesson]
    advantages: list[float] | None = None

    @classmethod
    def one_by_one(cls, measured: GroupMeasurements, advantages: list[float]) -> "GroupLessons":
        """Return each answer as a lesson of its own, with its advantage."""
        every: list[Lesson] = [(place,) for place in range(len(advantages))]
        return cls(measured=measured, lessons=every, advantages=advantages)

    def advantages_of(self, work: Pass) -> Tensor:
        """Return the advantages of a pass's answers, (b,)."""
        assert self.advantages is not None  # noqa: S101 -- a method that has them asks
        found = [self.advantages[place] for place in work.rows]
        return torch.tensor(found, device=work.ids.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonBatch:
    """The lessons of an optimizer step, and the tokens of their answers."""

    lessons: Sequence[Lesson]
    tokens: float

    @classmethod
    def of(cls, lessons: Sequence[Lesson], measured: GroupMeasurements) -> "LessonBatch":
        """Return the batch of some lessons."""
        tokens = sum(len(measured.spoken[place].answer) for x in lessons for place in x)
        return cls(lessons=lessons, tokens=float(tokens))


class GroupTrainer(OnlineTrainer, ABC):
    """Policy, reference and optimizer, and the step that moves them.

    `terms` names the numbers that a method's loss gives: the first is the loss itself.
    """

    name: ClassVar[str]
    estimator: ClassVar[numerics.KLEstimator]
    terms: ClassVar[tuple[str, ...]]
    learns_pairs: ClassVar[bool] = False
    settings: Any

    def __init__(
        self,
        job: TrainJob,
        environment: Environment,
        networks: Networks,
        accelerator: Accelerator,
        *,
        steps: int,
    ) -> None:
        assert isinstance(job.settings, GroupTraining)  # noqa: S101 -- `trainer_preflight`
        self.settings = s = job.settings
        updates = s.inner_epochs * -(-self.most_lessons(s) // s.batch_size)
        super().__init__(
            job, environment, networks, accelerator, steps=steps, updates=updates, fused=True
        )

    @staticmethod
    def most_lessons(settings: GroupTraining) -> int:
        """Return how many lessons a step has at most."""
        return settings.rollouts

    @abstractmethod
    def lessons(self, groups: AnswerGroups, measured: GroupMeasurements) -> GroupLessons:
        """Return what a step's answers teach."""

    @abstractmethod
    def loss(self, logprobs: Tensor, work: Pass, told: GroupLessons, batch: LessonBatch) -> Tensor:
        """Return a pass's part of the batch's `terms`, of the policy's log-probabilities (b, W)."""

    def step(self, number: int, clock: Clock) -> StepOutcome:
        """Make one step; `number` counts from 1."""
        drawn = self.environment.rollouts(number, clock)
        groups = grouped(drawn, self.settings)
        if not groups.groups:
            return self.idle(
                number,
                drawn,
                "no prompt has two answers with a reward to compare",
                metrics={"groups/compared": 0.0},
                pairs=[] if self.learns_pairs else None,
            )
        self.numbers[IDLE] = 0.0
        with clock.spent_on("logprobs"), torch.no_grad():
            measured = self.measure(groups)
            gap = self.refuse_stale(groups.rollouts, measured.whole)
        told = self.lessons(groups, measured)
        with clock.spent_on("optimisation"):
            losses = self.optimise(number, told)
        if self.settings.schedule_by == "step":
            self.schedule.step()
        metrics = losses | describe(drawn, groups, measured) | {"logprob_gap": gap}
        iteration = self.environment.online.iteration
        candidates, rewards = self.environment.rows(drawn)
        rows = StepRows(
            candidates=candidates,
            rewards=rewards,
            rollouts=rollout_rows(iteration, number, groups, measured, told.advantages),
            statistics=statistics(iteration, self.name, number, metrics),
            pairs=pair_rows(iteration, groups, told.lessons) if self.learns_pairs else None,
        )
        return StepOutcome(rows=rows, metrics=metrics)

    def measure(self, groups: AnswerGroups) -> GroupMeasurements:
        """Measure the answers under the policy and the reference."""
        spoken = [r.spoken for r in groups.rollouts]
        shape = (len(spoken), max(len(x.answer) for x in spoken))
        logprobs, reference, entropy, whole = torch.zeros(4, *shape, device=self.device)
        size = MEASURED_TOGETHER * self.settings.micro_batch_size
        every = passes(spoken, range(len(spoken)), size, self.device)
        for work, counts in self.ranks.share(every):
            with self.accelerator.autocast():
                with self.networks.policy() as policy:
                    logits = answer_logits(policy, work)
                with self.networks.reference() as frozen:
                    other = answer_logits(frozen, work)
            found = (
                (chosen_logprobs(logits, work.answers, self.temperature), logprobs),
                (chosen_logprobs(other, work.answers, self.temperature), reference),
                (numerics.entropy(logits / self.temperature), entropy),
                (chosen_logprobs(logits, work.answers, 1.0), whole),
            )
            for part, into in found:
                spread(part * counts, into, work)
        self.ranks.gather(logprobs, reference, entropy, whole)
        # After an answer's end every model has log-probability 0: no ratio, no KL, no gradient.
        mask = answer_mask(spoken, shape[1], self.device)
        logprobs, reference = logprobs * mask, reference * mask
        return GroupMeasurements(
            spoken=spoken,
            mask=mask,
            logprobs=logprobs,
            reference=reference,
            entropy=entropy,
            kl=numerics.kl_estimate(logprobs, reference, self.estimator),
            whole=(whole.double() * mask).sum(dim=1),
        )

    def optimise(self, number: int, told: GroupLessons) -> dict[str, float]:
        """Pass over the lessons in batches; return the optimizer steps' mean statistics.

        Where no group taught anything there was no step, and the learning rate is all there is.
        """
        s = self.settings
        sums, besides = torch.zeros(len(self.terms) + 1), torch.zeros(())
        batches = [
            LessonBatch.of([told.lessons[place] for place in part.tolist()], told.measured)
            for epoch in range(s.inner_epochs)
            for part in self.order(number, epoch, len(told.lessons)).split(s.batch_size)
            if len(part)
        ]
        for update, batch in enumerate(batches, (number - 1) * self.updates + 1):
            terms = self.gradients(batch, told)
            if self.next_token is not None:
                besides += self.learn_besides(self.next_token, update)
            norm = update_weights(self, self.ranks, max_norm=s.max_grad_norm)
            sums += torch.cat([terms.cpu(), norm[None]])
        rate = {"learning_rate": float(self.schedule.get_last_lr()[0])}
        if not batches:
            return rate
        made, names = len(batches), (*self.terms, "grad_norm")
        means: dict[str, float] = dict(zip(names, (sums / made).tolist(), strict=True))
        if self.next_token is not None:
            means[METRIC] = float(besides / made)
            means["loss"] += self.next_token.weight * means[METRIC]
        return means | rate

    def gradients(self, batch: LessonBatch, told: GroupLessons) -> Tensor:
        """Add up the gradients of a batch of lessons; return its `terms`."""
        sums = torch.zeros(len(self.terms), device=self.device)
        every = list(self.passes(batch, told.measured))
        for work, counts in self.ranks.share(every):
            with self.networks.policy() as policy:
                with self.accelerator.autocast():
                    logits = answer_logits(policy, work)
                logprobs = chosen_logprobs(logits, work.answers, self.temperature)
                terms = self.loss(logprobs * picked(told.measured.mask, work), work, told, batch)
                # Gradients are averaged over the processes, and each has a part of the sum.
                (terms[0] * (counts * self.ranks.count)).backward()
            sums += terms.detach() * counts
        self.ranks.gather(sums)
        return sums

    def passes(self, batch: LessonBatch, measured: GroupMeasurements) -> Iterator[Pass]:
        """Yield the passes over a batch: whole lessons each, similar lengths together."""
        spoken, size = measured.spoken, self.settings.micro_batch_size

        def length(lesson: Lesson) -> tuple[int, Lesson]:
            return max(len(spoken[place].answer) for place in lesson), lesson

        ordered = sorted(batch.lessons, key=length)
        for first in range(0, len(ordered), size):
            rows = [place for lesson in ordered[first : first + size] for place in lesson]
            yield from passes(spoken, rows, len(rows), self.device)
