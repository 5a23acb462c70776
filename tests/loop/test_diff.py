"""`lpfloop diff`: who flipped between two checkpoints, by how much, and how sure that is."""

import json
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import HELD_OUT, told_run, write_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.statistics.paired import change, mcnemar
from lpfloop.loop.lake.statistics.share_interval import same_change_interval
from lpfloop.stores.records import Prompt


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")
    write_run(folder, "empty", {0: {Prompt: HELD_OUT}})
    told_run(folder, "twin")
    told_run(folder)
    return folder


@pytest.fixture
def call(lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    return lambda *a: CliRunner().invoke(app, [*map(str, a), "--lake", str(lake)])


def document(told):
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def test_flips_are_counted_both_ways_and_tested(call):
    found = document(call("diff", "told", "--from", 0, "--to", 1, "--json"))
    accuracy = next(row for row in found["summary"] if row["metric"] == "math_accuracy")
    assert (accuracy["task"], accuracy["n"]) == ("math", 6)
    assert (accuracy["better"], accuracy["worse"]) == (3, 1)
    assert isclose(accuracy["difference"], 1 / 3)
    assert accuracy["low"] < 1 / 3 < accuracy["high"]
    assert accuracy["p_value"] == 0.625
    length = next(row for row in found["summary"] if row["metric"] == "mean_length")
    assert (length["difference"], length["low"], length["high"]) == (1, 1, 1)
    assert length["p_value"] is None


def test_the_changed_prompts_are_listed_with_ids_to_show(call):
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


def test_the_page_has_a_summary_and_the_largest_changes(call):
    told = call("diff", "told", "--limit", "2").stdout
    assert told.startswith("held-out: iteration 0 of run told → iteration 1 of run told")
    worse, better = told.split("1 values went down")[1].split("3 values went up")
    assert "prompt-14" in worse
    assert better.count("prompt-1") == 2


def test_answers_are_compared_word_by_word(call):
    told = call("diff", "told", "--answers").stdout
    assert "It is [-wrong-]{+right+}." in told
    assert "It is [-right-]{+wrong+}." in told
    rows = document(call("diff", "told", "--answers", "--json"))["changes"]
    assert (rows[0]["answer_before"], rows[0]["answer_after"]) == ("It is wrong.", "It is right.")


def test_one_metric_and_one_task_can_be_asked_for(call):
    found = document(call("diff", "told", "--metric", "mean_length", "--task", "math", "--json"))
    assert [row["metric"] for row in found["summary"]] == ["mean_length"]
    assert {row["metric"] for row in found["changes"]} == {"mean_length"}
    rows = call("diff", "told", "--format", "csv").stdout.splitlines()
    assert rows[0].startswith("task,metric,prompt_id,before,after,change,")
    assert len(rows) == 5


def test_two_runs_can_be_compared(call):
    same = document(call("diff", "told", "--from", 1, "--to-run", "twin", "--to", 1, "--json"))
    assert same["after"] == "iteration 1 of run twin"
    assert same["changes"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("told", "--from", 0, "--to", 5),
            "iteration 5 of run told was not measured on 'held-out'",
        ),
        (("told", "--to", 0), "nothing measured on 'held-out' before iteration 0"),
        (("told", "--benchmark", "mine"), "run told has nothing measured on 'mine'"),
        (("empty",), "run empty has nothing measured on 'held-out'"),
        (("told", "--metric", "m"), "there is no metric 'm' there; use one of math_accuracy"),
        (("told", "--task", "t"), "share no prompts with task 't'"),
        (("nobody",), "there is no run 'nobody'"),
    ],
)
def test_what_can_not_be_compared_is_refused(call, arguments, told):
    refused = call("diff", *arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert told in " ".join(refused.stderr.split())


# statistics


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (3, 1, 0.625), (10, 2, 158 / 4096)],
)
def test_mcnemar_is_the_exact_two_sided_binomial_test(better, worse, p):
    assert isclose(mcnemar(better, worse), p)
    assert mcnemar(better, worse) == mcnemar(worse, better)


VALUES = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=2, max_size=30)


@given(VALUES)
def test_the_interval_lies_within_what_was_seen_and_does_not_vary(pairs):
    before, after = zip(*pairs, strict=True)
    found = change(before, after)
    differences = [b - a for a, b in pairs]
    assert found.low is not None
    assert found.high is not None
    if len(set(differences)) == 1 and {*before, *after} <= {0.0, 1.0}:
        # That all of a few shares changed alike does not mean that all would.
        assert (found.low, found.high) == same_change_interval(differences[0], len(pairs))
        return
    assert min(differences) - 1e-9 <= found.low <= found.high <= max(differences) + 1e-9
    assert found == change(before, after)


def test_the_interval_covers_the_normal_one_on_many_prompts():
    before = [0.0] * 400
    after = [float(n % 4 == 0) for n in range(400)]
    found = change(before, after)
    half = 1.96 * (0.25 * 0.75 / 400) ** 0.5
    assert found.low == pytest.approx(0.25 - half, abs=0.01)
    assert found.high == pytest.approx(0.25 + half, abs=0.01)


def test_a_single_prompt_has_no_interval():
    found = change([0.0], [1.0])
    assert (found.low, found.high, found.p_value) == (None, None, 1.0)
