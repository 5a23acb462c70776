"""Prices by models' names: the shipped table, the user's, and stated prices."""

from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.pools import TABLES, prices_of
from lpfloop.configs.schema import ConfigError, ModelPrice, PriceConfig


def test_shipped_example():
    assert TABLES.shipped_names() == ("example",)
    prices = prices_of(PriceConfig(table="example"))
    assert len(prices) > 10
    assert all(0 < p.prompt <= p.completion < 1000 for p in prices.values())


def test_own_table_extends(tmp_path: Path):
    table = tmp_path / "mine.yaml"
    table.write_text(
        "extends: example\nprices:\n  - {name: o3, completion: 9}\n"
        "  - {name: judge, prompt: 1, completion: 2}\n"
    )
    stated = (
        "prices.models={judge: {prompt: 3, completion: 4}, my/model: {prompt: 0, completion: 0}}"
    )
    config = load_config("tiny", "rlrf", [f"prices.table={table}", stated], {})
    prices = prices_of(config.prices)
    assert (prices["o3"].prompt, prices["o3"].completion) == (2.0, 9.0)
    assert prices["judge"] == ModelPrice(prompt=3, completion=4)
    assert prices["my/model"] == ModelPrice(prompt=0, completion=0)


def test_bad_table_refused(subtests, tmp_path: Path):
    for text, told in [
        ("prices:\n  - {name: a, prompt: -1, completion: 2}\n", "price 'a': prompt: must be"),
        ("prices:\n  - {prompt: 1, completion: 2}\n", "price 1 must be a mapping with a name"),
        ("prices: [\n", "line"),
        ("models: []\n", "unknown field 'models'"),
    ]:
        with subtests.test(case=told):
            table = tmp_path / "mine.yaml"
            table.write_text(text)
            with pytest.raises(ConfigError, match=told) as caught:
                prices_of(PriceConfig(table=str(table)))
            assert str(caught.value).startswith(str(table))
