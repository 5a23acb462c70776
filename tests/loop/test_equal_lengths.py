"""The benchmark of length-controlled win-rates, in small: models are simulated as published."""

from pathlib import Path
from statistics import median

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import equal_lengths

    return equal_lengths


def missed(bench, models, correlation):
    generator = np.random.default_rng(2)
    found = [bench.errors(model, correlation, generator) for model in models]
    return {name: median(errors[name] for errors in found) for name in bench.METHODS}


def test_below_a_fifth_of_wins_a_held_slope_errs_by_less_than_a_free_one(bench):
    every = bench.drawn(14, np.random.default_rng(0))
    weak = [model for model in every if model.win_rate < 20]
    assert len(weak) > 5
    found = missed(bench, weak, 0.5)
    assert found["free slope"] > 3
    assert found["held slope"] < 0.7 * found["free slope"]
    assert found["with difficulty"] < found["held slope"]


def test_coefficients_and_board_of_alpaca_eval_are_read_as_published(bench, tmp_path):
    weights, board = tmp_path / "weights.csv", tmp_path / "board.csv"
    weights.write_text(
        ",np.tanh(std_delta_len),instruction_difficulty,not_gamed_baseline.astype(float)\n"
        "gpt4_1106_preview,0.0,0.0,0.0\n"
        "vicuna-13b,-1.7952,1.0713,-3.1878\n"
        "unlisted,-1.5,1.0,-1.0\n"
    )
    board.write_text(
        ",win_rate,avg_length,length_controlled_winrate\n"
        "gpt4_1106_preview,50.0,2049,50.0\n"
        "vicuna-13b,5.83,1037,9.22\n"
    )
    (found,) = bench.published(weights, board)
    assert (found.phi, found.theta, found.win_rate) == (1.7952, -3.1878, 5.83)
    # The published figure is the mean of the published model's predictions at equal lengths.
    points, shares = bench._grid()
    logits = found.theta + found.psi * bench.DIFFICULTY * points
    assert abs(100 * (1 / (1 + np.exp(-logits))) @ shares - found.controlled) < 1


def test_other_judges_of_other_pairs_like_length_as_the_prior_says(bench, shared_data):
    found = list(bench.slopes(shared_data / "pandalm.jsonl"))
    assert [name for name, *_ in found] == list(bench.JUDGES)
    prior, spread = bench.centre(0.5), bench.precision() ** -0.5
    for _, phi, error, n in found:
        assert n > 200
        assert abs(phi - prior) < 3 * (error**2 + spread**2) ** 0.5
    machines = [phi for name, phi, *_ in found if name.endswith("_result")]
    assert all(abs(phi - prior) < 2 * spread for phi in machines)
