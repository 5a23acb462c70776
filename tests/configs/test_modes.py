"""What AlpacaFarm's paper and its code do differently, as defaults under one name."""

from pathlib import Path

import pytest
import yaml

from lpfloop.configs.describe import fields
from lpfloop.configs.load import load_config
from lpfloop.configs.mode import MODES, modes
from lpfloop.configs.schema import PRESETS, ConfigError, RunConfig
from lpfloop.loop.daemon.control import resolved_at


def leaves(values, prefix=""):
    """Return the values of nested mappings by dotted path."""
    found = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        found |= leaves(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return found


def switches(mode: str) -> dict[str, object]:
    return leaves(yaml.safe_load((MODES / f"{mode}.yaml").read_text()))


def plain(folder: Path, text: str) -> str:
    """Write a file that extends no world, so that nothing ranks above the mode but what it says."""
    path = folder / "plain.yaml"
    path.write_text(text)
    return str(path)


def test_the_modes_are_those_of_the_schema() -> None:
    kinds = RunConfig.model_fields["mode"].annotation
    assert set(modes()) == set(kinds.__args__)


@pytest.mark.parametrize("mode", modes())
def test_all_modes_set_the_same_fields(mode) -> None:
    assert switches(mode).keys() == switches("fixed").keys()
    assert switches(mode).keys() <= {field.path for field in fields()}


def test_fixed_is_what_the_schema_says_anyway() -> None:
    defaults = {field.path: field.default for field in fields()}
    assert switches("fixed") == {path: defaults[path] for path in switches("fixed")}


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("variant", ["ppo", "best-of-n", "rlrf"])
def test_a_mode_is_what_its_file_says(tmp_path, mode, variant) -> None:
    path = plain(tmp_path, f"recipe: {{name: {variant}}}\n")
    config = load_config(path, None, [f"mode={mode}"], {})
    for field, value in switches(mode).items():
        if not field.startswith("recipe.") or variant == "best-of-n":
            assert resolved_at(config, field) == value, field


def test_a_mode_ranks_below_what_a_file_or_an_option_says(tmp_path) -> None:
    path = plain(tmp_path, "mode: faithful_code\nrecipe: {name: ppo}\nreward: {sees_end: true}\n")
    config = load_config(path, None, ["training.ppo.kl_estimator=k3"], {})
    assert config.reward.sees_end
    assert config.training.ppo.kl_estimator == "k3"
    assert config.training.ppo.whiten_rewards == "scale"


def test_the_last_mode_named_wins(tmp_path) -> None:
    path = plain(tmp_path, "mode: faithful_code\nrecipe: {name: ppo}\n")
    assert load_config(path, None, [], {}).annotation.keyed_on == "instruction"
    environment = {"LPFLOOP_MODE": "faithful_paper"}
    assert load_config(path, None, [], environment).training.ppo.kl_coef == 0.002
    assert load_config(path, None, ["mode=fixed"], environment).training.ppo.kl_coef == 0.0067


def test_a_mode_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--set: mode: .*'faithful_paper'.*not 'exact'"):
        load_config("paper", "ppo", ["mode=exact"], {})


def test_the_papers_preset_leaves_to_the_mode_what_it_decides() -> None:
    said = leaves(yaml.safe_load((PRESETS / "paper" / "alpacafarm.yaml").read_text()))
    assert not said.keys() & switches("fixed").keys()


@pytest.mark.parametrize("world", ["tiny", "paper"])
@pytest.mark.parametrize("variant", ["rlrf", "reward-only"])
def test_fixed_changes_nothing_of_the_papers_before(world, variant) -> None:
    assert load_config(world, variant, ["mode=fixed"], {}) == load_config(world, variant, [], {})


@pytest.mark.parametrize("field", switches("fixed"))
def test_the_guide_tells_of_every_switch(field) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "alpacafarm.md").read_text()
    order = ("fixed", "faithful_paper", "faithful_code")
    said = [
        str(value).lower() if isinstance(value, bool) else str(value)
        for value in (switches(mode)[field] for mode in order)
    ]
    assert f"| `{field}` | {' | '.join(said)} |" in guide
