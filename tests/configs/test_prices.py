"""Prices by the models' names: a shipped table, one's own, and stated ones."""

from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.price_table import TABLES, prices_of
from lpfloop.configs.schema import ConfigError, ModelPrice, PriceConfig
from lpfloop.loop.daemon.control import with_live


def test_the_shipped_example_has_prices_of_names_as_they_are_served():
    assert TABLES.shipped() == ("example",)
    prices = prices_of(PriceConfig(table="example"))
    assert len(prices) > 10
    assert all(0 < p.prompt <= p.completion < 1000 for p in prices.values())


def test_a_table_of_ones_own_extends_the_example_and_stated_prices_go_before_it(tmp_path: Path):
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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prices:\n  - {name: a, prompt: -1, completion: 2}\n", "price 'a': prompt: must be"),
        ("prices:\n  - {name: a, prompt: 1}\n", "price 'a': the field 'completion' is missing"),
        ("prices:\n  - {prompt: 1, completion: 2}\n", "price 1 must be a mapping with a name"),
        ("prices:\n  - {name: a, prompt: 1, completion: 2, each: 3}\n", "unknown field 'each'"),
        ("prices: [\n", "line"),
        ("models: []\n", "unknown field 'models'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_file_and_entry(tmp_path: Path, text, told):
    table = tmp_path / "mine.yaml"
    table.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        prices_of(PriceConfig(table=str(table)))
    assert str(caught.value).startswith(str(table))


def test_a_table_that_is_not_there_is_refused_when_it_is_set_in_a_run(tmp_path: Path):
    config = load_config("tiny", "rlrf", [], {})
    with pytest.raises(ConfigError, match=r"no\.yaml: .*shipped are example"):
        with_live(config, "prices.table", str(tmp_path / "no.yaml"))
