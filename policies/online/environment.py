# pyright: basic
"""What an online method acts on: the prompts, the engine that samples, who rewards the answers.

A step takes its prompts, draws one answer to each, or a group of them, and scores it. What cannot
be trained on (an answer that failed, or has no reward) is kept as rows and left out of training.
"""

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...configs.engines import EngineConfig
from ...configs.group_methods import OnlineSettings
from ...stores.records import Candidate, Message, Reward
from ..engines.chat import conditioned
from ..engines.engine import Completion
from ..trainers.faults import halted
from ..trainers.job import OnlineJob, RewardSource, TrainingError, TrainJob
from ..trainers.launch import engine_in_trainer, is_shared
from ..trainers.rows import chat_of
from ..trainers.sequences import Spoken
from ..trainers.step_files import (
    ReferenceReward,
    RolloutDraw,
    candidate_row,
    drawn,
    places_asked,
    planned_steps,
    read_prompts,
    reward_row,
    with_prompts,
)
from ..trainers.work_folder import PULSE
from ..workers.places import DeviceGroup
from .answer_rewards import AnswerReward, AnswerRewards
from .networks import Networks
from .ranks import Ranks
from .rollout_weights import RolloutWeights
from .sampler import RolloutSampler

logger = logging.getLogger(__name__)

NOTHING = ReferenceReward(score=0.0, ended=True)


class Clock:
    """Seconds of a step by use."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._started = time.perf_counter()

    @contextmanager
    def spent_on(self, name: str) -> Generator[None]:
        """Count a block's time, including the GPU work that it started."""
        started = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    def shares(self, named: Sequence[str]) -> Mapping[str, float]:
        """Return the seconds by name, `total`, and `other`: all that is not among `named`."""
        total = time.perf_counter() - self._started
        other = total - sum(self.seconds[name] for name in named)
        return {**self.seconds, "other": other, "total": total}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with its answer, its tokens and its reward.

    Those of different replicas of the sampler differ in `together`.
    """

    drawn: RolloutDraw
    completion: Completion
    spoken: Spoken
    worth: AnswerReward
    together: int = 0

    @property
    def score(self) -> float | None:
        """The answer's reward, before any rule; None where it has none."""
        return self.worth.total

    @property
    def trainable(self) -> bool:
        """Whether a method can learn from it."""
        return self.score is not None and bool(self.spoken.answer)

    @property
    def ended(self) -> bool:
        """Whether the answer ended by itself."""
        return self.completion.finish_reason == "stop"

    @property
    def known_score(self) -> float:
        """The score of a rollout that is trainable."""
        assert self.score is not None  # noqa: S101 -- `trainable`
        return self.score

    @property
    def reference(self) -> ReferenceReward:
        """The reward that the answer's is compared with; 0 without a reference."""
        return self.drawn.asked.reference or NOTHING


class Environment:
    """Prompts, sampler and rewards of a job; the sampler runs the policy's `weights`.

    `asked` are the prompts that leave room for an answer, `left_out` counts the others. The job's
    parent has planned `steps`, for all prompts; only the first `learning_steps` have prompts, as
    `asked` is visited no more often than the settings say. Of several processes the first alone has
    weights for it, a sampler and a reward model.
    """

    def __init__(
        self,
        job: TrainJob,
        online: OnlineJob,
        settings: OnlineSettings,
        weights: RolloutWeights | None,
        ranks: Ranks,
    ) -> None:
        self.job = job
        self.settings = settings
        self.online = online
        self.weights = weights
        self.ranks = ranks
        self.chat = chat_of(job)
        asked = read_prompts(job.data)
        if online.function is not None:
            asked = with_prompts(asked, job.data)
        if settings.reference_reward and any(a.reference is None for a in asked):
            raise TrainingError(
                "refused", "reference_reward needs prompts with the reward of a reference answer"
            )
        self.asked = [a for a in asked if self._fits(a.messages)]
        if not self.asked:
            raise TrainingError(
                "refused",
                f"not one of the {len(asked)} prompts leaves room for an answer of "
                f"{online.sampling.max_tokens} tokens; raise max_length or lower max_tokens",
            )
        self.left_out = len(asked) - len(self.asked)
        self.steps = planned_steps(len(asked), settings)
        self.learning_steps = planned_steps(len(self.asked), settings)
        if self.left_out:
            logger.warning(
                "%d of %d prompts leave no room for an answer of %d tokens and are left out, so "
                "%d of %d steps learn; raise max_length or lower max_tokens",
                *(self.left_out, len(asked), online.sampling.max_tokens),
                *(self.learning_steps, self.steps),
            )
        self._sampler: RolloutSampler | None = None
        self._rewards = AnswerRewards(job, online) if ranks.is_first else None

    def refresh(self, networks: Networks) -> None:
        """Have the sampler load the present weights."""
        weights = networks.weights() if self.weights or networks.is_divided else {}
        if self.weights is None:
            return
        self.weights.write(weights, networks.config)
        if self._sampler is None:
            self._sampler = self._opened(self.weights.folder)
        else:
            self._sampler.reload()

    def _opened(self, folder: Path) -> RolloutSampler:
        return RolloutSampler(
            folder,
            engine_in_trainer(self.job, self.online.engine),
            log=self.job.folder("sampler.log"),
            alive=self.job.folder(PULSE).touch,
            fit=self._beside_trainer,
        )

    def _beside_trainer(self, engine: EngineConfig, group: DeviceGroup) -> EngineConfig:
        """Leave the trainer its part of a GPU, where it trains on one of the sampler's."""
        share = {"memory_utilization": self.settings.sampler_memory}
        return engine.model_copy(update=share) if is_shared(group, self.job) else engine

    def rollouts(
        self, step: int, clock: Clock, *, control: str = "", unsaid: Sequence[int] = ()
    ) -> list[ScoredRollout]:
        """Draw and score a step's rollouts with the weights of the last `refresh`.

        The policy alone sees `control`, a text before the prompt; rows and reward do not. The
        tokens in `unsaid` are never drawn.

        Raises:
            TrainingError: of kind `halted`, in all processes, when the training was asked to end
                while its parent judged the answers.
        """
        first = self.ranks.is_first
        found = self.ranks.told(self._drawn(step, clock, control, unsaid) if first else None)
        if found is None:
            raise halted(self.job)
        return found

    def _drawn(
        self, step: int, clock: Clock, control: str, unsaid: Sequence[int]
    ) -> list[ScoredRollout] | None:
        # `refresh` comes first, and the first process scores.
        assert self._sampler is not None  # noqa: S101
        assert self._rewards is not None  # noqa: S101
        count, seed = self.settings.rollouts, self.job.seed
        places = places_asked(len(self.asked), seed, step=step, settings=self.settings)
        rollouts = drawn(self.online, step, [self.asked[place] for place in places])
        with clock.spent_on("generation"):
            asked = [behind(rollout, control) for rollout in rollouts]
            completions = self._sampler.draw(asked, self.online.sampling, unsaid=unsaid)
        with clock.spent_on("scoring"):
            worths = self._rewards.of(step, rollouts, completions)
        if worths is None:
            return None
        together = self._sampler.drawn_together(count)
        return [
            ScoredRollout(
                drawn=r, completion=c, spoken=self._spoken(a, c), worth=worth, together=group
            )
            for r, a, c, worth, group in zip(
                rollouts, asked, completions, worths, together, strict=True
            )
        ]

    def rows(self, rollouts: Sequence[ScoredRollout]) -> tuple[list[Candidate], list[Reward]]:
        """Return the rows of a step's answers and of their scores."""
        candidates = [candidate_row(self.online, r.drawn, r.completion) for r in rollouts]
        rewards = [reward_row(self.online, r.drawn, r.score, r.worth.lacking) for r in rollouts]
        return candidates, rewards

    def close(self) -> None:
        """End the sampler and release the reward model."""
        if self._sampler is not None:
            self._sampler.close()
        if self._rewards is not None:
            self._rewards.close()

    def _fits(self, messages: tuple[Message, ...]) -> bool:
        """Return whether a prompt leaves room for the longest answer."""
        context = self.online.engine.context or self.settings.max_length
        longest = min(self.settings.max_length, context)
        return len(self.chat.prompt(messages)) + self.online.sampling.max_tokens <= longest

    def _spoken(self, rollout: RolloutDraw, completion: Completion) -> Spoken:
        prompt = self.chat.prompt(rollout.asked.messages)
        return Spoken(prompt=prompt, answer=completion.token_ids or ())


def behind(rollout: RolloutDraw, control: str) -> RolloutDraw:
    """Return a rollout whose prompt begins with a control text."""
    messages = conditioned(rollout.asked.messages, control)
    return replace(rollout, asked=replace(rollout.asked, messages=messages))


def describe_drawn(drawn: Sequence[ScoredRollout]) -> dict[str, float]:
    """Return the metrics of a step's answers that need neither a reward nor a model."""
    tokens = [len(r.spoken.answer) for r in drawn]
    return {
        **_scores_by_source(drawn),
        "length": statistics.fmean(tokens),
        "tokens": float(sum(tokens)),
        "missing_eos": statistics.fmean(not r.ended for r in drawn),
        "unscored": float(sum(r.score is None for r in drawn)),
    }


def _scores_by_source(drawn: Sequence[ScoredRollout]) -> dict[str, float]:
    """Return the mean score of each source that was asked, over the answers that have one."""
    sources: list[RewardSource] = list(drawn[0].worth.scores)
    found = {
        source: [score for r in drawn if (score := r.worth.scores[source]) is not None]
        for source in sources
    }
    return {f"score/{source}": statistics.fmean(told) for source, told in found.items() if told}
