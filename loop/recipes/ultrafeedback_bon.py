"""Best-of-n by a reward model of graded completions (UltraFeedback, Section 3.2).

Nothing but the reward model is trained; the paper's curve has n in 1, 2, 4, 8, 16.
"""

from ...configs.recipes import UltraFeedbackBoN
from ...stores.records import Checkpoint
from .graded_pairs import graded_reward
from .iteration import Iteration

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "train a reward model on graded completions, give the best of n samples by it"


def ultrafeedback_bon(it: Iteration, cfg: UltraFeedbackBoN) -> Checkpoint:
    """Measure the best of n answers to the held-out prompts, for every n at once."""
    reward = graded_reward(it, cfg)
    answers = it.sample(it.held_out, n=cfg.most, top_p=cfg.top_p, label="sample:held-out")
    best = it.best(answers, by=it.reward(answers, by=reward))  # argmax r(x, y_i)
    it.measure_best_of(best, most=cfg.most)
    return it.unchanged()
