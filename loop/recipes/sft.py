"""Supervised fine-tuning on people's answers (AlpacaFarm's SFT 10k, Section 4.1)."""

from ...configs.recipes import SFT
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.supervised_set import demonstrations
from ..stages.train import train

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on people's demonstrations"


def sft(it: Iteration, _cfg: SFT) -> Checkpoint:
    """Maximise the likelihood of demonstrations, response and end token alone."""
    return train(it, demonstrations(it, it.prompts("sft")))
