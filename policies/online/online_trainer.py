# pyright: basic
"""What trainers of all online methods have: networks, optimizer, schedule, and a few of their ways.

A step draws and scores answers, measures them under the models before the update, and learns from
them by some optimizer steps. Dropout is off throughout.
"""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ...stores.keys import derive_seed
from ..trainers.next_token import NextTokenLoss
from ..trainers.trainer_job import TrainJob
from .environment import Environment, ScoredRollout
from .networks import Networks, computes_exactly
from .sampler import agreement, refuse_stale
from .state import make_optimizer, make_schedule


class OnlineTrainer:
    """A policy, the networks beside it, and the optimizer that moves them.

    `updates` are the optimizer steps that a step plans; `fused` is AdamW's.
    """

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
