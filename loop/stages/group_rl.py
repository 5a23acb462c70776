"""GRPO, RLOO and online DPO: groups of answers to a prompt, judged while the policy trains on them.

The trainer, its steps as units and their checkpoint are the same as for every method that samples
while it trains (`online_rl`). Only the reward differs: a weighted sum of critic, verifier and
reward model. Critic and verifier judge in the middle of a step (`step_judges`).
"""

from dataclasses import replace

from ...configs.grouped_recipes import Grouped, RewardWeights
from ...policies.trainers.job import Method
from ...stores.records import Checkpoint
from ..run.handles import Prompts
from ..run.iteration import Iteration
from .online_rl import trained_online
from .online_work import OnlineTraining
from .step_judges import StepJudges
from .supervised_set import supervision


def train_grpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after GRPO on groups of answers to these prompts, a step a unit."""
    return _optimise(it, "grpo", prompts, rewards)


def train_rloo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after REINFORCE against the mean of the other answers, a step a unit."""
    return _optimise(it, "rloo", prompts, rewards)


def train_online_dpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after DPO on pairs of answers sampled during training, a step a unit."""
    return _optimise(it, "online_dpo", prompts, rewards)


def _optimise(
    it: Iteration, method: Method, prompts: Prompts, rewards: RewardWeights
) -> Checkpoint:
    """Train the policy on groups; if the verifier has a weight, on prompts that it can verify."""
    it.require(Grouped, f"train_{method}")
    asked = it.verifiable(prompts) if rewards.verifier else prompts
    _tell_left_out(it, prompts, asked)
    training = OnlineTraining(
        it=it,
        method=method,
        prompts=asked,
        reward=None,
        judges=StepJudges(it=it, rewards=rewards),
    )
    training.require_trainable()
    return trained_online(replace(training, supervision=supervision(it)))


def _tell_left_out(it: Iteration, prompts: Prompts, asked: Prompts) -> None:
    """Log the number of prompts that are skipped because the verifier cannot judge them."""
    every, kept = (sum(map(len, of.chunks)) for of in (prompts, asked))
    if kept < every:
        it.run.reporter.note(
            f"{every - kept:,} of {every:,} prompts are left out: recipe.rewards.verifier counts, "
            "and the verifier cannot judge answers to them",
            "warning",
            code="W-LEFT-OUT",
            iteration=it.number,
            left_out=every - kept,
        )
