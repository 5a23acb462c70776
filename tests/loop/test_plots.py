"""Plots: the same numbers give the same file; what cannot be drawn is said in one sentence."""

import sys

import pytest

from lpfloop.loop.evaluation.panels import Intervals, Lines, PlottedValue, Series
from lpfloop.loop.evaluation.plots import write_plot
from lpfloop.loop.lake.query.forms import FormError
from lpfloop.stores.targets import TargetError

CURVE = Series(label="proxy", x=[1, 2, 4], y=[0.1, 0.2, 0.4], low=[0, 0.1, 0.3], high=[0.2, 0.3, 1])
POINTS = Series(label="true", x=[1, 2, 4], y=[0.1, 0.3, 0.2], style="points")
PANELS = [
    Lines(series=[CURVE, POINTS], title="t", x_label="n", y_label="score", log_x=True, level=0.1),
    Intervals(
        estimates=[PlottedValue(label="gpt4", value=0.6, low=0.5, high=0.7)],
        title="agreement",
        x_label="share",
        level=0.5,
    ),
]
BEGINS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture(autouse=True)
def _needs_matplotlib():
    pytest.importorskip("matplotlib")


@pytest.mark.parametrize("kind", BEGINS)
def test_the_same_numbers_give_the_same_bytes(tmp_path, kind):
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    write_plot(first, PANELS)
    write_plot(second, PANELS)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(BEGINS[kind])
    assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name}


def test_a_plot_tells_no_date_and_no_version(tmp_path):
    write_plot(tmp_path / "a.svg", [Lines(series=[CURVE], title="t", x_label="x", y_label="y")])
    text = (tmp_path / "a.svg").read_text()
    assert "dc:date" not in text
    assert "dc:creator" not in text


def test_the_style_of_the_user_is_not_touched(tmp_path):
    import matplotlib as mpl

    mpl.rcParams["font.size"] = 20
    try:
        write_plot(tmp_path / "a.svg", [Lines(series=[CURVE], title="t", x_label="x", y_label="y")])
        assert mpl.rcParams["font.size"] == 20
    finally:
        mpl.rcdefaults()


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(FormError, match=r"must end in \.svg, \.png, \.pdf"):
        write_plot(tmp_path / "a.gif", PANELS)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FormError, match=r"lpfloop\[plots\]"):
        write_plot(tmp_path / "a.svg", PANELS)


def test_a_place_that_can_not_be_written_is_said(tmp_path):
    with pytest.raises(TargetError, match="cannot be written"):
        write_plot(tmp_path / "missing" / "a.svg", PANELS)
