"""ChatGLM-RLHF's comparison: rejection sampling, fine-tuning on the best samples (Section 3.4)."""

from ...configs.recipes import ChatGLMRS
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.pair import demonstrate
from ..stages.select_prompts import filter_variance
from ..stages.train import train
from .annotated_pairs import reward_samples, surrogate
from .trial_settings import trials

PAPER = "ChatGLM-RLHF (Hou et al., 2024), comparison"
SUMMARY = "fine-tune on the best of own samples by a debiased reward model"
TRIALS = trials("sft", {"recipe.best_of": 0.5})


def chatglm_rs(it: Iteration, cfg: ChatGLMRS) -> Checkpoint:
    """Imitate the best of the policy's own answers."""
    model = surrogate(it, cfg)  # Eq. 1 and 2
    judged = reward_samples(
        it, filter_variance(it, it.prompts("unlabeled"), model), model, n=cfg.best_of
    )
    best = demonstrate(it, judged, rule="top_reward", top_k=1)  # argmax r(x, y_i)
    return train(it, best, start="initial")
