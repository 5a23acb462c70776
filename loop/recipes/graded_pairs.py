"""What UltraFeedback's methods share: pairs of graded completions, and the reward made of them."""

from ...configs.recipes import Graded
from ...stores.records import Pair, RewardModel
from ..run.handles import Rows
from .iteration import Iteration


def graded_pairs(it: Iteration, cfg: Graded) -> Rows[Pair]:
    """(x, y+, y-): completions of a pool of models, graded and binarised, and what is mixed in.

    The rule says which grades are asked for: those of the four aspects, or an overall score.
    """
    completions = it.complete(it.prompts("preference"), n=cfg.n)  # y_i ~ pi_i(principle_i, x)
    if cfg.binarisation == "overall":
        grades = it.grade_overall(completions)
    else:
        grades = it.grade(completions)
    pairs = it.binarise(completions, grades, rule=cfg.binarisation)
    return it.mixed(pairs, cfg.mix)


def graded_reward(it: Iteration, cfg: Graded) -> RewardModel | None:
    """r: the configured reward model (None), or else one that is trained on graded pairs."""
    if it.has_reward:
        return None
    return it.train_reward(graded_pairs(it, cfg))
