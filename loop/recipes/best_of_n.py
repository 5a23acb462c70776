"""Best-of-n: sample many answers, give the one with the highest reward (AlpacaFarm, Section 2.2).

Nothing but the reward model is trained. Its curve shows how far the reward can be trusted.
"""

from ...configs.recipes import BestOfN
from ...stores.records import Checkpoint
from ..evaluation.best_of_n import measure_best_of
from ..run.iteration import Iteration
from ..stages.refine import best
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.train import keep_policy
from .annotated_pairs import surrogate

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "give the best of n samples by reward, for n = 1, 2, 4, ..."


def best_of_n(it: Iteration, cfg: BestOfN) -> Checkpoint:
    """Measure the best of n answers to the held-out prompts, for every n at once."""
    model = surrogate(it, cfg)
    answers = sample(it, it.held_out, n=cfg.most, top_p=cfg.top_p, label="sample:held-out")
    promising = best(answers, by=reward(it, answers, by=model))  # argmax r(x, y_i)
    measure_best_of(it, promising, most=cfg.most)
    return keep_policy(it)
