"""Online DPO: pairs of the policy's own answers, judged as they are drawn (Guo et al., 2024)."""

from ...configs.recipes import OnlineDPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_online_dpo
from ..stages.select_prompts import filter_variance
from .trial_settings import trials

PAPER = "OAIF (Guo et al., 2024)"
SUMMARY = "draw answers, judge them, train on the best against the worst by DPO, step after step"
TRIALS = trials("online_dpo", {"training.online_dpo.beta": 3.0})


def online_dpo(it: Iteration, cfg: OnlineDPO) -> Checkpoint:
    """Raise the better of y_1, y_2 ~ pi(x) over the worse, relative to M_0, step after step."""
    prompts = filter_variance(it, it.prompts(), None)
    return train_online_dpo(it, prompts, rewards=cfg.rewards)
