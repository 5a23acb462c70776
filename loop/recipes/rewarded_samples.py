"""What methods share that learn from rewarded samples: the policy's own answers with r(x, y)."""

from ...stores.records import RewardModel
from ..run.handles import JudgedRows, Prompts
from .iteration import Iteration


def rewarded(it: Iteration, prompts: Prompts, reward: RewardModel | None, *, n: int) -> JudgedRows:
    """(x, y_i, r(x, y_i)): n answers a prompt, each with its reward."""
    answers = it.sample(prompts, n=n, label="sample:unlabeled")  # y_i ~ pi(x)
    return JudgedRows(candidates=answers, rewards=it.reward(answers, by=reward))
