"""Common parts of methods that learn from comparisons: annotated pairs, a reward model, samples."""

from ...configs.recipes import Annotated, Rewarded
from ...stores.records import Candidate, Pair, Preference, RewardModel
from ..run.handles import JudgedRows, Prompts, Rows
from ..run.iteration import Iteration
from ..stages.compare import annotate
from ..stages.complete import complete
from ..stages.people_labels import commit_labels
from ..stages.prefer import prefer
from ..stages.reward import reward
from ..stages.sample import narrower, sample
from ..stages.train import train_reward

Compared = tuple[Rows[Candidate], Rows[Preference]]
"""Answers, and which of two of them is the better one."""


def draft_answers(it: Iteration, cfg: Annotated) -> Rows[Candidate]:
    """y_i ~ pi(x): answers to compare, by the policy or by a pool of models."""
    prompts = it.prompts("preference")
    if it.run.completers is None:
        return sample(it, prompts, n=cfg.n, top_p=narrower(it.run.config.annotation.top_p))
    return complete(it, prompts, n=cfg.n)


def annotate_pairs(it: Iteration, cfg: Annotated) -> Rows[Pair]:
    """(x, y+, y-): answers that people compared, or that annotators did."""
    return prefer(it, *compare_answers(it, cfg))


def compare_answers(it: Iteration, cfg: Annotated) -> Compared:
    """(x, y_0, y_1) and z: from `annotation.source` if it is set, else from p_ann."""
    if it.has_labels:
        return commit_labels(it)
    drafts = draft_answers(it, cfg)
    return drafts, annotate(it, drafts)


def surrogate(it: Iteration, cfg: Annotated) -> RewardModel | None:
    """r: the configured reward model (None), or else one that is trained on annotated pairs."""
    it.require(Rewarded, "surrogate")
    if it.has_reward:
        return None
    return train_reward(it, annotate_pairs(it, cfg))


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
