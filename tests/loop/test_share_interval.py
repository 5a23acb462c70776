"""The interval of a share: never empty, and the published one."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import prompt, write_run
from typer.testing import CliRunner

from examples import CHECKPOINT, SCORE
from lpfloop.loop.cli.app import app
from lpfloop.loop.evaluation.metrics import summarise
from lpfloop.loop.lake.statistics.paired import change
from lpfloop.loop.lake.statistics.share_interval import (
    same_change_interval,
    share_interval,
    wilson,
)
from lpfloop.stores.records import Checkpoint, Evaluation, Prompt, Score


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    # Newcombe 1998, Table I, method 3.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_that_of_newcombes_table(right, n, low, high):
    found = wilson(right / n, n)
    assert found == pytest.approx((low, high), abs=6e-5)


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_an_interval_holds_its_share_and_is_never_empty(share, n):
    low, high = wilson(share, n)
    assert 0 <= low < high <= 1
    assert low <= share + 1e-12
    assert high >= share - 1e-12


def test_an_error_says_how_many_draws_prompts_are_worth():
    independent = share_interval(0.5, 0.05, 100)
    clustered = share_interval(0.5, 0.1, 100)
    assert independent == pytest.approx(wilson(0.5, 100))
    assert clustered == pytest.approx(wilson(0.5, 25))
    assert share_interval(1.0, 0.0, 40) == wilson(1.0, 40)
    assert share_interval(0.5, None, 40) is None
    assert share_interval(23.1, 0.0, 40) is None, "a length is no share"


def test_a_change_of_nobody_is_as_sure_as_there_are_prompts():
    few, many = change([0.0] * 10, [0.0] * 10), change([0.0] * 1000, [0.0] * 1000)
    assert (few.low, few.high) == same_change_interval(0.0, 10)
    assert few.high > 10 * many.high > 0
    lengths = change([23.0] * 10, [23.0] * 10)
    assert (lengths.low, lengths.high) == (0, 0)


PROMPTS = [prompt(n, task="poems", split="held-out") for n in range(40)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A run whose first model has none of 40 right, and whose second has all."""
    folder = tmp_path_factory.mktemp("shares")
    tables = {}
    for number in (0, 1):
        identity = f"{number}" * 64
        rows = [
            replace(
                SCORE,
                iteration=number,
                checkpoint_id=identity,
                benchmark="held-out",
                metric="math_accuracy",
                prompt_id=p.prompt_id,
                candidate_id=f"cand-{number}-{p.prompt_id}",
                value=float(number),
            )
            for p in PROMPTS
        ]
        tables[number] = {
            Checkpoint: [replace(CHECKPOINT, iteration=number, checkpoint_id=identity)],
            Score: rows,
            Evaluation: summarise(rows),
        }
    tables[0][Prompt] = PROMPTS
    write_run(folder, "sure", tables)
    return folder


@pytest.mark.parametrize(
    "command", [("status",), ("compare",), ("model", "M_1"), ("diff", "--from", "0", "--to", "1")]
)
def test_no_command_shows_an_empty_interval_of_a_share(lake, command):
    word, *more = command
    told = CliRunner().invoke(
        app, [word, "sure", *more, "--lake", str(lake)], env={"COLUMNS": "120"}
    )
    assert told.exit_code == 0, told.stderr
    assert "±0.0" not in told.stdout
    assert "100.0, 100.0" not in told.stdout
    assert "0.0, 0.0" not in told.stdout
    assert "+1.000, +1.000" not in told.stdout


def test_json_carries_the_bounds(lake):
    told = CliRunner().invoke(app, ["status", "sure", "--json", "--lake", str(lake)])
    number = json.loads(told.stdout)["iterations"][0]["metrics"]["math_accuracy"]
    assert (number["low"], number["high"]) == wilson(0.0, 40)
