"""Settings that methods refuse together, and defaults that follow from other settings."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.methods import DPOTraining, PPOTraining
from lpfloop.configs.schema import ConfigError

RELATIVE = "training.ppo.reference_reward=true"


def ppo(*overrides: str) -> PPOTraining:
    return load_config("tiny", "ppo", overrides, {}).training.ppo


def test_relative_rewards_not_whitened() -> None:
    assert ppo().whiten_advantages == "batch"
    relative = ppo(RELATIVE)
    assert (relative.whiten_rewards, relative.whiten_advantages) == ("none", "none")
    with pytest.raises(ConfigError, match="set whiten_rewards to none"):
        ppo(RELATIVE, "training.ppo.whiten_rewards=scale")


def dpo(*overrides: str) -> DPOTraining:
    fields = [f"training.dpo.{each}" for each in overrides]
    return load_config("tiny", "rlrf", fields, {}).training.dpo


def test_dpo_loss_refused(subtests):
    for fields, said in [
        (["loss=ipo", "chosen_penalty=5"], "chosen_penalty is part of loss=sigmoid .*loss=ipo"),
        (["loss=robust", "chosen_penalty=0"], "label_smoothing and loss=robust go together"),
        (["loss=kto"], "loss"),
    ]:
        with subtests.test(case=said), pytest.raises(ConfigError, match=said):
            dpo(*fields)
