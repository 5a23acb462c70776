# pyright: basic
"""Quark: fine-tuning on the best of one's own samples (Lu et al., 2022; AlpacaFarm, App. B).

A step draws and scores samples, sorts them into quantiles by reward, and learns the best quantile
by likelihood, held to the reference by an exact KL. With all quantiles each sample is learned after
its quantile's token, and from the second step on samples are drawn after that of the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ...configs.methods import QuarkTraining
from ..engines.chat import conditioned
from ..trainers.job import MEASURED_TOGETHER, TrainingError, TrainJob
from ..trainers.next_token import METRIC
from ..trainers.sequences import Pass, Spoken, answer_logits, chosen_logprobs, passes
from ..trainers.step_files import StepRows, statistics
from .environment import Clock, Environment, ScoredRollout
from .missing_end import ruled
from .networks import Networks
from .numerics import entropy
from .online_trainer import IDLE, OnlineTrainer
from .ppo_rollouts import relative
from .quantiles import Pool, Sample, quantile_token, quantiles_of, sorted_apart
from .quark_batches import batches, planned_updates
from .quark_numerics import Terms, exact_kl, terms
from .quark_rollouts import MeasuredSamples, described, rollout_rows, sample_of
from .state import StepOutcome, update_weights

TERMS = ("loss", "loss/nll", "kl/update", "entropy/update")
"""The metrics that are averaged over the positions of an optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarkLesson:
    """A sample to learn: its tokens as the policy sees them, and as the reference does."""

    own: Spoken
    plain: Spoken


class QuarkTrainer(OnlineTrainer):
    """Policy, reference and optimizer, and the step that moves them."""

    name = "quark"

    def __init__(
        self,
        job: TrainJob,
        environment: Environment,
        networks: Networks,
        accelerator: Accelerator,
        *,
        steps: int,
    ) -> None:
        assert isinstance(job.settings, QuarkTraining)  # noqa: S101 -- `trainer_preflight`
        self.settings = s = job.settings
        super().__init__(
            job,
            environment,
            networks,
            accelerator,
            steps=steps,
            updates=planned_updates(s),
            fused=None,
        )
        self.pool = Pool(job.output, growing=s.pool == "growing")
        self.messages = {asked.prompt_id: asked.messages for asked in environment.asked}
        known = environment.chat.tokenizer.get_vocab()
        tokens = (quantile_token(quantile) for quantile in range(s.quantiles))
        self.unsaid = sorted(known[token] for token in tokens if token in known)
        with networks.reference() as reference:
            shared = reference.get_input_embeddings().num_embeddings
        self.vocabulary = min([shared, *self.unsaid])

    def step(self, number: int, clock: Clock) -> StepOutcome:
        """Make one step; `number` counts from 1."""
        s = self.settings
        # In the first step the tokens have no meaning yet.
        control = self.control(0) if number > 1 else ""
        drawn = self.environment.rollouts(number, clock, control=control, unsaid=self.unsaid)
        rollouts = [r for r in drawn if r.trainable]
        if not rollouts:
            self.pool.after(number, [])
            return self.idle(number, drawn, "no answer has a reward")
        self.numbers[IDLE] = 0.0
        with clock.spent_on("logprobs"), torch.no_grad():
            measured = self.measure(rollouts)
            gap = self.refuse_stale(rollouts, measured.whole)
        samples = self.pool.after(number, [sample_of(r) for r in rollouts])
        scores = ruled([x.score for x in samples], [x.ended for x in samples], s.missing_eos)
        quantiles, own = self.quantiles(scores), scores[-len(rollouts) :]
        with clock.spent_on("optimisation"):
            losses = self.optimise(number, samples, quantiles, len(rollouts))
        if s.schedule_by == "step":
            self.schedule.step()
        metrics = losses | described(drawn, measured, own) | {"logprob_gap": gap}
        if s.reference_reward:
            baseline = torch.tensor([r.reference.score for r in rollouts])
            metrics |= relative(torch.tensor(own), baseline)
        iteration = self.environment.online.iteration
        candidates, rewards = self.environment.rows(drawn)
        rows = StepRows(
            candidates=candidates,
            rewards=rewards,
            rollouts=rollout_rows(
                iteration, number, rollouts, measured, own, quantiles[-len(rollouts) :]
            ),
            statistics=statistics(iteration, self.name, number, metrics),
        )
        return StepOutcome(rows=rows, metrics=metrics)

    def quantiles(self, scores: Sequence[float]) -> list[int]:
        """Return the quantile of each sample, among all or among those of its group."""
        s = self.settings
        if s.quantiles_over == "group":
            return sorted_apart(scores, s.quantiles, s.group)
        return quantiles_of(scores, s.quantiles)

    def control(self, quantile: int) -> str:
        """Return the control text that asks for an answer of a quantile."""
        return quantile_token(quantile) if self.settings.train_on == "all" else ""

    def measure(self, rollouts: Sequence[ScoredRollout]) -> MeasuredSamples:
        """Measure the answers under policy and reference, each with the prompt in its own form."""
        lessons = [
            QuarkLesson(own=r.spoken, plain=self.spoken(sample_of(r), "", whole=True))
            for r in rollouts
        ]
        temperature = self.temperature
        sums = torch.zeros(5, len(rollouts), device=self.device)
        size = MEASURED_TOGETHER * self.settings.micro_batch_size
        every = passes([x.own for x in lessons], range(len(lessons)), size, self.device)
        for work, counts in self.ranks.share(every):
            with self.networks.policy() as policy:
                logits, other = self.logits(policy, work, lessons)
            cut, plain = logits[..., : self.vocabulary], other[..., : self.vocabulary]
            told = (
                chosen_logprobs(logits, work.answers, temperature),
                chosen_logprobs(other, work.answers, temperature),
                exact_kl(cut / temperature, plain / temperature),
                entropy(cut / temperature),
                chosen_logprobs(logits, work.answers, 1.0),
            )
            said = work.mask[:, work.queries :]
            for place, values in enumerate(told):
                sums[place, work.rows] = (values * said * counts).sum(dim=1)
        self.ranks.gather(sums)
        logprob, reference, kl, spread, whole = sums.cpu()
        return MeasuredSamples(
            logprob=logprob, reference=reference, kl=kl, entropy=spread, whole=whole
        )

    def optimise(
        self, number: int, samples: Sequence[Sample], quantiles: Sequence[int], drawn: int
    ) -> dict[str, float]:
        """Learn the samples of a step that drew `drawn`; return its updates' mean statistics."""
        s = self.settings
        best = s.train_on == "best"
        lessons = [
            QuarkLesson(
                own=self.spoken(sample, self.control(quantile)), plain=self.spoken(sample, "")
            )
            for sample, quantile in zip(samples, quantiles, strict=True)
            if not best or quantile == 0
        ]
        lessons = [lesson for lesson in lessons if lesson.own.answer]
        if not lessons:
            raise TrainingError("refused", f"step {number}: the best samples have no tokens")
        sums, learned_besides = torch.zeros(len(TERMS) + 1), torch.zeros(())
        order = partial(self.order, number, count=len(lessons))
        every = batches(s, order, len(lessons), drawn)
        for update, batch in enumerate(every, (number - 1) * self.updates + 1):
            means = self.gradients([lessons[place] for place in batch])
            if self.next_token is not None:
                learned_besides += self.learn_besides(self.next_token, update)
            norm = update_weights(self, self.ranks, max_norm=s.max_grad_norm)
            sums += torch.cat([means.cpu(), norm[None]])
        names = (*TERMS, "grad_norm")
        found: dict[str, float] = dict(zip(names, (sums / len(every)).tolist(), strict=True))
        if self.next_token is not None:
            found[METRIC] = float(learned_besides / len(every))
            found["loss"] += self.next_token.weight * found[METRIC]
        return found | {"learning_rate": float(self.schedule.get_last_lr()[0])}

    def gradients(self, lessons: Sequence[QuarkLesson]) -> Tensor:
        """Add up the gradients of a batch; return its means of `TERMS`."""
        s = self.settings
        own = [lesson.own for lesson in lessons]
        width = None if s.mask_padding else self.environment.online.sampling.max_tokens
        positions = sum(width or len(spoken.answer) for spoken in own)
        sums = torch.zeros(len(TERMS), device=self.device)
        every = passes(own, range(len(own)), s.micro_batch_size, self.device, width=width)
        for work, counts in self.ranks.share(every):
            share = counts / positions
            with self.networks.policy() as policy:
                loss, found = self.loss(policy, work, lessons, width)
                # Gradients are averaged over the processes, and each has a part of the sum.
                (loss.sum() * (self.ranks.count * share)).backward()
            for place, values in enumerate((loss, *found)):
                sums[place] += values.detach().sum() * share
        self.ranks.gather(sums)
        return sums

    def loss(
        self, policy: Any, work: Pass, lessons: Sequence[QuarkLesson], width: int | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss and its terms by position, 0 where a position does not count."""
        s = self.settings
        temperature = self.temperature
        logits, other = self.logits(policy, work, lessons, width)
        said = work.mask[:, work.queries :]
        counted = said if s.mask_padding else torch.ones_like(said)
        found = terms(
            logits / temperature, other / temperature, work.answers, vocabulary=self.vocabulary
        )
        # After an answer's end there is no token to learn.
        found = Terms(nll=found.nll * said, kl=found.kl, entropy=found.entropy)
        loss = found.loss(kl_coef=s.kl_coef, entropy_coef=s.entropy_coef) * counted
        return loss, (found.nll * counted, found.kl * counted, found.entropy * counted)

    def logits(
        self, policy: Any, work: Pass, lessons: Sequence[QuarkLesson], width: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's and the reference's logits at a pass's answers, row by row."""
        plain = [lesson.plain for lesson in lessons]
        (beside,) = passes(plain, work.rows, len(work.rows), self.device, width=width)
        order = [beside.rows.index(row) for row in work.rows]
        with self.accelerator.autocast():
            with torch.no_grad(), self.networks.reference() as reference:
                other = answer_logits(reference, beside)[order]
            return answer_logits(policy, work), other

    def spoken(self, sample: Sample, control: str, *, whole: bool = False) -> Spoken:
        """Return a sample after a control text, without its end token if that is not trained."""
        messages = conditioned(self.messages[sample.prompt_id], control)
        cut = sample.ended and not (self.settings.train_eos or whole)
        answer = sample.answer[:-1] if cut else sample.answer
        return Spoken(prompt=self.environment.chat.prompt(messages), answer=answer)
