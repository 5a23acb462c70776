"""What PPO and Quark cannot train is refused by its settings, before anything is opened."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.sampling_needs import require_sampling


@pytest.mark.parametrize("variant", ["ppo", "quark"])
def test_networks_are_divided_or_carry_adapters_but_not_both(variant: str) -> None:
    recipe = RECIPES[variant].recipe
    divided, adapted = "training.sharding=fsdp2", "training.lora.r=4"
    for setting in (divided, adapted):
        require_sampling(recipe, load_config("tiny", variant, (setting,), {}))
    both = load_config("tiny", variant, (divided, adapted), {})
    with pytest.raises(ConfigError, match="over one body, which each process holds whole"):
        require_sampling(recipe, both)


@pytest.mark.parametrize("variant", ["ppo", "quark"])
@pytest.mark.parametrize(
    ("name", "value"), [("top_p", 0.9), ("top_k", 20), ("min_p", 0.1), ("repetition_penalty", 1.1)]
)
def test_rollouts_are_drawn_from_all_that_the_policy_says(variant, name, value) -> None:
    recipe = RECIPES[variant].recipe
    narrow = load_config("tiny", variant, (f"policy.sampling.{name}={value}",), {})
    with pytest.raises(
        ConfigError, match=rf"^policy\.sampling\.{name} is {value}: {variant} learns"
    ):
        require_sampling(recipe, narrow)
    # The answers of pairs are no rollouts.
    require_sampling(recipe, load_config("tiny", variant, ("mode=faithful_code",), {}))


def test_tokens_of_quantiles_are_not_trained_by_adapters() -> None:
    settings = ("training.quark.train_on=all", "training.lora.r=4")
    with pytest.raises(ConfigError, match="new rows of the embedding"):
        require_sampling(RECIPES["quark"].recipe, load_config("tiny", "quark", settings, {}))
    alone = load_config("tiny", "quark", settings[:1], {})
    require_sampling(RECIPES["quark"].recipe, alone)
    require_sampling(RECIPES["ppo"].recipe, load_config("tiny", "ppo", settings, {}))
