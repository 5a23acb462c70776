"""What methods refuse together, and which defaults follow from which setting."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.methods import DPOTraining, PPOTraining
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


def dpo(*overrides: str) -> DPOTraining:
    fields = [f"training.dpo.{each}" for each in overrides]
    return load_config("tiny", "rlrf", fields, {}).training.dpo


def test_remedies_of_dpo_say_nothing_until_they_are_set() -> None:
    new = {"loss", "chosen_penalty", "label_smoothing"}
    assert not new & set(DPOTraining().model_dump())
    assert load_config("paper", "rlrf", (), {}).training.dpo.loss == "sigmoid"
    told = dpo("chosen_penalty=5", "sft_weight=0.3").model_dump(mode="json")
    assert told["chosen_penalty"] == 5
    assert DPOTraining.model_validate(told).sft_weight == 0.3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["loss=ipo", "chosen_penalty=5"], "chosen_penalty is part of loss=sigmoid .*loss=ipo"),
        (["label_smoothing=0.1"], "label_smoothing and loss=robust go together"),
        (["loss=robust", "chosen_penalty=0"], "label_smoothing and loss=robust go together"),
        (["loss=kto"], "loss"),
        (["chosen_penalty=-1"], "chosen_penalty"),
    ],
)
def test_a_loss_is_refused_with_what_it_does_not_have(fields: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dpo(*fields)
