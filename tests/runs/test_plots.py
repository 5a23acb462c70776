"""Plots: equal numbers give equal files; impossible plots fail with one sentence."""

import pytest

from lpfloop.loop.evaluation.plots import (
    Histogram,
    Intervals,
    Lines,
    PlottedValue,
    Series,
    write_plot,
)
from lpfloop.loop.lake.query.forms import FormError

CURVE = Series(label="proxy", x=[1, 2, 4], y=[0.1, 0.2, 0.4], low=[0, 0.1, 0.3], high=[0.2, 0.3, 1])
POINTS = Series(label="true", x=[1, 2, 4], y=[0.1, 0.3, 0.2], style="points")
PANELS = [
    Histogram(
        edges=[0, 1, 2], shares={"$a_{b$": [0.5, 0.5], "<b>": [0.25, 0.75]}, title="t", x_label="x"
    ),
    Lines(series=[CURVE, POINTS], title="t", x_label="n", y_label="score", log_x=True, level=0.1),
    Intervals(
        estimates=[PlottedValue(label="gpt4", value=0.6, low=0.5, high=0.7)], title="a", x_label="b"
    ),
]


@pytest.fixture(autouse=True)
def _needs_matplotlib():
    pytest.importorskip("matplotlib")


def test_same_numbers_give_same_bytes(tmp_path):
    for kind, begin in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
        write_plot(first, PANELS)
        write_plot(second, PANELS)
        assert first.read_bytes() == second.read_bytes()
        assert first.read_bytes().startswith(begin)
    with pytest.raises(FormError, match="svg"):
        write_plot(tmp_path / "a.gif", PANELS)
