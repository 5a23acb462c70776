# pyright: basic
"""Quark: fine-tuning on the best of the policy's samples (Lu et al., 2022; AlpacaFarm, App. B).

A step sorts its samples into quantiles by reward, and learns the best quantile by likelihood,
constrained to the reference by an exact KL. With all quantiles each sample is learned after its
quantile's token, and from the second step on samples are drawn after the best quantile's token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor

from ...configs.methods import QuarkTraining
from ...stores.durable import TEMPORARY, make_folder, publish_folder, remove
from ...stores.keys import derive_seed
from ..engines.chat import add_control
from ..engines.chat_template import load_tokenizer
from ..trainers.job import TrainingError, TrainJob
from ..trainers.sequences import Pass, Spoken, answer_logits, pad_rollouts
from ..trainers.trained_model import copy_tokenizer
from ..trainers.training_fit import master_of
from ..trainers.trl_trainer import load_model
from .environment import Clock, Environment, ScoredRollout
from .networks import Networks
from .numerics import quark_terms
from .online_trainer import Lesson, Lessons, Measurements, OnlineTrainer, reward_metrics
from .quantiles import Pool, Sample, quantile_token, quantiles_of
from .truncation_penalty import apply_rule

EXTENDED = "extended"
"""The folder, within the work folder, of the model with the added tokens."""

Order = Callable[[int], Tensor]
"""The order in which a pass visits the lessons, by the number of the pass from 0."""


@dataclass(frozen=True, kw_only=True)
class QuarkLessons(Lessons):
    """The samples to learn; `plain` has their answers after the prompts that the reference sees."""

    plain: list[Spoken]


class QuarkTrainer(OnlineTrainer[QuarkLessons]):
    """Policy, reference and optimizer, and the step that moves them."""

    name = "quark"
    terms = ("loss", "loss/nll", "kl/update", "entropy/update")
    estimator = None
    vocabulary: int
    settings: QuarkTraining

    def __init__(
        self, job: TrainJob, environment: Environment, networks: Networks, *args: Any, **named: Any
    ) -> None:
        super().__init__(job, environment, networks, *args, **named)
        s = self.settings
        self.pool = Pool(job.output, growing=s.pool == "growing")
        self.messages = {asked.prompt_id: asked.messages for asked in environment.asked}
        known = environment.chat.tokenizer.get_vocab()
        tokens = (quantile_token(quantile) for quantile in range(s.quantiles))
        self.banned = sorted(known[token] for token in tokens if token in known)
        with networks.reference() as reference:
            shared = reference.get_input_embeddings().num_embeddings
        self.vocabulary = min([shared, *self.banned])

    @classmethod
    def planned_updates(cls, settings: QuarkTraining) -> int:
        """Return how many optimizer steps a step makes if all its rollouts can be learned."""
        samples = learned_samples(settings, settings.rollouts)
        return settings.inner_epochs * -(-samples // settings.batch_size)

    def sample(self, number: int, clock: Clock) -> list[ScoredRollout]:
        """Sample a step's answers after the best quantile's token, which no answer may contain.

        In the first step the tokens are not trained yet.
        """
        control = self.token(0) if number > 1 else ""
        return self.environment.rollouts(number, clock, control=control, banned=self.banned)

    def token(self, quantile: int) -> str:
        """Return the control text that requests an answer of a quantile."""
        return quantile_token(quantile) if self.settings.train_on == "all" else ""

    def idle(self, number: int, drawn: Sequence[ScoredRollout]) -> dict[str, float]:
        """Return the metrics of a step that learns nothing, and adds nothing to the pool."""
        self.pool.after(number, [])
        return super().idle(number, drawn)

    def advantages(self, measured: Measurements) -> QuarkLessons:
        """Return the samples to learn, by their quantiles in the pool."""
        s, rollouts = self.settings, measured.rollouts
        samples = self.pool.after(measured.number, [sample_of(r) for r in rollouts])
        scores = apply_rule([x.score for x in samples], [x.ended for x in samples], "below")
        quantiles = quantiles_of(scores, s.quantiles)
        best = s.train_on == "best"
        kept = [
            (own, self.spoken(sample, ""))
            for sample, quantile in zip(samples, quantiles, strict=True)
            if not best or quantile == 0
            for own in [self.spoken(sample, self.token(quantile))]
            if own.answer
        ]
        if not kept:
            raise TrainingError("refused", f"step {measured.number}: the best samples are empty")
        rewards = scores[-len(rollouts) :]
        return QuarkLessons(
            measured=measured,
            answers=[own for own, _ in kept],
            lessons=[(place,) for place in range(len(kept))],
            rewards=rewards,
            columns={"quantile": quantiles[-len(rollouts) :]},
            metrics=reward_metrics(rollouts, rewards, None),
            plain=[plain for _, plain in kept],
        )

    def batches(self, number: int, learned: QuarkLessons) -> list[list[Lesson]]:
        """Return the lessons of each optimizer step."""
        order = partial(self.order, number, count=len(learned.lessons))
        drawn = len(learned.rewards)
        found = batches(self.settings, order, drawn)
        return [[(place,) for place in batch] for batch in found]

    def loss(
        self, policy: Any, work: Pass, batch: Sequence[Lesson], learned: QuarkLessons
    ) -> tuple[Tensor, ...]:
        """Return a pass's part of a batch's loss and of its terms."""
        s, temperature = self.settings, self.temperature
        plain = pad_rollouts(learned.plain, work.rows, self.device)
        with self.accelerator.autocast():
            with torch.no_grad(), self.networks.reference() as reference:
                other = answer_logits(reference, plain)
            logits = answer_logits(policy, work)
        said = work.mask[:, work.queries :]
        found = quark_terms(
            logits / temperature, other / temperature, work.answers, vocabulary=self.vocabulary
        )
        # After an answer's end there is no token to learn.
        found = found._replace(nll=found.nll * said)
        loss = found.loss(kl_coef=s.kl_coef, entropy_coef=s.entropy_coef)
        share = 1 / self.positions(batch, learned.answers)
        return tuple((part * said).sum() * share for part in (loss, *found))

    def spoken(self, sample: Sample, control: str) -> Spoken:
        """Return a sample after a control text."""
        messages = add_control(self.messages[sample.prompt_id], control)
        return Spoken(prompt=self.environment.chat.prompt(messages), answer=sample.answer)


def sample_of(rollout: ScoredRollout) -> Sample:
    """Return a rollout in the pool's form."""
    return Sample(
        prompt_id=rollout.drawn.asked.prompt_id,
        answer=tuple(rollout.spoken.answer),
        ended=rollout.ended,
        score=rollout.known_score,
    )


# Which samples each optimizer step learns


def learned_samples(settings: QuarkTraining, drawn: int) -> int:
    """Return how many samples a pass takes in a step that drew `drawn`."""
    return -(-drawn // settings.quantiles) if settings.train_on == "best" else drawn


def batches(settings: QuarkTraining, order: Order, drawn: int) -> list[list[int]]:
    """Return the indices of the lessons that each optimizer step learns.

    A pass takes as many as a step that drew `drawn` gives, however large the pool.
    """
    samples = learned_samples(settings, drawn)
    passes = (order(n)[:samples] for n in range(settings.inner_epochs))
    return [batch.tolist() for one in passes for batch in one.split(settings.batch_size)]


# The policy with quantile tokens in its vocabulary (Lu et al., 2022, Section 2.1)


def with_tokens(job: TrainJob) -> TrainJob:
    """Return the job on a model with quantile tokens, if the settings use them.

    The reference stays as it was: it never sees the tokens.
    """
    settings = job.settings
    if not isinstance(settings, QuarkTraining) or settings.train_on != "all":
        return job
    folder = job.folder(EXTENDED)
    if not folder.exists():
        _extend(job, [quantile_token(q) for q in range(settings.quantiles)])
    return replace(job, model=folder, reference=job.reference or job.model)


def _extend(job: TrainJob, tokens: list[str]) -> None:
    """Save the job's model with the tokens added; one that it already has stays as it is."""
    draft = job.output / f"{TEMPORARY}{EXTENDED}"
    if draft.exists():
        remove(draft)
    copy_tokenizer(job.model, make_folder(draft))
    tokenizer = load_tokenizer(job.model, job.template)
    model: Any = load_model(job, master_of(job.model))
    first = len(tokenizer)
    # Not special: the names of special tokens are broken up in prompts (`chat.ChatTokenizer`).
    added = [AddedToken(token, special=False, normalized=False) for token in tokens]
    count = tokenizer.add_tokens(added)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    generator = torch.Generator().manual_seed(derive_seed(job.seed, "quantile tokens"))
    _initialise(model.get_input_embeddings().weight.data, first, count, generator)
    if not model.config.tie_word_embeddings:
        _initialise(model.get_output_embeddings().weight.data, first, count, generator)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    publish_folder(draft, job.output, EXTENDED)


def _initialise(weight: Tensor, first: int, count: int, generator: torch.Generator) -> None:
    """Set new tokens' rows to the mean of the rows before, plus noise of the same spread.

    `weight` is (vocabulary, width); the rows `first` to `first + count` change.
    """
    known = weight[:first].float()
    noise = torch.randn(count, weight.shape[1], generator=generator)
    new = known.mean(dim=0) + noise * known.std(dim=0)
    weight[first : first + count] = new.to(weight.dtype)
