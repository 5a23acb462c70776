"""What methods refuse together, and which defaults follow from which setting."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.methods import PPOTraining
from lpfloop.configs.schema import ConfigError

RELATIVE = "training.ppo.reference_reward=true"


def ppo(*overrides: str) -> PPOTraining:
    return load_config("tiny", "ppo", overrides, {}).training.ppo


def test_relative_rewards_are_not_normalised_unless_somebody_says_so() -> None:
    assert ppo().whiten_advantages == "batch"
    relative = ppo(RELATIVE)
    assert (relative.whiten_rewards, relative.whiten_advantages) == ("none", "none")


def test_what_a_job_stores_of_them_is_read_as_it_was() -> None:
    for settings in (ppo(), ppo(RELATIVE)):
        assert PPOTraining.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize("field", ["whiten_advantages=batch", "whiten_rewards=scale"])
def test_both_a_reference_reward_and_normalisation_are_refused_in_a_sentence(field: str) -> None:
    name = field.split("=", maxsplit=1)[0]
    with pytest.raises(ConfigError, match=f"takes the place of normalisation: set {name} to none"):
        ppo(RELATIVE, f"training.ppo.{field}")
