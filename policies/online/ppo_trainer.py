# pyright: basic
"""Proximal policy optimisation against a reward model (Schulman et al., 2017; AlpacaFarm, App. B).

A step draws and scores rollouts, measures them under policy, reference and value model, computes
advantages from rewards, KL penalty and values, and passes over them `inner_epochs` times. Policy
and value model have one optimizer, and their gradients are clipped together.
"""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ...configs.methods import PPOTraining
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
from .environment import Clock, Environment, ScoredRollout
from .networks import Networks, ValueModel
from .online_trainer import IDLE, OnlineTrainer
from .ppo_rollouts import (
    Experience,
    MeasuredRollouts,
    describe,
    relative,
    rewards_of,
    rollout_rows,
)
from .state import StepOutcome, update_weights

TERMS = ("loss/policy", "kl/update", "clipped/policy", "entropy/update", "loss/value")
TERMS += ("clipped/value",)
"""The metrics that are averaged over the positions of an optimizer step."""


class PPOTrainer(OnlineTrainer):
    """Policy, reference, value model and optimizer, and the step that moves them."""

    name = "ppo"

    def __init__(
        self,
        job: TrainJob,
        environment: Environment,
        networks: Networks,
        accelerator: Accelerator,
        *,
        steps: int,
    ) -> None:
        assert isinstance(job.settings, PPOTraining)  # noqa: S101 -- `trainer_preflight`
        self.settings = s = job.settings
        updates = s.inner_epochs * -(-s.rollouts // s.batch_size)
        super().__init__(
            job, environment, networks, accelerator, steps=steps, updates=updates, fused=True
        )
        self.numbers = {"kl_coef": s.kl_coef}

    def step(self, number: int, clock: Clock) -> StepOutcome:
        """Make one PPO step; `number` counts from 1."""
        drawn = self.environment.rollouts(number, clock)
        rollouts = [r for r in drawn if r.trainable]
        if not rollouts:
            return self.idle(number, drawn, "no answer has a reward")
        self.numbers[IDLE] = 0.0
        with clock.spent_on("logprobs"), torch.no_grad():
            measured = self.measure(rollouts)
            gap = self.refuse_stale(rollouts, measured.whole)
            advantages, returns = self.advantages(measured)
        told = Experience(
            spoken=[r.spoken for r in rollouts],
            measured=measured,
            advantages=advantages,
            returns=returns,
        )
        with clock.spent_on("optimisation"):
            losses = self.optimise(number, told)
        metrics = losses | describe(drawn, measured, advantages, returns)
        metrics |= {"logprob_gap": gap, "kl_coef": self.numbers["kl_coef"]}
        if measured.baseline is not None:
            metrics |= relative(measured.rewards, measured.baseline)
        self.steer(metrics["kl"])
        if self.settings.schedule_by == "step":
            self.schedule.step()
        iteration = self.environment.online.iteration
        candidates, rewards = self.environment.rows(drawn)
        rows = StepRows(
            candidates=candidates,
            rewards=rewards,
            rollouts=rollout_rows(iteration, number, rollouts, measured, advantages),
            statistics=statistics(iteration, self.name, number, metrics),
        )
        return StepOutcome(rows=rows, metrics=metrics)

    def measure(self, rollouts: Sequence[ScoredRollout]) -> MeasuredRollouts:
        """Measure the answers under the policy, the reference and the value model."""
        s, device = self.settings, self.device
        longest = self.environment.online.sampling.max_tokens
        spoken = [r.spoken for r in rollouts]
        width = None if s.mask_padding else longest
        shape = (len(spoken), width or max(len(x.answer) for x in spoken))
        logprobs, reference, values, entropy, whole = torch.zeros(5, *shape, device=device)
        size = MEASURED_TOGETHER * s.micro_batch_size
        every = passes(spoken, range(len(spoken)), size, device, width=width)
        for work, counts in self.ranks.share(every):
            with self.accelerator.autocast():
                with self.networks.policy() as policy:
                    logits = answer_logits(policy, work)
                with self.networks.reference() as frozen:
                    other = answer_logits(frozen, work)
                with self.networks.value() as value:
                    valued = value(work)
            tokens, temperature = work.answers, self.temperature
            found = (
                (chosen_logprobs(logits, tokens, temperature), logprobs),
                (chosen_logprobs(other, tokens, temperature), reference),
                (valued, values),
                (numerics.entropy(logits / temperature), entropy),
                (chosen_logprobs(logits, tokens, 1.0), whole),
            )
            for part, into in found:
                spread(part * counts, into, work)
        self.ranks.gather(logprobs, reference, values, entropy, whole)
        # After an answer's end every model has log-probability 0: no ratio, no KL, no gradient.
        mask = answer_mask(spoken, shape[1], device)
        logprobs, reference = logprobs * mask, reference * mask
        rewards, baseline = rewards_of(rollouts, s, device)
        return MeasuredRollouts(
            mask=mask,
            counted=mask if s.mask_padding else torch.ones_like(mask),
            logprobs=logprobs,
            reference=reference,
            values=values * mask if s.mask_padding else values,
            entropy=entropy,
            whole=(whole.double() * mask).sum(dim=1),
            rewards=rewards,
            baseline=baseline,
            kl=numerics.kl_estimate(logprobs, reference, s.kl_estimator),
        )

    def advantages(self, measured: MeasuredRollouts) -> tuple[Tensor, Tensor]:
        """Return the (whitened) advantages, and the returns that the value model learns."""
        s, counted = self.settings, measured.counted
        rewards = numerics.shaped_rewards(
            measured.rewards, measured.kl, measured.mask, self.numbers["kl_coef"]
        )
        if s.whiten_rewards == "scale":
            size = s.group if s.whiten_rewards_over == "group" else len(rewards)
            rewards = numerics.whiten_groups(rewards, counted, size, shift_mean=False) * counted
        advantages, returns = numerics.advantages(
            rewards, measured.values, gamma=s.gamma, lam=s.lam
        )
        if s.whiten_advantages != "none":
            size = s.group if s.whiten_advantages == "group" else len(advantages)
            advantages = numerics.whiten_groups(advantages, counted, size)
        return advantages * counted, returns * counted

    def optimise(self, number: int, told: Experience) -> dict[str, float]:
        """Pass over the rollouts in batches; return the optimizer steps' mean statistics."""
        s = self.settings
        sums, learned = torch.zeros(len(TERMS) + 1), torch.zeros(())
        batches = [
            batch.tolist()
            for epoch in range(s.inner_epochs)
            for batch in self.order(number, epoch, len(told.spoken)).split(s.batch_size)
        ]
        for update, batch in enumerate(batches, (number - 1) * self.updates + 1):
            terms = self.gradients(batch, told)
            if self.next_token is not None:
                learned += self.learn_besides(self.next_token, update)
            norm = update_weights(self, self.ranks, max_norm=s.max_grad_norm)
            sums += torch.cat([terms.cpu(), norm[None]])
        names = (*TERMS, "grad_norm")
        means: dict[str, float] = dict(zip(names, (sums / len(batches)).tolist(), strict=True))
        loss = means["loss/policy"] + s.vf_coef * means["loss/value"]
        loss -= s.entropy_coef * means["entropy/update"]
        if self.next_token is not None:
            means[METRIC] = float(learned / len(batches))
            loss += self.next_token.weight * means[METRIC]
        return means | {"loss": loss, "learning_rate": self.schedule.get_last_lr()[0]}

    def gradients(self, batch: list[int], told: Experience) -> Tensor:
        """Add up the gradients of a batch of rollouts; return its means of `TERMS`."""
        s, measured = self.settings, told.measured
        width = None if s.mask_padding else measured.mask.shape[1]
        positions = measured.counted[batch].sum()
        sums = torch.zeros(len(TERMS), device=self.device)
        every = passes(told.spoken, batch, s.micro_batch_size, self.device, width=width)
        for work, counts in self.ranks.share(every):
            share = picked(measured.counted, work) * counts / positions
            # Gradients are averaged over the processes, and each has a part of the sum.
            weight = share * self.ranks.count
            with self.networks.policy() as model:
                policy = self.policy_terms(model, work, told)
                ((policy[0] - s.entropy_coef * policy[3]) * weight).sum().backward()
            with self.networks.value() as model:
                value = self.value_terms(model, work, told)
                (s.vf_coef * value[0] * weight).sum().backward()
            sums += (torch.stack([*policy, *value]).detach() * share).sum(dim=(1, 2))
        self.ranks.gather(sums)
        return sums

    def policy_terms(self, model: Any, work: Pass, told: Experience) -> tuple[Tensor, ...]:
        """Return policy loss, KL to the policy before, clipping and entropy by position."""
        s, measured = self.settings, told.measured
        with self.accelerator.autocast():
            logits = answer_logits(model, work)
        logprobs = chosen_logprobs(logits, work.answers, self.temperature)
        logprobs = logprobs * picked(measured.mask, work)
        old, advantage = picked(measured.logprobs, work), picked(told.advantages, work)
        losses = numerics.policy_losses(logprobs, old, advantage, s.clip)
        clipped = ((logprobs - old).exp() - 1).abs() > s.clip
        if s.entropy_coef:
            entropy = numerics.entropy(logits / self.temperature) * picked(measured.mask, work)
        else:
            entropy = torch.zeros_like(losses)
        return losses, numerics.approximate_kl(logprobs, old), clipped.float(), entropy

    def value_terms(self, model: ValueModel, work: Pass, told: Experience) -> tuple[Tensor, ...]:
        """Return value loss and clipping by position."""
        with self.accelerator.autocast():
            values = model(work)
        old, returns = picked(told.measured.values, work), picked(told.returns, work)
        losses = numerics.value_losses(values, old, returns, self.settings.value_clip)
        return losses, ((values - old).abs() > self.settings.value_clip).float()

    def steer(self, kl: float) -> None:
        """Adapt the KL coefficient to its target, if there is one."""
        target = self.settings.adaptive_kl
        if target is not None:
            coefficient = numerics.adapted(self.numbers["kl_coef"], kl, target=target)
            self.numbers["kl_coef"] = coefficient
