"""Win rates at equal lengths: the fit, its error, and cases without a result."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.length_control import (
    Compared,
    Uncontrolled,
    fit_logistic,
    length_controlled,
)


def compared(won, longer, **fields):
    prompts = [str(n) for n in range(len(won))]
    return Compared(won=list(won), longer_by=[int(x) for x in longer], prompts=prompts, **fields)


def judged(rng, n, *, level, likes, mean=0.0):
    """Return wins and length differences (in standard deviations) of a judge with this taste."""
    longer = 1000 * rng.normal(mean, 1, size=n)
    odds = level + likes * np.tanh(longer / longer.std(ddof=1))
    return (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(float), longer


@given(
    wins=st.lists(st.booleans(), min_size=6, max_size=40),
    lengths=st.lists(st.integers(-5000, 5000), min_size=40, max_size=40),
    likes=st.floats(-3, 3),
)
def test_fit_is_a_minimum(wins, lengths, likes):
    targets = np.array([*wins, True, False], dtype=float)
    features = np.column_stack([np.ones(len(targets)), np.tanh(np.resize(lengths, len(targets)))])
    weights = 1.0 + np.arange(len(targets)) % 3
    mean, precision = np.array([0.0, likes]), np.diag([0.0, 4.0])
    found = fit_logistic(features, targets, weights, likes, 4.0)
    missed = weights * (1 / (1 + np.exp(-(features @ found))) - targets)
    assert np.allclose(features.T @ missed + precision @ (found - mean), 0, atol=1e-6)


def test_liking_of_length_is_corrected():
    rng = np.random.default_rng(3)
    won, longer = judged(rng, 2000, level=0.0, likes=1.2, mean=0.8)
    found = length_controlled(compared(won, longer))
    assert 100 * won.mean() > 60
    assert abs(found.win_rate - 0.5) < 3 * found.standard_error
    assert found.length_effect > 0.8
    assert 0.01 < found.standard_error < 0.06


REFUSED = {
    "4 prompts are too few": compared([1.0, 0.0] * 2, range(4)),
    "every comparison was won": compared([1.0] * 40, range(40)),
    "all prompts are in one cluster": compared([1.0, 0.0] * 20, range(40), clusters=["one"] * 40),
    "by the same -7 characters": compared([1.0, 0.0] * 20, [-7] * 40),
}


def test_reasons_for_no_figure(subtests):
    for reason, comparisons in REFUSED.items():
        with subtests.test(reason=reason):
            found = length_controlled(comparisons)
            assert isinstance(found, Uncontrolled)
            assert reason in found.reason
