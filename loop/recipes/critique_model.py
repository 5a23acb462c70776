"""A critique model: the critic's critiques, learned by the policy's own weights (UltraFeedback)."""

from ...configs.recipes import CritiqueModel
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.critique import critique
from ..stages.lessons import demonstrate_critiques
from ..stages.sample import sample
from ..stages.train import train

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "supervised fine-tuning on critiques: the policy becomes a critic for --critic"


def critique_model(it: Iteration, cfg: CritiqueModel) -> Checkpoint:
    """SFT on the critic's questions about the policy's answers, and its replies (Sec. 2.6)."""
    drafts = sample(it, it.prompts(), n=cfg.n)
    return train(it, demonstrate_critiques(it, drafts, critique(it, drafts)))
