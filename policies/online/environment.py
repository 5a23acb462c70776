# pyright: basic
"""The prompts of an online training, the engine that samples, and the rewards of the answers.

A step takes its prompts, samples one answer to each, or a group of them, and scores it. An answer's
reward is the weighted sum of the scores that each reward source gives it: the reward model, or the
user's function, scores in this process; the parent calls the verifier and the critic. An answer
that failed, or to which a source gave no score, is kept as rows, and is not trained on.
"""

import json
import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import fsum
from pathlib import Path

import torch

from ...configs.engines import EngineConfig
from ...configs.training import OnlineSettings
from ...stores.durable import write_file
from ...stores.records import Candidate, Message, Reward
from ..engines.chat_template import TemplateFaultError
from ..engines.engine import Completion, EngineError, ScoreBatch, ScoreRequest
from ..engines.scorers import OwnScorer, RewardScorer
from ..trainers.faults import halted_error
from ..trainers.job import OnlineJob, RewardSource, TrainingError, TrainJob
from ..trainers.launch import engine_in_trainer, is_shared
from ..trainers.rows import chat_of
from ..trainers.sequences import Spoken
from ..trainers.step_files import (
    LEFT_OUT,
    REFUSED,
    REFUSED_PROMPTS,
    PromptToSample,
    ReferenceReward,
    RolloutDraw,
    ask_parent,
    candidate_row,
    draws_of_step,
    planned_steps,
    read_prompts,
    reward_row,
    sampled_places,
)
from ..trainers.work_folder import PULSE
from ..workers.places import DeviceGroup
from .networks import Networks
from .ranks import Ranks
from .sampler import RolloutSampler, write_weights

logger = logging.getLogger(__name__)

NO_REFERENCE = ReferenceReward(score=0.0, ended=True)
SCORED_TOGETHER = 256

Scores = dict[RewardSource, float | None]
"""The score of each reward source for an answer; None if it gave none."""


class Clock:
    """Seconds of a step by use."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._started = time.perf_counter()

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Count a block's time, including the GPU work that it started."""
        started = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    def shares(self, named: Sequence[str]) -> Mapping[str, float]:
        """Return the seconds by name, `total`, and `other`: the sum of all not in `named`."""
        total = time.perf_counter() - self._started
        other = total - sum(self.seconds[name] for name in named)
        return {**self.seconds, "other": other, "total": total}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with its completion, its tokens, its scores, and the number of its batch.

    `scores` are the reward sources' scores, `score` is their weighted sum: the reward, before any
    rule for cut answers; None if a source gave none.
    """

    drawn: RolloutDraw
    completion: Completion
    spoken: Spoken
    scores: Mapping[RewardSource, float | None]
    score: float | None
    batch: int = 0

    @property
    def trainable(self) -> bool:
        """Whether a method can learn from it."""
        return self.score is not None and bool(self.spoken.answer)

    @property
    def ended(self) -> bool:
        """Whether the answer ended with an end token."""
        return self.completion.finish_reason == "stop"

    @property
    def known_score(self) -> float:
        """The score of a trainable rollout."""
        assert self.score is not None  # noqa: S101 -- `trainable`
        return self.score

    @property
    def reference(self) -> ReferenceReward:
        """The reward of the reference answer; 0 without one."""
        return self.drawn.prompt.reference or NO_REFERENCE


class Environment:
    """Prompts, sampler and rewards of a job; the sampler runs the policy's weights in `folder`.

    `usable` are the prompts that can be sampled, `left_out` counts the others by the reason. The
    job's parent has planned `steps` for all prompts; only the first `learning_steps` have prompts,
    because `usable` is visited at most as often as the settings allow. Only the first of several
    processes has a folder, a sampler and a reward model.
    """

    def __init__(
        self,
        job: TrainJob,
        online: OnlineJob,
        settings: OnlineSettings,
        folder: Path | None,
        ranks: Ranks,
    ) -> None:
        self.job = job
        self.settings = settings
        self.online = online
        self.folder = folder
        self.ranks = ranks
        self.chat = chat_of(job)
        every = read_prompts(job.data, whole=online.function is not None)
        if settings.reference_reward and any(a.reference is None for a in every):
            raise TrainingError(
                "refused", "reference_reward needs prompts with the reward of a reference answer"
            )
        self.left_out: dict[str, float] = {}
        self.usable = self._askable(every)
        self.steps = planned_steps(len(every), settings)
        self.learning_steps = planned_steps(len(self.usable), settings)
        if self.left_out:
            logger.warning("%d of %d steps learn", self.learning_steps, self.steps)
        self._sampler: RolloutSampler | None = None
        scores_here = ranks.is_first and "reward" in online.sources
        self._scorer = _scorer(job, online) if scores_here else None

    def _askable(self, every: Sequence[PromptToSample]) -> list[PromptToSample]:
        """Return the prompts that the chat template renders and that leave room for an answer.

        Raises:
            TrainingError: of kind `refused`, if all prompts are left out.
        """
        room = self.online.sampling.max_tokens
        context = self.online.engine.context or self.settings.max_length
        longest = min(self.settings.max_length, context) - room
        found: list[PromptToSample] = []
        refused: dict[str, str] = {}
        for prompt in every:
            try:
                tokens = self.chat.prompt(prompt.messages)
            except TemplateFaultError as error:
                refused[prompt.prompt_id] = str(error)
                continue
            if len(tokens) <= longest:
                found.append(prompt)
        reasons: list[str] = []
        if overlong := len(every) - len(found) - len(refused):
            self.left_out[LEFT_OUT] = float(overlong)
            reasons.append(
                f"{overlong} of {len(every)} prompts leave no room for an answer of {room} tokens; "
                "raise max_length or lower max_tokens"
            )
        if refused:
            self.left_out[REFUSED] = float(len(refused))
            first, why = next(iter(refused.items()))
            reasons.append(
                f"the chat template refuses {len(refused)} of {len(every)} prompts, the first of "
                f"them {first}: {why}"
            )
            if self.ranks.is_first:
                write_file(self.job.folder(REFUSED_PROMPTS), json.dumps(refused).encode())
        if not found:
            raise TrainingError("refused", f"no prompt can be sampled: {'; '.join(reasons)}")
        for reason in reasons:
            logger.warning("left out: %s", reason)
        return found

    def refresh(self, networks: Networks) -> None:
        """Make the sampler load the present weights."""
        weights = networks.weights() if self.folder or networks.is_sharded else {}
        if self.folder is None:
            return
        write_weights(self.folder, weights, networks.config)
        if self._sampler is not None:
            self._sampler.reload()
            return
        self._sampler = RolloutSampler(
            self.folder,
            engine_in_trainer(self.job, self.online.engine),
            log=self.job.folder("sampler.log"),
            alive=self.job.folder(PULSE).touch,
            fit=self._next_to_trainer,
        )

    def _next_to_trainer(self, engine: EngineConfig, group: DeviceGroup) -> EngineConfig:
        """Reserve the trainer's part of a GPU that it shares with the sampler."""
        share = {"memory_utilization": self.settings.sampler_memory}
        return engine.model_copy(update=share) if is_shared(group, self.job) else engine

    def rollouts(self, step: int, clock: Clock) -> list[ScoredRollout]:
        """Sample and score a step's rollouts with the weights of the last `refresh`.

        Raises:
            TrainingError: of kind `halted`, in all processes, if a request to end the training came
                while its parent judged the answers.
        """
        first = self.ranks.is_first
        found = self.ranks.broadcast(self._sample(step, clock) if first else None)
        if found is None:
            raise halted_error(self.job)
        return found

    def _sample(self, step: int, clock: Clock) -> list[ScoredRollout] | None:
        sampler = self._sampler
        assert sampler is not None  # noqa: S101 -- after `refresh`, in the first process
        places = sampled_places(len(self.usable), self.job.seed, step=step, settings=self.settings)
        rollouts = draws_of_step(self.online, step, [self.usable[place] for place in places])
        with clock.measure("generation"):
            completions = sampler.draw(rollouts, self.online.sampling)
        with clock.measure("scoring"):
            scores = self._scores(step, rollouts, completions)
        if scores is None:
            return None
        batches = sampler.batch_numbers(len(rollouts))
        return [
            ScoredRollout(
                drawn=r,
                completion=c,
                spoken=self._spoken(r, c),
                scores=s,
                score=weighted_sum(s, self.online.weights),
                batch=b,
            )
            for r, c, s, b in zip(rollouts, completions, scores, batches, strict=True)
        ]

    def _scores(
        self, step: int, rollouts: Sequence[RolloutDraw], completions: Sequence[Completion]
    ) -> list[Scores] | None:
        """Return the scores of a step's answers; None after a request to end the training."""
        found: list[Scores] = [{} for _ in rollouts]
        if self._scorer is not None:
            own = scores_of(self._scorer, rollouts, completions)
            for scores, score in zip(found, own, strict=True):
                scores["reward"] = score
        if sources := self.online.reward_sources:
            pairs = zip(rollouts, completions, strict=True)
            answers = [candidate_row(self.online, *pair) for pair in pairs]
            alive = self.job.folder(PULSE).touch
            judged = ask_parent(self.job.output, step, answers, sources, alive=alive)
            if judged is None:
                return None
            for scores, rollout in zip(found, rollouts, strict=True):
                scores.update(judged[rollout.candidate_id])
        return found

    def rows(self, rollouts: Sequence[ScoredRollout]) -> tuple[list[Candidate], list[Reward]]:
        """Return the rows of a step's answers and of their scores."""
        candidates = [candidate_row(self.online, r.drawn, r.completion) for r in rollouts]
        rewards = [reward_row(self.online, r.drawn, r.score, r.scores) for r in rollouts]
        return candidates, rewards

    def close(self) -> None:
        """End the sampler and release the reward model."""
        for part in (self._sampler, self._scorer):
            if part is not None:
                part.close()

    def _spoken(self, rollout: RolloutDraw, completion: Completion) -> Spoken:
        prompt = self.chat.prompt(rollout.prompt.messages)
        return Spoken(prompt=prompt, answer=completion.token_ids or ())


def _scorer(job: TrainJob, online: OnlineJob) -> RewardScorer | OwnScorer:
    if online.function is not None:
        return OwnScorer(online.function, online.reward, online.reward_id)
    if job.reward is None:
        raise TrainingError("refused", f"{job.method} needs a reward model; give --reward")
    return RewardScorer(job.reward, online.reward)


def scores_of(
    scorer: RewardScorer | OwnScorer,
    rollouts: Sequence[RolloutDraw],
    completions: Sequence[Completion],
) -> list[float | None]:
    """Score answers as the reward stage does: by their text, tokenized again."""
    requests = tuple(
        ScoreRequest(
            request_id=r.candidate_id,
            messages=(*r.prompt.messages, Message(role="assistant", content=c.text)),
            prompt=r.prompt.prompt,
            ended=c.finish_reason == "stop",
        )
        for r, c in zip(rollouts, completions, strict=True)
    )
    batches = (
        ScoreBatch(key=str(first), requests=requests[first : first + SCORED_TOGETHER])
        for first in range(0, len(requests), SCORED_TOGETHER)
    )
    try:
        return [score for result in scorer.score(batches) for score in result.answers]
    except EngineError as error:
        raise TrainingError("refused", str(error)) from error


def weighted_sum(
    scores: Mapping[RewardSource, float | None], weights: Mapping[RewardSource, float]
) -> float | None:
    """Return the weighted sum of an answer's scores; None if one is missing."""
    found = [weights[source] * s for source, s in scores.items() if s is not None]
    return fsum(found) if len(found) == len(scores) else None


def describe(drawn: Sequence[ScoredRollout]) -> dict[str, float]:
    """Return the metrics of a step's answers that need neither a reward nor a model.

    `score/SOURCE` is the mean score of each reward source, over the answers that it scored.
    """
    tokens = [len(r.spoken.answer) for r in drawn]
    sources: list[RewardSource] = list(drawn[0].scores)
    by_source = {
        f"score/{source}": [s for r in drawn if (s := r.scores[source]) is not None]
        for source in sources
    }
    return {
        **{name: statistics.fmean(scores) for name, scores in by_source.items() if scores},
        "length": statistics.fmean(tokens),
        "tokens": float(sum(tokens)),
        "missing_eos": statistics.fmean(not r.ended for r in drawn),
        "unscored": float(sum(r.score is None for r in drawn)),
    }
