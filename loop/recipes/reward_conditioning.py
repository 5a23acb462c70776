"""Binary reward conditioning: learn good and bad answers apart, then ask for good ones.

AlpacaFarm, Section 2.2. The checkpoint is sampled behind the positive control text from then on.
"""

from ...configs.recipes import RewardConditioning
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.prefer import condition
from ..stages.train import train
from .annotated_pairs import compare_answers
from .trial_settings import trials

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on both answers of a pair, each behind a control text"
TRIALS = trials("sft", {"training.sft.epochs": 2.0})


def reward_conditioning(it: Iteration, cfg: RewardConditioning) -> Checkpoint:
    """Imitate both answers of each pair, conditioned on which one won."""
    answers, preferences = compare_answers(it, cfg)
    both = condition(it, answers, preferences, positive=cfg.positive, negative=cfg.negative)
    return train(it, both)
