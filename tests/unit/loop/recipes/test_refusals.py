"""Settings refuse policies that PPO and Quark cannot train, before anything opens."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.recipes.refusals import require_sampling
from lpfloop.loop.run.run import Observed


def test_rollouts_need_the_whole_distribution(subtests):
    for name, value in (("top_p", 0.9), ("repetition_penalty", 1.1)):
        for recipe in ("ppo", "quark"):
            with subtests.test(name=name):
                narrow = load_config("tiny", recipe, (f"policy.sampling.{name}={value}",), {})
                with pytest.raises(
                    ConfigError, match=rf"^policy\.sampling\.{name} is {value}: {recipe} learns"
                ):
                    require_sampling(narrow, Observed(trainings=(recipe,)))
