import pytest

from lpfloop.configs.load import load_config, presets, variants
from lpfloop.configs.schema import ConfigError

ASKING = ("ultrafeedback", "ultracm", "chatglm")
"""What the beginnings of variants are called that ask judges, whom the world smol does not have."""


def test_presets_load_every_variant(subtests):
    for variant in variants():
        for world in presets():
            if world != "smol" or not variant.startswith(ASKING):
                with subtests.test(case=variant):
                    assert load_config(world, variant, (), {}).recipe.name == variant


def test_a_variant_that_a_world_lacks():
    with pytest.raises(ConfigError, match="--config own --variant chatglm-dpo"):
        load_config("smol", "chatglm-dpo", (), {})
