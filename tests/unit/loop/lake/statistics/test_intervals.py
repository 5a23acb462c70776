"""The interval of a share: never empty, and the published one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.lake.statistics.intervals import share_interval, wilson


def test_interval_matches_newcombe(subtests):
    for right, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        with subtests.test(right=right):
            found = wilson(right / n, n)
            assert found == pytest.approx((low, high), abs=6e-5)


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_an_interval_holds_its_share(share, n):
    low, high = wilson(share, n)
    assert 0 <= low < high <= 1
    assert low <= share + 1e-12
    assert high >= share - 1e-12


def test_clustered_errors_widen():
    independent = share_interval(0.5, 0.05, 100)
    clustered = share_interval(0.5, 0.1, 100)
    assert independent == pytest.approx(wilson(0.5, 100))
    assert clustered == pytest.approx(wilson(0.5, 25))
    assert share_interval(1.0, 0.0, 40) == wilson(1.0, 40)
    assert share_interval(0.5, None, 40) is None
    assert share_interval(23.1, 0.0, 40) is None, "a length is no share"
