"""`lpfloop diff`: prompts that flipped between two checkpoints, differences, confidence."""

import json
from math import isclose

import pytest
from lakes import HELD_OUT, told_run, write_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.measured_change import measured_change
from lpfloop.stores.records import Prompt


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")
    write_run(folder, "empty", {0: {Prompt: HELD_OUT}})
    told_run(folder, "twin")
    told_run(folder)
    return folder


@pytest.fixture
def call(lake, environ):
    environ["COLUMNS"] = "140"
    return lambda *a: CliRunner().invoke(app, [*map(str, a), "--lake", str(lake)])


def document(told):
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def test_model_of_another_run(call):
    found = document(call("diff", "told", "--from", 0, "--to", "twin:M_1", "--json"))
    same = document(call("diff", "told", "--from", 0, "--to", 1, "--json"))
    assert found["summary"] == same["summary"]


def test_flips_are_counted_and_tested(call):
    found = document(call("diff", "told", "--from", 0, "--to", 1, "--json"))
    accuracy = next(row for row in found["summary"] if row["metric"] == "math_accuracy")
    assert (accuracy["task"], accuracy["n"]) == ("math", 6)
    assert (accuracy["better"], accuracy["worse"]) == (3, 1)
    assert isclose(accuracy["difference"], 1 / 3)
    assert accuracy["low"] < 1 / 3 < accuracy["high"] <= 1
    length = next(row for row in found["summary"] if row["metric"] == "mean_length")
    assert length["difference"] == 1


def test_changed_prompts_are_listed(call):
    rows = document(call("diff", "told", "--json"))["changes"]
    assert [(row["prompt_id"], row["change"]) for row in rows] == [
        ("prompt-10", 1),
        ("prompt-11", 1),
        ("prompt-12", 1),
        ("prompt-14", -1),
    ]
    assert rows[0]["candidate_after"] == "cand-greedy-1-prompt-10"
    assert (rows[0]["length_before"], rows[0]["length_after"]) == (10, 11)
    shown = call("show", rows[0]["candidate_after"])
    assert "measured: math_accuracy 1, mean_length 11" in shown.stdout


def test_refusals(call, subtests):
    for arguments, told in [
        (
            ("told", "--from", 0, "--to", 5),
            "iteration 5 of run told",
        ),
        (("told", "--benchmark", "mine"), "run told was not measured on 'mine'"),
        (("told", "--metric", "m"), "no metric 'm' there"),
        (("nobody",), "no run 'nobody'"),
    ]:
        with subtests.test(case=told):
            refused = call("diff", *arguments)
            assert refused.exit_code == 2
            assert refused.stdout == ""
            assert told in " ".join(refused.stderr.split())


# statistics


def test_interval_covers_the_normal_one():
    before = [0.0] * 400
    after = [float(n % 4 == 0) for n in range(400)]
    alone = [str(n) for n in range(400)]
    found = measured_change("verified", before, after, alone)
    half = 1.96 * (0.25 * 0.75 / 400) ** 0.5
    assert found.low == pytest.approx(0.25 - half, abs=0.01)
    assert found.high == pytest.approx(0.25 + half, abs=0.01)
    single = measured_change("verified", [0.0], [1.0], ["a"])
    assert (single.low, single.high) == (None, None)


def test_no_change_is_as_sure_as_n():
    few, many = (
        measured_change("verified", [0.0] * n, [0.0] * n, [str(i) for i in range(n)])
        for n in (10, 1000)
    )
    assert few.low == -few.high
    assert few.high > 10 * many.high > 0
