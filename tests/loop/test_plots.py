"""Plots: the same numbers give the same file; what cannot be drawn is said in one sentence."""

import re
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from lpfloop.loop.evaluation.panels import (
    Bars,
    Heights,
    Histogram,
    Intervals,
    Lines,
    PlottedValue,
    Series,
)
from lpfloop.loop.evaluation.plots import page_svg, svg_file, write_plot
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


def test_without_matplotlib_what_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FormError, match=r"install .*matplotlib"):
        write_plot(tmp_path / "a.svg", PANELS)


def test_a_place_that_can_not_be_written_is_said(tmp_path):
    with pytest.raises(TargetError, match="cannot be written"):
        write_plot(tmp_path / "missing" / "a.svg", PANELS)


BARS = Bars(
    groups=["$a_{b$", "<b>"],
    parts=[Heights(label="_one", values=[1, 2]), Heights(label="two", values=[3, 4])],
    title="t",
    y_label="n",
)
HISTOGRAM = Histogram(
    edges=[0, 1, 2],
    parts=[Heights(label="right", values=[0.5, 0.5]), Heights(label="wrong", values=[1, 0])],
    title="t",
    x_label="reward",
)


@pytest.mark.parametrize(
    "panel",
    [*PANELS, BARS, replace(BARS, stacked=True), replace(BARS, lying=True), HISTOGRAM],
    ids=["lines", "intervals", "bars", "stacked", "lying", "histogram"],
)
def test_a_panel_on_a_page_has_the_pages_colour_and_names_of_its_own(panel):
    one, other = (page_svg(panel, name) for name in ("one", "other"))
    assert one == page_svg(panel, "one")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, other)]
    assert not ids[0] & ids[1]
    used = re.findall(r'(?:href="|url\()#([^")]+)', one)
    assert used
    assert set(used) <= ids[0]
    assert "currentColor" in one
    assert "#000000" not in one
    assert "<style" not in one


def test_names_are_drawn_as_they_are():
    svg = page_svg(BARS, "p")
    assert "$a_{b$" in svg
    assert "&lt;b&gt;" in svg
    assert "_one" in svg


def test_panels_of_a_page_become_one_file():
    panels = [page_svg(panel, f"p{number}") for number, panel in enumerate([*PANELS, BARS, BARS])]
    root = ET.fromstring(svg_file(panels))  # noqa: S314 -- it was just made
    placed = [child for child in root if child.tag.endswith("svg")]
    assert len(placed) == 4
    assert len({(child.get("x"), child.get("y")) for child in placed}) == 4


def test_of_many_parts_the_legend_stands_below_and_says_how_many_it_leaves_out():
    parts = [Heights(label=f"part {n}", values=[n, n]) for n in range(13)]
    svg = page_svg(replace(BARS, parts=parts), "p")
    assert "part 9" in svg
    assert "part 10" not in svg
    assert "3 more" in svg
