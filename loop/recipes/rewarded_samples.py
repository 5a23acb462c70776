"""Common parts of methods that learn from rewarded samples: the policy's answers with r(x, y)."""

from ...stores.records import RewardModel
from ..run.handles import JudgedRows, Prompts
from ..run.iteration import Iteration
from ..stages.reward import reward
from ..stages.sample import sample


def reward_samples(
    it: Iteration,
    prompts: Prompts,
    model: RewardModel | None,
    *,
    n: int,
    top_p: float | None = None,
) -> JudgedRows:
    """(x, y_i, r(x, y_i)): n answers a prompt, each with its reward."""
    answers = sample(it, prompts, n=n, top_p=top_p, label="sample:unlabeled")  # y_i ~ pi(x)
    return JudgedRows(candidates=answers, rewards=reward(it, answers, by=model))
