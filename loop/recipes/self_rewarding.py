"""Self-rewarding language models: the policy is its own judge, iteration after iteration."""

from ...configs.recipes import SelfRewarding
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from ..run.iteration import Iteration
from ..stages.critique import critique
from ..stages.pair import pair
from ..stages.sample import sample
from ..stages.train import train
from .trial_settings import trials

PAPER = "Self-rewarding (Yuan et al., 2024)"
SUMMARY = "judge own answers by own weights, pair the best with the worst, DPO, again"
TRIALS = trials("dpo", {"training.dpo.beta": 3.0})


def self_rewarding(it: Iteration, cfg: SelfRewarding) -> Checkpoint:
    """M_{t-1} answers and judges its answers; M_t is trained by DPO from and against M_{t-1}."""
    drafts = sample(it, it.prompts(), n=cfg.n)  # y_i ~ M_{t-1}(x)
    judgements = critique(it, drafts, judge=cfg.judge)  # r_i: the mean of M_{t-1}'s ratings of y_i

    judged = JudgedRows(candidates=drafts, critiques=judgements)
    # (x, argmax r_i, argmin r_i): a prompt whose answers are all rated alike is skipped.
    return train(it, pair(it, judged, rule="rating_extremes", top_k=1))
