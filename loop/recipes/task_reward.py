"""The task-augmented reward model: preferences, and right answers against wrong (RLRF, Table 1)."""

from ...configs.recipes import TaskReward
from ...stores.records import Checkpoint, Pair
from ..run.handles import JudgedRows, Rows
from ..run.iteration import Iteration
from ..stages.critique import verify
from ..stages.data_mixture import weigh
from ..stages.pair import pair
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.train import keep_policy, train_reward
from .annotated_pairs import annotate_pairs

PAPER = "RLRF (Lee et al., 2024)"
SUMMARY = "train a reward model on preferences and on right answers against wrong ones"
RIGHT = "success_vs_failure"
UNVERIFIABLE = (
    "no prompt can be verified, so no right answers are paired with wrong ones: the verifier needs "
    "math with a reference, checks, or critic.verifier=./FILE.py:NAME"
)


def task_reward(it: Iteration, cfg: TaskReward) -> Checkpoint:
    """Fit Bradley-Terry to compared answers, and to answers that the verifier separates."""
    pairs: list[Rows[Pair]] = []
    if cfg.weights.preferred:
        pairs.append(annotate_pairs(it, cfg))
    if cfg.weights.verified:
        pairs.append(pair_verified(it, cfg))
    train_reward(it, weigh(it, pairs, {RIGHT: cfg.weights.verified}, others=cfg.weights.preferred))
    return keep_policy(it)


def pair_verified(it: Iteration, cfg: TaskReward) -> Rows[Pair]:
    """(x, y+, y-): answers of the policy that are right, each against a wrong one."""
    prompts = it.verifiable(it.prompts())
    if not prompts.chunks:
        it.run.reporter.note(UNVERIFIABLE, "warning", code="W-UNVERIFIED", iteration=it.number)
    drafts = sample(it, prompts, n=cfg.best_of, label="sample:verifiable", purpose="verifiable")
    judged = JudgedRows(candidates=drafts, critiques=verify(it, drafts), rewards=reward(it, drafts))
    return pair(it, judged, rule=RIGHT, top_k=cfg.top_k)
