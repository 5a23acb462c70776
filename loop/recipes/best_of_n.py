"""Best-of-n: sample many answers, give the one with the highest reward (AlpacaFarm, Section 2.2).

Nothing but the reward model is trained. Its curve shows how far the reward can be trusted.
"""

from ...configs.recipes import BestOfN
from ...stores.records import Checkpoint
from .annotated_pairs import surrogate
from .iteration import Iteration

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "give the best of n samples by reward, for n = 1, 2, 4, ..."


def best_of_n(it: Iteration, cfg: BestOfN) -> Checkpoint:
    """Measure the best of n answers to the held-out prompts, for every n at once."""
    reward = surrogate(it, cfg)
    answers = it.sample(it.held_out, n=cfg.most, top_p=cfg.top_p, label="sample:held-out")
    best = it.best(answers, by=it.reward(answers, by=reward))  # argmax r(x, y_i)
    it.measure_best_of(best, most=cfg.most)
    return it.unchanged()
