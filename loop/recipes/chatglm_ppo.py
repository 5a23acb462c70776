"""ChatGLM-RLHF's PPO: a reward model without shortcuts, then PPO against it (Sections 3.3, 3.4).

Its practices are switches that every recipe has; the presets named after it turn them on.
"""

from ...configs.recipes import ChatGLMPPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_ppo
from ..stages.select_prompts import filter_variance
from .annotated_pairs import surrogate
from .trial_settings import trials

PAPER = "ChatGLM-RLHF (Hou et al., 2024)"
SUMMARY = "compare every two answers, train a debiased reward model, optimise it by PPO"
TRIALS = trials("ppo", {"training.ppo.kl_coef": 5.0})


def chatglm_ppo(it: Iteration, cfg: ChatGLMPPO) -> Checkpoint:
    """Maximise r(x, y) - r(x, y_ref) over answers to prompts of which some are better (Eq. 5)."""
    model = surrogate(it, cfg)  # Eq. 1 and 2
    return train_ppo(it, filter_variance(it, it.prompts("unlabeled"), model), model)
