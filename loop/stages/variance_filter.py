"""The filter of prompts whose answers all get a similar reward (ChatGLM-RLHF, Section 3.4).

Such prompts teach a policy nothing. The policy answers each prompt K times; if the variance of r(x,
y_1) .. r(x, y_K) is below the margin epsilon, the prompt is skipped. Answers and rewards stay in
the lake. A prompt with fewer than two scored answers is kept: only measured prompts are dropped.
"""

from collections.abc import Sequence
from statistics import pvariance

from ...configs.recipes import Varied
from ...configs.schema import ConfigError
from ...stores.journal_reader import Unit
from ...stores.records import FilterCount, Prompt, Reward, RewardModel
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts, ids_by_fate, keeps
from ..run.handles import Prompts, chunk_prompts
from ..run.iteration import Iteration
from ..run.outcomes import NothingToTrainOn
from .reward import Scoring, reward
from .sample import sample
from .select_prompts import FILTER_PROMPTS

FILTER = "prompts:variance"
LOW = "low_variance"
UNMEASURED = f"{KEPT}: unmeasured"
FEWEST = 2
"""Scores that have a variance."""


def require_reward(it: Iteration, model: RewardModel | None) -> None:
    """Raise ConfigError without a reward model that could score the answers."""
    if Scoring(run=it.run, iteration=it.number, model=model).reward_id is None:
        raise ConfigError(
            "prompts.variance.margin needs reward.model, as this recipe trains no reward model "
            "before it"
        )


def filter_variance(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Prompts:
    """The prompts whose answers y_1 .. y_K ~ pi(x) differ in r(x, y), if a margin is set.

    Raises:
        ConfigError: without a reward model.
        NothingToTrainOn: if no prompt is left.
    """
    it.require(Varied, "varied")
    config = it.run.config.prompts.variance
    if config.margin is None:
        return prompts
    require_reward(it, model)
    answers = sample(it, prompts, n=config.k, label="sample:variance", purpose="variance")
    rewards, margin = reward(it, answers, by=model), config.margin
    fates = [
        _fates(chunk, it.chunk(rewards, number), margin)
        for number, chunk in enumerate(prompts.chunks)
    ]

    def make(unit: Unit) -> RowsByType:
        outcomes = ids_by_fate(prompts.chunks[unit.chunk], fates[unit.chunk])
        return {FilterCount: filter_counts(it.number, FILTER, "prompts", outcomes)}

    work = it.work(FILTER_PROMPTS, {"margin": margin}, answers, rewards)
    it.run.make(it.number, FILTER, work, make)
    kept = [
        prompt
        for chunk, met in zip(prompts.chunks, fates, strict=True)
        for prompt, fate in zip(chunk, met, strict=True)
        if keeps(fate)
    ]
    if not kept:
        raise NothingToTrainOn(
            f"the answers to every prompt of iteration {it.number} differ by less than "
            f"prompts.variance.margin ({margin}) in reward; lower it in another run"
        )
    return chunk_prompts(kept, it.run.config.prompts.chunk)


def _fates(prompts: Sequence[Prompt], rewards: Sequence[Reward], margin: float) -> list[str]:
    scores: dict[str, list[float]] = {prompt.prompt_id: [] for prompt in prompts}
    for row in rewards:
        if row.score is not None:
            scores[row.prompt_id].append(row.score)
    return [fate(scores[prompt.prompt_id], margin) for prompt in prompts]


def fate(scores: Sequence[float], margin: float) -> str:
    """Return the fate of a prompt whose answers have these rewards."""
    if len(scores) < FEWEST:
        return UNMEASURED
    return LOW if pvariance(scores) < margin else KEPT
