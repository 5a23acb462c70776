"""KTO: trains on single successes and failures, without pairs (Ethayarajh et al., 2024).

A prompt whose answers are all good, or all bad, cannot give a pair, but is used here.
"""

from ...configs.recipes import KTO
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from ..run.iteration import Iteration
from ..stages.critique import critique
from ..stages.pair import unpair
from ..stages.sample import sample
from ..stages.train import train
from .trial_settings import trials

PAPER = "KTO (Ethayarajh et al., 2024)"
SUMMARY = "each answer is a success or a failure by its critique; no pairs, KTO"
TRIALS = trials("kto", {"training.kto.beta": 3.0})


def kto(it: Iteration, cfg: KTO) -> Checkpoint:
    """Train on the critic's verdicts on the policy's own samples."""
    drafts = sample(it, it.prompts(), n=cfg.n)  # y_i ~ pi(x)
    feedback = critique(it, drafts)  # f(x, y_i)
    judged = JudgedRows(candidates=drafts, critiques=feedback)
    return train(it, unpair(it, judged))  # desirable: 1 on all aspects; undesirable: any 0 or -1
