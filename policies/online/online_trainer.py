# pyright: basic
"""What trainers of all online methods have: networks, optimizer, schedule, and a few of their ways.

A step draws and scores answers, measures them under the models before the update, and learns from
them by some optimizer steps. Dropout is off throughout.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from torch import Tensor

from ...stores.keys import derive_seed
from ...stores.records import Pair
from ..trainers.job import TrainingError, TrainJob
from ..trainers.next_token import NextTokenLoss
from ..trainers.step_files import StepRows, statistics
from .environment import Environment, ScoredRollout, describe_drawn
from .networks import Networks, computes_exactly
from .sampler import agreement, refuse_stale
from .state import StepOutcome, make_optimizer, make_schedule

IDLE = "idle"
"""How many steps in a row had nothing to learn from, among a method's numbers."""
MOST_IDLE = 3


class OnlineTrainer:
    """A policy, the networks beside it, and the optimizer that moves them.

    `updates` are the optimizer steps that a step plans; `fused` is AdamW's.
    """

    name: ClassVar[str]
    settings: Any
    numbers: dict[str, float]

    def __init__(
        self,
        job: TrainJob,
        environment: Environment,
        networks: Networks,
        accelerator: Accelerator,
        *,
        steps: int,
        updates: int,
        fused: bool | None,
    ) -> None:
        s: Any = job.settings
        self.seed = job.seed
        self.environment = environment
        self.ranks = environment.ranks
        self.accelerator = accelerator
        self.device = accelerator.device
        self.networks = networks
        self.allowed = agreement(float32=computes_exactly(job, self.device))
        self.optimizer = make_optimizer(job, networks, eps=s.adam_eps, fused=fused)
        self.updates = updates
        self.schedule = make_schedule(self.optimizer, s, steps=steps, updates=updates)
        self.numbers = {}
        self.next_token = NextTokenLoss.of(job, environment.chat, accelerator)

    @property
    def temperature(self) -> float:
        """The temperature at which answers are drawn, and at which they are learned."""
        return self.environment.online.sampling.temperature

    def idle(
        self,
        number: int,
        drawn: Sequence[ScoredRollout],
        why: str,
        *,
        metrics: Mapping[str, float] | None = None,
        pairs: Sequence[Pair] | None = None,
    ) -> StepOutcome:
        """Make a step that learns nothing, because too few of its answers have a reward.

        `why` says so; `metrics` and `pairs` are the method's.

        Raises:
            TrainingError: of kind `refused`, after `MOST_IDLE` such steps in a row.
        """
        self.numbers[IDLE] = self.numbers.get(IDLE, 0.0) + 1
        if self.numbers[IDLE] >= MOST_IDLE:
            raise TrainingError(
                "refused",
                f"steps {number - MOST_IDLE + 1} to {number}: {why}, and nothing can be learned; "
                "`unscored` in the steps' statistics counts answers without one, and `status` of "
                "their rewards says why",
            )
        if self.settings.schedule_by == "step":
            self.schedule.step()
        found = {**describe_drawn(drawn), **(metrics or {})}
        candidates, rewards = self.environment.rows(drawn)
        rows = StepRows(
            candidates=candidates,
            rewards=rewards,
            rollouts=[],
            statistics=statistics(self.environment.online.iteration, self.name, number, found),
            pairs=pairs,
        )
        return StepOutcome(rows=rows, metrics=found)

    def refuse_stale(self, rollouts: Sequence[ScoredRollout], whole: Tensor) -> float:
        """Compare the engine's log-probabilities with the policy's own; return the difference.

        `whole` are the policy's, (B,), of whole answers.
        """
        return refuse_stale(
            [r.completion.logprob or 0.0 for r in rollouts],
            whole.tolist(),
            [len(r.spoken.answer) for r in rollouts],
            [r.together for r in rollouts],
            allowed=self.allowed,
        )

    def learn_besides(self, supervised: NextTokenLoss, update: int) -> Tensor:
        """Add the gradients of an update's batch of demonstrations; return its mean loss."""
        with self.networks.policy() as policy:
            learned = supervised.add_gradients(policy, update)
        self.ranks.gather(learned)
        return learned.cpu() / self.ranks.count

    def order(self, number: int, visit: int, count: int) -> Tensor:
        """Return the order in which a pass of a step visits so many things to learn."""
        seed = derive_seed(self.seed, "inner", number, visit)
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
