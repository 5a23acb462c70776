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


def test_tokens_of_quantiles_are_not_trained_by_adapters() -> None:
    settings = ("training.quark.train_on=all", "training.lora.r=4")
    with pytest.raises(ConfigError, match="new rows of the embedding"):
        require_sampling(RECIPES["quark"].recipe, load_config("tiny", "quark", settings, {}))
    alone = load_config("tiny", "quark", settings[:1], {})
    require_sampling(RECIPES["quark"].recipe, alone)
    require_sampling(RECIPES["ppo"].recipe, load_config("tiny", "ppo", settings, {}))
