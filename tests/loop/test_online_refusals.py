"""What PPO and Quark cannot train is refused by its settings, before anything is opened."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.sampling_needs import require_sampling


@pytest.mark.parametrize("variant", ["ppo", "quark"])
def test_adapters_are_trained_and_divided_networks_refused(variant: str) -> None:
    recipe = RECIPES[variant].recipe
    require_sampling(recipe, load_config("tiny", variant, ("training.lora.r=4",), {}))
    config = load_config("tiny", variant, ("training.sharding=fsdp2",), {})
    with pytest.raises(ConfigError, match=f"training.sharding is fsdp2: {variant} holds whole"):
        require_sampling(recipe, config)


def test_tokens_of_quantiles_are_not_trained_by_adapters() -> None:
    settings = ("training.quark.train_on=all", "training.lora.r=4")
    with pytest.raises(ConfigError, match="new rows of the embedding"):
        require_sampling(RECIPES["quark"].recipe, load_config("tiny", "quark", settings, {}))
    alone = load_config("tiny", "quark", settings[:1], {})
    require_sampling(RECIPES["quark"].recipe, alone)
    require_sampling(RECIPES["ppo"].recipe, load_config("tiny", "ppo", settings, {}))
