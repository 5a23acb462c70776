"""Common parts of UltraFeedback's methods: pairs of graded completions, and their reward model."""

from ...configs.recipes import Graded, Rewarded
from ...stores.records import Pair, RewardModel
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..stages.complete import complete
from ..stages.grade import grade, grade_overall
from ..stages.mix import mix_pairs
from ..stages.pair import binarise
from ..stages.train import train_reward


def graded_pairs(it: Iteration, cfg: Graded) -> Rows[Pair]:
    """(x, y+, y-): completions of a pool of models, graded and binarised, and the mixed-in pairs.

    The rule decides which grades are needed: the four aspects, or an overall score. As the
    published data has both, the other grades can be requested, too.
    """
    completions = complete(it, it.prompts("preference"), n=cfg.n)  # y_i ~ pi_i(principle_i, x)
    by_overall = cfg.binarisation == "overall"
    needed, other = (grade_overall, grade) if by_overall else (grade, grade_overall)
    grades = needed(it, completions)
    if cfg.grades == "both":
        other(it, completions)
    pairs = binarise(it, completions, grades, rule=cfg.binarisation)
    return mix_pairs(it, pairs, cfg.mix)


def graded_reward(it: Iteration, cfg: Graded) -> RewardModel | None:
    """r: the configured reward model (None), or else one that is trained on graded pairs."""
    it.require(Rewarded, "graded_reward")
    if it.has_reward:
        return None
    return train_reward(it, graded_pairs(it, cfg))
