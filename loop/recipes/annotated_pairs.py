"""What methods share that learn from comparisons: annotated pairs, and a reward model of them."""

from ...configs.recipes import (
    DPO,
    PPO,
    BestOfN,
    ChatGLMDPO,
    ChatGLMPPO,
    ChatGLMRS,
    ExpertIteration,
    Quark,
    RewardModelling,
)
from ...stores.records import Pair, RewardModel
from ..run.handles import Rows
from .iteration import Iteration

Annotated = (
    DPO
    | RewardModelling
    | BestOfN
    | ExpertIteration
    | PPO
    | Quark
    | ChatGLMPPO
    | ChatGLMDPO
    | ChatGLMRS
)


def annotated(it: Iteration, cfg: Annotated) -> Rows[Pair]:
    """(x, y+, y-): answers of the policy, compared by annotators p_ann."""
    drafts = it.sample(it.prompts("preference"), n=cfg.n)  # y_i ~ pi(x)
    return it.prefer(drafts, it.annotate(drafts))


def surrogate(it: Iteration, cfg: Annotated) -> RewardModel | None:
    """r: the configured reward model (None), or else one that is trained on annotated pairs."""
    if it.has_reward:
        return None
    return it.train_reward(annotated(it, cfg))
