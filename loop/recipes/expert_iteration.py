"""Expert iteration: best-of-n on unlabeled prompts, then imitation (AlpacaFarm, Section 2.2)."""

from ...configs.recipes import ExpertIteration
from ...stores.records import Checkpoint
from .annotated_pairs import surrogate
from .iteration import Iteration
from .rewarded_samples import rewarded

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "sample unlabeled prompts, fine-tune on the best answer by reward"


def expert_iteration(it: Iteration, cfg: ExpertIteration) -> Checkpoint:
    """Imitate the best of the policy's own answers; every iteration is a round."""
    reward = surrogate(it, cfg)
    judged = rewarded(it, it.varied(it.prompts("unlabeled"), reward), reward, n=cfg.best_of)
    best = it.demonstrate(judged, rule="top_reward", top_k=1)  # argmax r(x, y_i)
    return it.train(best, start=cfg.start)
