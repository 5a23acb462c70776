"""A critique model: the critic's critiques, learned by the policy's own weights (UltraFeedback)."""

from ...configs.recipes import CritiqueModel
from ...stores.records import Checkpoint
from .iteration import Iteration

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "supervised fine-tuning on critiques: the policy becomes a critic for --critic"


def critique_model(it: Iteration, cfg: CritiqueModel) -> Checkpoint:
    """SFT on what the critic was asked about the policy's answers, and what it said (Sec. 2.6)."""
    drafts = it.sample(it.prompts(), n=cfg.n)
    return it.train(it.demonstrate_critiques(drafts, it.critique(drafts)))
