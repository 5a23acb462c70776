"""Best-of-n by a reward model of graded completions (UltraFeedback, Section 3.2).

Nothing but the reward model is trained; the paper's curve has n in 1, 2, 4, 8, 16.
"""

from ...configs.recipes import UltraFeedbackBoN
from ...stores.records import Checkpoint
from ..evaluation.best_of_n import measure_best_of
from ..run.iteration import Iteration
from ..stages.refine import best
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.train import keep_policy
from .graded_pairs import graded_reward

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "train a reward model on graded completions, give the best of n samples by it"


def ultrafeedback_bon(it: Iteration, cfg: UltraFeedbackBoN) -> Checkpoint:
    """Measure the best of n answers to the held-out prompts, for every n at once."""
    model = graded_reward(it, cfg)
    answers = sample(it, it.held_out, n=cfg.most, top_p=cfg.top_p, label="sample:held-out")
    promising = best(answers, by=reward(it, answers, by=model))  # argmax r(x, y_i)
    measure_best_of(it, promising, most=cfg.most)
    return keep_policy(it)
