"""GRPO, RLOO and online DPO: groups of answers to a prompt, judged while the policy learns of them.

The trainer, its steps as units and their checkpoint are those of every method that samples while it
trains (`online_rl`). What is different is who rewards: the critic, the verifier and the reward
model, each by its weight, where the first two are asked in the middle of a step (`step_judges`).
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
    """M_t: the policy after DPO on pairs of its own answers as it draws them, a step a unit."""
    return _optimise(it, "online_dpo", prompts, rewards)


def _optimise(
    it: Iteration, method: Method, prompts: Prompts, rewards: RewardWeights
) -> Checkpoint:
    """Train the policy on groups; where the verifier has a say, on prompts that it can verify."""
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
    """Say how many prompts are left out, since nobody could reward an answer to them."""
    every, kept = (sum(map(len, of.chunks)) for of in (prompts, asked))
    if kept < every:
        it.run.reporter.note(
            f"{every - kept:,} of {every:,} prompts are left out: recipe.rewards.verifier counts, "
            "and the verifier has no verdict on answers to them",
            "warning",
            code="W-LEFT-OUT",
            iteration=it.number,
            left_out=every - kept,
        )
