"""What AlpacaFarm's paper and its code do differently, as defaults under one name."""

import pytest
import yaml

from lpfloop.configs.load import load_config
from lpfloop.configs.mode import MODES, modes
from lpfloop.loop.daemon.control import resolved_at

pytestmark = pytest.mark.slow


def leaves(values, prefix=""):
    """Return the values of nested mappings by dotted path."""
    found = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        found |= leaves(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return found


def test_mode_is_its_file(subtests, tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text("recipe: {name: best-of-n}\n")
    for mode in modes():
        with subtests.test(case=mode):
            config = load_config(str(path), None, [f"mode={mode}"], {})
            switches = leaves(yaml.safe_load((MODES / f"{mode}.yaml").read_text()))
            for field, value in switches.items():
                assert resolved_at(config, field) == value, field
