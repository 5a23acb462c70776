"""ChatGLM-RLHF's comparison: rejection sampling, fine-tuning on the best samples (Section 3.4)."""

from ...configs.recipes import ChatGLMRS
from ...stores.records import Checkpoint
from .annotated_pairs import surrogate
from .iteration import Iteration
from .rewarded_samples import rewarded

PAPER = "ChatGLM-RLHF (Hou et al., 2024), comparison"
SUMMARY = "fine-tune on the best of own samples by a debiased reward model"


def chatglm_rs(it: Iteration, cfg: ChatGLMRS) -> Checkpoint:
    """Imitate the best of the policy's own answers."""
    reward = surrogate(it, cfg)  # Eq. 1 and 2
    judged = rewarded(it, it.varied(it.prompts("unlabeled"), reward), reward, n=cfg.best_of)
    best = it.demonstrate(judged, rule="top_reward", top_k=1)  # argmax r(x, y_i)
    return it.train(best, start="initial")
