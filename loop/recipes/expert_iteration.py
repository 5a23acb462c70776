"""Expert iteration: best-of-n on unlabeled prompts, then imitation (AlpacaFarm, Section 2.2)."""

from ...configs.recipes import ExpertIteration
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.pair import demonstrate
from ..stages.sample import narrower
from ..stages.select_prompts import filter_variance
from ..stages.train import train
from .annotated_pairs import reward_samples, surrogate
from .trial_settings import trials

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "sample unlabeled prompts, fine-tune on the best answer by reward"
TRIALS = trials("sft", {"recipe.best_of": 0.5})


def expert_iteration(it: Iteration, cfg: ExpertIteration) -> Checkpoint:
    """Imitate the best of the policy's own answers; every iteration is a round."""
    model = surrogate(it, cfg)
    varied = filter_variance(it, it.prompts("unlabeled"), model)
    judged = reward_samples(it, varied, model, n=cfg.best_of, top_p=narrower(cfg.top_p))
    best = demonstrate(it, judged, rule="top_reward", top_k=1)  # argmax r(x, y_i)
    return train(it, best, start=cfg.start)
