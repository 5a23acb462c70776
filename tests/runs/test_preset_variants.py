import pytest

from lpfloop.configs.load import load_config, presets, variants
from lpfloop.configs.schema import ConfigError

SMOL = "rlrf", "grpo", "rloo", "online-dpo"
"""What the world of one verifier and no judge has."""


def test_presets_load_every_variant(subtests):
    for variant in variants():
        for world in presets():
            if world != "smol" or variant in SMOL:
                with subtests.test(case=variant):
                    assert load_config(world, variant, (), {}).recipe.name == variant


def test_a_variant_that_a_world_lacks():
    with pytest.raises(ConfigError, match="--config own --variant sft"):
        load_config("smol", "sft", (), {})
