"""Win-rates by hand-computed values: the mean, its error, pairs of models, equal lengths."""

import json
import math
import re
from statistics import fmean, stdev

import numpy as np
import pytest
from commands import call
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.alpaca_eval import read_annotations, source_of
from lpfloop.loop.evaluation.instruction_difficulty import difficulties_of
from lpfloop.loop.evaluation.length_control import (
    Compared,
    LengthControlled,
    Uncontrolled,
    length_controlled,
)
from lpfloop.loop.evaluation.logistic_fit import penalised
from lpfloop.loop.evaluation.result_sources import refuse_unlike
from lpfloop.loop.evaluation.win_rate_report import lead, standings
from lpfloop.loop.lake.statistics.bootstrap import mean_interval
from lpfloop.loop.lake.statistics.win_rate import difference, win_rate

PREFERENCES = st.none() | st.sampled_from([0, 1, 1.5, 2]) | st.floats(1, 2)


def row(number, preference, **fields):
    return {
        "instruction": f"instruction {number}",
        "output_1": "of the reference",
        "output_2": "of the model",
        "generator_1": "davinci",
        "generator_2": "alpaca",
        "preference": preference,
    } | fields


def written(folder, rows, name="annotations.json"):
    path = folder / name
    path.write_text(json.dumps(rows))
    return path


# the mean and its error


def test_a_draw_counts_half_and_what_was_not_read_is_left_out():
    found = win_rate([1, 2, 2, 0, 1.5, 1.25, None], list("abcdefg"))
    # (0 + 1 + 1 + 1/2 + 1/2 + 1/4) / 6, and the squares of the distances from it over 5.
    assert math.isclose(found.win_rate, 100 * 3.25 / 6)
    squares = (3.25 / 6) ** 2 + 2 * (2.75 / 6) ** 2 + 2 * (0.25 / 6) ** 2 + (1.75 / 6) ** 2
    assert math.isclose(found.standard_error, 100 * math.sqrt(squares / 5 / 6))
    assert (found.n, found.n_draws, found.n_unscored) == (6, 2, 1)


def test_one_preference_has_no_standard_error():
    found = win_rate([2], ["a"])
    assert (found.win_rate, found.standard_error, found.interval) == (100.0, None, (100.0, 100.0))


def test_without_a_verdict_there_is_no_win_rate():
    with pytest.raises(ValueError, match="no preference could be read"):
        win_rate([None, None], ["a", "b"])


@settings(max_examples=50)
@given(first=st.floats(1, 2), rest=st.lists(PREFERENCES, max_size=30))
def test_the_win_rate_is_the_mean_of_preference_less_one(first, rest):
    preferences = [first, *rest]
    found = win_rate(preferences, [str(n) for n in range(len(preferences))])
    read = [(1.5 if p == 0 else p) - 1 for p in preferences if p is not None]
    assert math.isclose(found.win_rate, 100 * fmean(read), abs_tol=1e-9)
    if len(read) > 1:
        error = 100 * stdev(read) / math.sqrt(len(read))
        assert math.isclose(found.standard_error, error, abs_tol=1e-9)
    assert found.n + found.n_unscored == len(preferences)


def test_an_interval_covers_its_mean_in_about_95_of_100_draws():
    rng = np.random.default_rng(7)
    covered = 0
    for number in range(200):
        values = rng.random(80)
        found = mean_interval(list(values), np.arange(80), draws=500, seed=number)
        covered += found.low <= 0.5 <= found.high
    assert 180 <= covered <= 198


def test_answers_to_one_prompt_are_resampled_together():
    rng = np.random.default_rng(0)
    values = np.repeat(rng.integers(2, size=100).astype(float), 10)
    rows = np.arange(1000)
    together = mean_interval(list(values), rows // 10, draws=10_000, seed=0)
    alone = mean_interval(list(values), rows, draws=10_000, seed=0)
    assert together.standard_error > 2.5 * alone.standard_error


# two models


def test_what_two_models_share_does_not_widen_their_difference():
    hard = {str(n): float(n % 2) for n in range(200)}
    better = {prompt: min(value + 0.1, 1.0) for prompt, value in hard.items()}
    found = difference(hard, better)
    assert math.isclose(found.value, 0.05)
    assert found.interval[0] > 0.04
    assert found.interval[1] < 0.06


def test_only_prompts_of_both_are_compared():
    found = difference({"a": 0.0, "b": 1.0, "c": 1.0}, {"b": 1.0, "c": 0.0, "d": 1.0})
    assert (found.value, found.n) == (-0.5, 2)
    assert difference({"a": 1.0}, {"b": 1.0}) is None


# at equal lengths


def compared(won, longer, **fields):
    prompts = [str(n) for n in range(len(won))]
    return Compared(won=list(won), longer_by=[int(x) for x in longer], prompts=prompts, **fields)


def judged(rng, n, *, level, likes, mean=0.0):
    """Return wins and differences of length, in units of their spread, of a judge who likes so."""
    longer = 1000 * rng.normal(mean, 1, size=n)
    odds = level + likes * np.tanh(longer / longer.std(ddof=1))
    return (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(float), longer


@given(
    wins=st.lists(st.booleans(), min_size=6, max_size=40),
    lengths=st.lists(st.integers(-5000, 5000), min_size=40, max_size=40),
    likes=st.floats(-3, 3),
)
def test_the_fit_is_where_the_gradients_of_data_and_prior_cancel(wins, lengths, likes):
    targets = np.array([*wins, True, False], dtype=float)
    features = np.column_stack([np.ones(len(targets)), np.tanh(np.resize(lengths, len(targets)))])
    weights = 1.0 + np.arange(len(targets)) % 3
    mean, precision = np.array([0.0, likes]), np.diag([0.0, 4.0])
    found = penalised(features, targets, weights, mean, precision)
    missed = weights * (1 / (1 + np.exp(-(features @ found))) - targets)
    assert np.allclose(features.T @ missed + precision @ (found - mean), 0, atol=1e-6)


def test_equal_lengths_leave_the_win_rate_as_it_is():
    found = length_controlled(compared([1.0] * 300 + [0.0] * 100, [0] * 400))
    assert math.isclose(found.win_rate, 75, abs_tol=1e-6)
    assert math.isclose(found.from_data, 0, abs_tol=1e-6)
    assert found.remarks == ()


def test_few_comparisons_do_not_draw_a_win_rate_to_a_half():
    won, longer = [1.0] * 14 + [0.0] * 6, [0] * 20
    assert math.isclose(length_controlled(compared(won, longer)).win_rate, 70, abs_tol=1e-6)


def test_a_judge_who_likes_length_is_corrected_for_it():
    rng = np.random.default_rng(3)
    won, longer = judged(rng, 2000, level=0.0, likes=1.2, mean=0.8)
    found = length_controlled(compared(won, longer))
    assert 100 * won.mean() > 60
    assert abs(found.win_rate - 50) < 3 * found.standard_error
    assert found.length_effect > 0.8
    assert 1 < found.standard_error < 6


@pytest.mark.parametrize(("level", "lost"), [(-2.2, "shorter"), (2.2, "longer")])
def test_answers_on_one_side_of_the_reference_are_corrected_as_published(level, lost):
    # All answers differ alike, so these data alone would fit any effect of length.
    rng = np.random.default_rng(4)
    side = -1 if lost == "shorter" else 1
    won = (rng.random(805) < 1 / (1 + math.exp(-level))).astype(float)
    found = length_controlled(compared(won, side * rng.integers(900, 1100, size=805)))
    raw = 100 * won.mean()
    assert found.from_data < 0.2
    assert 0.5 < found.length_effect < 1.5
    assert 3 < side * (raw - found.win_rate) < 20
    other = "longer" if lost == "shorter" else "shorter"
    assert f"only 0% of the answers are {other} than the reference's" in " ".join(found.remarks)


def test_the_error_grows_with_what_equal_lengths_extrapolate():
    rng = np.random.default_rng(5)
    won, longer = judged(rng, 805, level=0.0, likes=1.0)
    near = length_controlled(compared(won, longer))
    far = length_controlled(compared(won, longer - 3000))
    assert far.standard_error > 1.5 * near.standard_error


def test_wordings_of_one_question_widen_the_error():
    rng = np.random.default_rng(6)
    won, longer = judged(rng, 40, level=0.0, likes=1.0)
    won, longer = np.repeat(won, 10), np.repeat(longer, 10)
    alone = length_controlled(compared(won, longer))
    together = length_controlled(compared(won, longer, clusters=[str(n // 10) for n in range(400)]))
    assert together.win_rate == alone.win_rate
    assert together.standard_error > 2 * alone.standard_error


def test_given_difficulties_the_slope_is_told_from_what_is_easy():
    # Short answers to the harder instructions: without difficulty, length takes the blame.
    rng = np.random.default_rng(7)
    easy = rng.normal(0, 1.45, size=2000)
    longer = 1000 * (0.6 * easy / 1.45 + 0.8 * rng.normal(size=2000) - 0.7)
    odds = -2 + 1.5 * np.tanh(longer / longer.std(ddof=1)) + easy
    won = 1 / (1 + np.exp(-odds))
    true = 100 * np.mean(1 / (1 + np.exp(-(-2 + easy))))
    with_it = length_controlled(compared(won, longer, difficulty=list(easy)))
    without = length_controlled(compared(won, longer))
    assert abs(with_it.win_rate - true) < 1.5
    assert abs(with_it.length_effect - 1.5) < 0.3
    assert abs(without.win_rate - true) > abs(with_it.win_rate - true)


REFUSED = {
    "4 prompts are too few": compared([1.0, 0.0] * 2, range(4)),
    "every comparison was won": compared([1.0] * 40, range(40)),
    "every comparison was lost": compared([0.0] * 40, range(40)),
    "all prompts are of one cluster": compared([1.0, 0.0] * 20, range(40), clusters=["one"] * 40),
    "by the same -7 characters": compared([1.0, 0.0] * 20, [-7] * 40),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_where_nothing_can_be_told_of_length_there_is_a_reason_and_no_figure(reason):
    found = length_controlled(REFUSED[reason])
    assert isinstance(found, Uncontrolled)
    assert reason in found.reason


@given(
    wins=st.lists(st.floats(0, 1), min_size=5, max_size=30),
    lengths=st.lists(st.integers(-(10**6), 10**6), min_size=30, max_size=30),
)
@example(wins=[0.0, 0.0, 0.0, 0.0, 5e-324], lengths=[0] * 30)
@example(wins=[0.0, 0.0, 0.0, 1.0, 5e-324], lengths=[*range(30)])
@settings(max_examples=10)
def test_a_figure_is_never_absurd(wins, lengths):
    found = length_controlled(compared(wins, lengths[: len(wins)]))
    if isinstance(found, LengthControlled):
        assert 0 <= found.win_rate <= 100
        assert math.isfinite(found.standard_error)
        assert abs(found.length_effect) < 5


def test_a_single_win_is_held_by_the_published_effect():
    found = length_controlled(compared([1.0] + [0.0] * 804, [-500 - n for n in range(805)]))
    assert 0.1 < found.win_rate < 1
    assert "outside those that the published fits are of" in " ".join(found.remarks)


def test_few_prompts_are_said_to_lean_on_the_published_effect():
    won, longer = judged(np.random.default_rng(8), 60, level=0.0, likes=1.0)
    found = length_controlled(compared(won, longer))
    assert any("60 prompts tell little" in remark for remark in found.remarks)


# files


def test_a_win_rate_is_recomputed_from_stored_annotations(tmp_path):
    preferences = [1, 2, 1.5, 0, None, 1.75]
    path = written(tmp_path, [row(n, p) for n, p in enumerate(preferences)])
    code, stdout, stderr = call(tmp_path, "eval", "winrate", "--preferences", str(path), "--json")
    assert code == 0, stderr
    found = json.loads(stdout)
    assert list(found) == [
        "win_rate",
        "standard_error",
        "n",
        "n_draws",
        "n_unscored",
        "interval",
    ]
    won = [0, 1, 0.5, 0.5, 0.75]
    assert math.isclose(found["win_rate"], 100 * fmean(won), abs_tol=1e-9)
    assert math.isclose(found["standard_error"], 100 * stdev(won) / math.sqrt(5), abs_tol=1e-9)
    assert (found["n"], found["n_draws"], found["n_unscored"]) == (5, 2, 1)
    low, high = found["interval"]
    assert 0 <= low < found["win_rate"] < high <= 100


def test_a_table_shows_each_group_and_the_lead_over_another_model(tmp_path):
    mine = [row(n, 2, dataset="koala" if n < 3 else "vicuna") for n in range(6)]
    other = [row(n, 1 + n % 2, generator_2="llama") for n in range(6)]
    first, second = written(tmp_path, mine), written(tmp_path, other, "other.json")
    options = ("--preferences", str(first), "--by", "dataset", "--against", str(second))
    code, stdout, stderr = call(tmp_path, "eval", "winrate", *options, "--format", "table")
    assert code == 0, stderr
    assert all(name in stdout for name in ("alpaca", "koala", "vicuna"))
    assert "by 50.00 points" in stderr
    code, stdout, _ = call(tmp_path, "eval", "winrate", *options, "--json")
    found = json.loads(stdout)
    assert found["groups"]["koala"]["n"] == 3
    assert found["lead"]["value"] == 50


@pytest.mark.parametrize("field", ["annotator", "generator_1"])
def test_a_lead_over_figures_of_another_judge_or_baseline_is_refused(tmp_path, field):
    first = written(tmp_path, [row(n, 2, **{field: "one"}) for n in range(6)])
    again = written(tmp_path, [row(n, 1, **{field: "two"}) for n in range(6)], "again.json")
    options = ("--preferences", str(first), "--against", str(again), "--json")
    code, stdout, stderr = call(tmp_path, "eval", "winrate", *options)
    assert (code, stdout) == (2, "")
    assert len(stderr.strip().splitlines()) == 1
    kind = {"annotator": "judge", "generator_1": "baseline"}[field]
    assert f"{first} names the {kind} 'one', and {again} 'two'" in stderr


def test_a_lead_over_figures_against_other_outputs_is_refused(tmp_path):
    mine = read_annotations(written(tmp_path, [row(n, 2) for n in range(6)]))
    rows = [row(n, 1, output_1=f"other {n // 5}") for n in range(6)]
    other = read_annotations(written(tmp_path, rows, "other.json"))
    with pytest.raises(InputError, match=r"output_1.* for 6 of 6 prompts"):
        refuse_unlike(source_of(tmp_path / "a", mine), source_of(tmp_path / "b", other))


def test_a_pool_of_which_a_file_names_all_but_one_is_the_same_judge(tmp_path):
    mine = read_annotations(written(tmp_path, [row(n, 2, annotator=f"j{n}") for n in range(6)]))
    rows = [row(n, 2, annotator=f"j{n % 5}") for n in range(6)]
    other = read_annotations(written(tmp_path, rows, "other.json"))
    assert refuse_unlike(source_of(tmp_path, mine), source_of(tmp_path, other)) is None


BAD = {
    "'preference' is 3; it must be": row(1, 3),
    "'preference' is 0.5; it must be": row(1, 0.5),
    "'preference' is nan; it must be": row(1, float("nan")),
    "'preference' must be a number or null, but is true or false": row(1, True),
    "'preference' must be a number or null, but is a text": row(1, "2"),
    "'output_2' must be a text, but is null": row(1, 2, output_2=None),
    "'instruction' must be a text, but is a list": row(1, 2, instruction=[]),
    "'preference' is missing": {k: v for k, v in row(1, 2).items() if k != "preference"},
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_row_is_refused_with_its_place(tmp_path, reason):
    path = written(tmp_path, [row(0, 1), BAD[reason]])
    with pytest.raises(InputError, match=re.escape(f"{path}, row 2: {reason}")):
        read_annotations(path)


def test_a_bad_file_is_told_in_one_sentence(tmp_path):
    path = written(tmp_path, [row(0, 1), row(1, 3)])
    code, stdout, stderr = call(tmp_path, "eval", "winrate", "--preferences", str(path), "--json")
    assert (code, stdout) == (2, "")
    assert len(stderr.strip().splitlines()) == 1


def test_a_file_without_a_verdict_or_of_two_models_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no preference that was read"):
        read_annotations(written(tmp_path, [row(0, None)]))
    with pytest.raises(InputError, match="names 2 models"):
        read_annotations(written(tmp_path, [row(0, 1), row(1, 1, generator_2="llama")]))
    with pytest.raises(InputError, match="has no field 'dataset'"):
        read_annotations(written(tmp_path, [row(0, 1)]), by="dataset")


def test_the_file_must_be_named(tmp_path):
    code, _, stderr = call(tmp_path, "eval", "winrate")
    assert (code, "--preferences" in stderr) == (2, True)


def test_an_instruction_with_input_is_another_one(tmp_path):
    rows = [row(0, 1, input="x"), row(0, 2, input="y"), row(0, 2, input="")]
    found = read_annotations(written(tmp_path, rows))
    assert len({annotation.instruction for annotation in found}) == 3


def test_an_empty_input_is_none(tmp_path):
    without = read_annotations(written(tmp_path, [row(0, 1)]))
    empty = read_annotations(written(tmp_path, [row(0, 2, input="")], "other.json"))
    assert lead(empty, without).value == 100


def test_a_group_may_be_called_as_the_model_is(tmp_path):
    rows = [row(0, 1, dataset="koala"), row(1, 2, dataset="vicuna")]
    found = read_annotations(written(tmp_path, rows), by="dataset")
    shown = [(standing.of, standing.won.win_rate) for standing in standings("koala", found)]
    assert shown == [("koala", 50), ("koala", 0), ("vicuna", 100)]


def test_a_group_of_which_nothing_was_read_has_no_standing(tmp_path):
    rows = [row(0, 1, dataset="koala"), row(1, None, dataset="oasst")]
    found = read_annotations(written(tmp_path, rows), by="dataset")
    assert [standing.of for standing in standings("alpaca", found)] == ["alpaca", "koala"]


# difficulty


def hardness(folder, rows, name="difficulty.jsonl"):
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_a_file_of_difficulties_changes_the_figure_at_equal_lengths_alone(tmp_path):
    made = [
        row(n, 2 if n % 2 else 1, output_2="of the model " * (1 + 5 * (n % 2) + n % 7))
        for n in range(200)
    ]
    path = written(tmp_path, made)
    told = [
        {"instruction": f"instruction {n}", "instruction_difficulty": n % 2 + n % 3 / 3}
        for n in range(200)
    ]
    hard = hardness(tmp_path, told)
    asked = ("eval", "winrate", "--preferences", str(path), "--format", "jsonl")
    found = []
    for options in ((), ("--difficulty", str(hard))):
        code, stdout, stderr = call(tmp_path, *asked, *options)
        assert code == 0, stderr
        found.append(json.loads(stdout))
    plain, controlled = found
    assert plain["win_rate"] == controlled["win_rate"] == 50
    gained = controlled["length_controlled_win_rate"] - plain["length_controlled_win_rate"]
    assert abs(gained) > 1


BAD_DIFFICULTY = {
    "row 1: has no 'difficulty', a number": [{"instruction": "instruction 0"}],
    "row 1: 'difficulty' must be a number, but is 'hard'": [
        {"instruction": "instruction 0", "difficulty": "hard"}
    ],
    "a second difficulty of 'instruction 0'": [
        {"instruction": "instruction 0", "difficulty": n} for n in range(2)
    ],
    "has no difficulty of 'instruction 1'": [{"instruction": "instruction 0", "difficulty": 1}],
}


@pytest.mark.parametrize("reason", BAD_DIFFICULTY)
def test_a_bad_file_of_difficulties_is_refused_with_its_place(tmp_path, reason):
    path = hardness(tmp_path, BAD_DIFFICULTY[reason])
    with pytest.raises(InputError, match=re.escape(str(path))) as refused:
        difficulties_of(path, ["instruction 0", "instruction 1"])
    assert reason.replace("row", "line") in str(refused.value) or reason in str(refused.value)


def test_difficulties_may_come_as_a_table(tmp_path):
    path = tmp_path / "difficulty.csv"
    path.write_text("instruction,difficulty\na,0.5\nb,-1\n")
    assert difficulties_of(path, ["b", "a"]) == [-1, 0.5]
