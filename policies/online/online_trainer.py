# pyright: basic
"""The step that all online methods share: sample, score, measure, learn, and write rows.

A step samples and scores answers, measures them under the models before the update, and learns from
them in some optimizer steps. A method defines its lessons (`advantages`), its `loss`, and further
columns of its `rows`. Dropout is off throughout.
"""

import statistics
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ...configs.training import OnlineSettings
from ...stores.keys import derive_seed
from ...stores.records import Rollout
from ..trainers.base_trainer import warm_up
from ..trainers.job import MEASURED_TOGETHER, TrainingError, TrainJob
from ..trainers.next_token import METRIC, NextTokenLoss
from ..trainers.sequences import (
    Pass,
    Spoken,
    answer_logits,
    answer_mask,
    chosen_logprobs,
    pad_rollouts,
    passes,
    spread,
)
from ..trainers.step_files import StepRows
from ..trainers.step_files import statistics as statistic_rows
from . import numerics
from .environment import Clock, Environment, ScoredRollout, describe
from .networks import Networks, agreement
from .sampler import refuse_stale
from .truncation_penalty import cut_metrics

IDLE = "idle"
"""The name, among a trainer's numbers, of the count of steps in a row without lessons."""
MOST_IDLE = 3

OWN_COLUMNS = ("value", "advantage_mean", "advantage_std", "quantile")
"""The columns of a rollout's row that only some methods fill."""

StepOutcome = tuple[StepRows, Mapping[str, float]]
"""A step's rows and metrics."""

Lesson = tuple[int, ...]
"""The indices of the answers that are learned together: one, or a pair, the better one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """A step's answers before the update: of all `drawn`, the B learnable `rollouts`.

    The tensors are (B, T), by position, and (B,) for `whole`, in nats. Log-probabilities are at the
    sampling temperature, and 0 after an answer's end: no ratio, no KL, no gradient. `kl` is the KL
    to the reference at each token. `whole` sums the unscaled log-probabilities of an answer's
    tokens, as engines report them. `values` are the value model's, at padding, too.
    """

    number: int
    drawn: Sequence[ScoredRollout]
    rollouts: Sequence[ScoredRollout]
    mask: Tensor
    logprobs: Tensor
    reference: Tensor
    entropy: Tensor
    kl: Tensor
    whole: Tensor
    values: Tensor | None

    @property
    def spoken(self) -> list[Spoken]:
        """The tokens of the rollouts."""
        return [r.spoken for r in self.rollouts]


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """The lessons of a step, with their rows and metrics.

    A lesson's indices refer to `answers`. `rewards` are the measured rollouts' rewards, after the
    rule for cut answers; `columns` are more of the columns of their rows.
    """

    measured: Measurements
    answers: list[Spoken]
    lessons: list[Lesson]
    rewards: list[float]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


Learned = TypeVar("Learned", bound=Lessons)


class OnlineTrainer(ABC, Generic[Learned]):
    """A policy, its other networks, and the optimizer that moves them.

    `terms` names the numbers of an optimizer step that are averaged over a step: the first is the
    loss itself. `estimator` names the estimate of the KL to the reference; None: exact. `numbers`
    holds all that a later step depends on, except networks, optimizer and schedule.
    """

    name: ClassVar[str]
    terms: ClassVar[tuple[str, ...]]
    nothing_to_learn: ClassVar[str] = "no answer has a reward"
    valued: ClassVar[bool] = False
    estimator: numerics.KLEstimator | None

    def __init__(
        self,
        job: TrainJob,
        environment: Environment,
        networks: Networks,
        accelerator: Accelerator,
        *,
        steps: int,
    ) -> None:
        self.settings: Any = job.settings
        self.seed = job.seed
        self.environment = environment
        self.ranks = environment.ranks
        self.accelerator = accelerator
        self.device = accelerator.device
        self.networks = networks
        self.allowed = agreement(job, self.device)
        self.optimizer = make_optimizer(job, networks)
        self.updates = self.planned_updates(self.settings)
        self.schedule = make_schedule(
            self.optimizer, self.settings, steps=steps, updates=self.updates
        )
        self.numbers: dict[str, float] = {}
        self.next_token = NextTokenLoss.of(job, environment.chat, accelerator)

    @property
    def temperature(self) -> float:
        """The temperature at which answers are sampled, and at which they are learned."""
        return self.environment.online.sampling.temperature

    # Overridden by the methods

    @classmethod
    def planned_updates(cls, settings: Any) -> int:
        """Return how many optimizer steps a step makes at most."""
        return settings.inner_epochs * -(-settings.rollouts // settings.batch_size)

    def learnable(self, drawn: Sequence[ScoredRollout]) -> list[ScoredRollout]:
        """Return the rollouts that the method can learn from."""
        return [r for r in drawn if r.trainable]

    @abstractmethod
    def advantages(self, measured: Measurements) -> Learned:
        """Return the lessons of a step's answers."""

    def batches(self, number: int, learned: Learned) -> list[list[Lesson]]:
        """Return the lessons of each optimizer step: `inner_epochs` passes, each in a new order."""
        s, lessons = self.settings, learned.lessons
        return [
            [lessons[place] for place in batch.tolist()]
            for epoch in range(s.inner_epochs)
            for batch in self.order(number, epoch, len(lessons)).split(s.batch_size)
            if len(batch)
        ]

    @abstractmethod
    def loss(
        self, policy: Any, work: Pass, batch: Sequence[Lesson], learned: Learned
    ) -> tuple[Tensor, ...]:
        """Return a pass's part of a batch's loss, and of its other `terms`, each a scalar."""

    def rows(
        self,
        number: int,
        drawn: Sequence[ScoredRollout],
        metrics: Mapping[str, float],
        learned: Learned | None,
    ) -> StepRows:
        """Return the rows of a step; `learned` is None if it learned nothing."""
        candidates, rewards = self.environment.rows(drawn)
        iteration = self.environment.online.iteration
        return StepRows(
            candidates=candidates,
            rewards=rewards,
            rollouts=rollout_rows(iteration, learned) if learned else [],
            statistics=statistic_rows(iteration, self.name, number, metrics),
        )

    # The step

    def step(self, number: int, clock: Clock) -> StepOutcome:
        """Make one step, and return its rows and its metrics; `number` counts from 1.

        Raises:
            TrainingError: of kind `refused`, after `MOST_IDLE` steps in a row that learned nothing.
        """
        drawn, learned = self.environment.rollouts(number, clock), None
        if rollouts := self.learnable(drawn):
            self.numbers[IDLE] = 0.0
            with clock.measure("logprobs"), torch.no_grad():
                measured = self.measure(number, drawn, rollouts)
                gap = self.refuse_stale(measured)
                learned = self.advantages(measured)
            with clock.measure("optimisation"):
                losses = self.optimise(number, learned)
            metrics = {
                **losses,
                **describe(drawn),
                "score": statistics.fmean(r.score for r in drawn if r.score is not None),
                "kl": float(measured.kl.sum(dim=1).mean()),
                "entropy": float(numerics.masked_mean(measured.entropy, measured.mask)),
                **learned.metrics,
                "logprob_gap": gap,
            }
        else:
            metrics = self.idle(number, drawn)
        return self.outcome(number, drawn, metrics, learned)

    def outcome(
        self,
        number: int,
        drawn: Sequence[ScoredRollout] = (),
        metrics: Mapping[str, float] = MappingProxyType({}),
        learned: Learned | None = None,
    ) -> StepOutcome:
        """Return a step's result; for a step without prompts, only the count of those left out."""
        metrics = {**metrics, **self.environment.left_out}
        return self.rows(number, drawn, metrics, learned), metrics

    def idle(self, number: int, drawn: Sequence[ScoredRollout]) -> dict[str, float]:
        """Return the metrics of a step that learns nothing, because too few answers have a reward.

        Raises:
            TrainingError: of kind `refused`, after `MOST_IDLE` such steps in a row.
        """
        self.numbers[IDLE] = self.numbers.get(IDLE, 0.0) + 1
        if self.numbers[IDLE] >= MOST_IDLE:
            raise TrainingError(
                "refused",
                f"steps {number - MOST_IDLE + 1} to {number}: {self.nothing_to_learn}, and nothing "
                "can be learned; `unscored` in the steps' statistics counts answers without one, "
                "and `status` of their rewards says why",
            )
        return describe(drawn)

    # Measuring

    def measure(
        self, number: int, drawn: Sequence[ScoredRollout], rollouts: Sequence[ScoredRollout]
    ) -> Measurements:
        """Measure answers under policy, reference and, if there is one, value model."""
        spoken = [r.spoken for r in rollouts]
        # Only values count after an answer's end.
        shape = (len(spoken), max(len(x.answer) for x in spoken))
        found = defaultdict[str, Tensor](lambda: torch.zeros(shape, device=self.device))
        size = MEASURED_TOGETHER * self.settings.micro_batch_size
        every = passes(spoken, range(len(spoken)), size, self.device)
        for work, counts in self.ranks.share(every):
            for name, values in self.measure_pass(work).items():
                spread(values * counts, found[name], work)
        self.ranks.sum(*found.values())
        mask = answer_mask(spoken, shape[1], self.device)
        logprobs, reference = found["logprobs"] * mask, found["reference"] * mask
        if self.estimator is None:
            kl = found["kl"] * mask
        else:
            kl = numerics.kl_estimate(logprobs, reference, self.estimator)
        return Measurements(
            number=number,
            drawn=drawn,
            rollouts=rollouts,
            mask=mask,
            logprobs=logprobs,
            reference=reference,
            entropy=found["entropy"],
            kl=kl,
            whole=(found["whole"].double() * mask).sum(dim=1),
            values=found["values"] if self.valued else None,
        )

    def measure_pass(self, work: Pass) -> dict[str, Tensor]:
        """Return a pass's measurements by name, (b, W) each."""
        with self.accelerator.autocast():
            with self.networks.policy() as policy:
                logits = answer_logits(policy, work)
            with self.networks.reference() as frozen:
                other = answer_logits(frozen, work)
        temperature = self.temperature
        found = {
            "logprobs": chosen_logprobs(logits, work.answers, temperature),
            "reference": chosen_logprobs(other, work.answers, temperature),
            "entropy": numerics.entropy(logits / temperature),
            "whole": chosen_logprobs(logits, work.answers, 1.0),
        }
        if self.estimator is None:
            found["kl"] = numerics.exact_kl(logits / temperature, other / temperature)
        return found

    def refuse_stale(self, measured: Measurements) -> float:
        """Compare the engine's log-probabilities with the policy's own; return the difference."""
        rollouts = measured.rollouts
        return refuse_stale(
            [r.completion.logprob or 0.0 for r in rollouts],
            measured.whole.tolist(),
            [len(r.spoken.answer) for r in rollouts],
            [r.batch for r in rollouts],
            allowed=self.allowed,
        )

    # Learning

    def optimise(self, number: int, learned: Learned) -> dict[str, float]:
        """Make a step's optimizer steps; return their mean numbers.

        Without lessons it makes none, and returns only the learning rate.
        """
        sums, supervised = torch.zeros(len(self.terms) + 1), torch.zeros(())
        batches = self.batches(number, learned)
        for update, batch in enumerate(batches, (number - 1) * self.updates + 1):
            terms = self.add_gradients(batch, learned)
            if self.next_token is not None:
                supervised += self._add_supervised(self.next_token, update)
            norm = self.update_weights()
            sums += torch.cat([terms.cpu(), norm[None]])
        means: dict[str, float] = {}
        if batches:
            names = (*self.terms, "grad_norm")
            means |= zip(names, (sums / len(batches)).tolist(), strict=True)
            if self.next_token is not None:
                means[METRIC] = float(supervised / len(batches))
                means["loss"] += self.next_token.weight * means[METRIC]
        return means | {"learning_rate": float(self.schedule.get_last_lr()[0])}

    def order(self, number: int, visit: int, count: int) -> Tensor:
        """Return the order in which a pass of a step visits `count` lessons."""
        seed = derive_seed(self.seed, "inner", number, visit)
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    def add_gradients(self, batch: Sequence[Lesson], learned: Learned) -> Tensor:
        """Add up the gradients of a batch of lessons; return its `terms`."""
        sums = torch.zeros(len(self.terms), device=self.device)
        for work, counts in self.ranks.share(self.passes(batch, learned.answers)):
            # Gradients are averaged over the processes, and each has a part of the sum.
            scale = float(counts * self.ranks.count)
            sums += self.backward(work, scale, batch, learned) * counts
        self.ranks.sum(sums)
        return sums

    def passes(self, batch: Sequence[Lesson], answers: Sequence[Spoken]) -> list[Pass]:
        """Return the passes over a batch: whole lessons each, similar lengths together."""

        def length(lesson: Lesson) -> tuple[int, int, int]:
            return max((len(answers[i].answer), len(answers[i].prompt), i) for i in lesson)

        ordered, size = sorted(batch, key=length), self.settings.micro_batch_size
        parts = (ordered[first : first + size] for first in range(0, len(ordered), size))
        rows = ([place for lesson in part for place in lesson] for part in parts)
        return [pad_rollouts(answers, each, self.device) for each in rows]

    def positions(self, batch: Sequence[Lesson], answers: Sequence[Spoken]) -> float:
        """Return how many positions of a batch's answers count."""
        return float(sum(len(answers[i].answer) for lesson in batch for i in lesson))

    def backward(
        self, work: Pass, scale: float, batch: Sequence[Lesson], learned: Learned
    ) -> Tensor:
        """Add a pass's gradients times `scale`; return its part of the batch's `terms`."""
        with self.networks.policy() as policy:
            loss, *others = self.loss(policy, work, batch, learned)
            (loss * scale).backward()
        return torch.stack([loss, *others]).detach()

    def _add_supervised(self, supervised: NextTokenLoss, update: int) -> Tensor:
        """Add the gradients of an update's batch of demonstrations; return its mean loss."""
        with self.networks.policy() as policy:
            loss = supervised.add_gradients(policy, update)
        self.ranks.sum(loss)
        return loss.cpu() / self.ranks.count

    def update_weights(self) -> Tensor:
        """Make an optimizer step of the gradients of all processes; return their unclipped norm."""
        weights = list(self.networks.trained.parameters())
        if not self.networks.is_sharded:
            self.ranks.average_gradients(weights)
        norm: Any = nn.utils.clip_grad_norm_(weights, self.settings.max_grad_norm)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return norm.cpu()


def rollout_rows(iteration: int, learned: Lessons) -> list[Rollout]:
    """Return a row for each measured rollout; KL and log-probabilities are sums over its tokens."""
    measured = learned.measured
    columns = (measured.kl, measured.logprobs, measured.reference)
    sums = torch.stack([column.sum(dim=1) for column in columns], dim=1).tolist()
    return [
        Rollout(
            candidate_id=rollout.drawn.candidate_id,
            prompt_id=rollout.drawn.prompt.prompt_id,
            iteration=iteration,
            step=measured.number,
            reward=learned.rewards[i],
            kl=kl,
            logprob=logprob,
            reference_logprob=reference,
            tokens=len(rollout.spoken.answer),
            **{
                name: learned.columns[name][i] if name in learned.columns else None
                for name in OWN_COLUMNS
            },
        )
        for i, (rollout, (kl, logprob, reference)) in enumerate(
            zip(measured.rollouts, sums, strict=True)
        )
    ]


def reward_metrics(
    rollouts: Sequence[ScoredRollout],
    rewards: Sequence[float],
    baseline: Sequence[float] | None = None,
) -> dict[str, float]:
    """Return the metrics of rollouts' rewards after the rule for cut answers.

    Rewards with a `baseline` are already relative to it.
    """
    found = {
        "reward": statistics.fmean(rewards),
        **cut_metrics(rewards, [r.ended for r in rollouts]),
    }
    if baseline is None:
        return found
    return found | {
        "reward/raw": statistics.fmean(map(sum, zip(rewards, baseline, strict=True))),
        "reward/reference": statistics.fmean(baseline),
        "reward/std": statistics.pstdev(rewards),
    }


def make_optimizer(job: TrainJob, networks: Networks) -> Optimizer:
    """Return AdamW over the trained weights."""
    weights = list(networks.trained.parameters())
    s: Any = job.settings
    rate, eps = s.learning_rate, s.adam_eps
    if job.fit.optimizer == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]

        return AdamW8bit(weights, lr=rate, eps=eps, weight_decay=0.0)
    return AdamW(weights, lr=rate, eps=eps, weight_decay=0.0, fused=True)


def make_schedule(
    optimizer: Optimizer, settings: OnlineSettings, *, steps: int, updates: int
) -> LambdaLR:
    """Return the learning rate of `steps` steps, each of `updates` optimizer steps.

    It is counted by optimizer steps, with the first already above 0.
    """
    warmup, last = settings.warmup_steps, steps * updates

    def later(done: int) -> float:
        falling = max(0.0, (last - done) / max(1, last - warmup))
        return falling if settings.scheduler == "linear" else 1.0

    return LambdaLR(optimizer, warm_up(warmup, later))
