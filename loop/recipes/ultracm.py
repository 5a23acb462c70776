"""UltraCM: a model of the critiques of a pool's completions (UltraFeedback, Section 2.6)."""

from ...configs.recipes import UltraCM
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.complete import complete
from ..stages.grade import grade_overall
from ..stages.lessons import demonstrate_grades
from ..stages.train import train

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "fine-tune on the grader's critiques with their scores: a model for grading.model"


def ultracm(it: Iteration, cfg: UltraCM) -> Checkpoint:
    """SFT on the grader's questions about each completion, and its replies (Section 2.6)."""
    completions = complete(it, it.prompts("preference"), n=cfg.n)  # y_i ~ pi_i(principle_i, x)
    return train(it, demonstrate_grades(it, completions, grade_overall(it, completions)))
