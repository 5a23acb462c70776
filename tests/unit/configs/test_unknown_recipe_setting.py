import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError


def test_unknown_recipe_setting_lists_the_known():
    with pytest.raises(ConfigError, match=r"this recipe has m, n, .*top_k"):
        load_config("tiny", None, ["recipe.k=3"], {})
