"""ChatGLM-RLHF's DPO: the reward model selects the samples that make pairs (Section 3.4)."""

from ...configs.recipes import ChatGLMDPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.pair import pair
from ..stages.select_prompts import filter_variance
from ..stages.train import train
from .annotated_pairs import reward_samples, surrogate
from .trial_settings import trials

PAPER = "ChatGLM-RLHF (Hou et al., 2024)"
SUMMARY = "make pairs of samples by a debiased reward model, train on them by DPO"
TRIALS = trials("dpo", {"training.dpo.beta": 3.0})


def chatglm_dpo(it: Iteration, cfg: ChatGLMDPO) -> Checkpoint:
    """Raise the best samples by reward over the worst (Eq. 7)."""
    model = surrogate(it, cfg)  # Eq. 1 and 2
    judged = reward_samples(
        it, filter_variance(it, it.prompts("unlabeled"), model), model, n=cfg.best_of
    )
    return train(it, pair(it, judged, rule="reward_extremes", top_k=cfg.top_k))
