"""The report of a run: its figures, what it escapes, where it goes, and what it never asks for."""

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from browser import browsing, opened
from crashing import loop, small_config, stand_ins
from skills import RISING_AND_FALLING, prompts_file, turned
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.run.stop import Stopped
from lpfloop.stores.lake import run_folder

pytest.importorskip("matplotlib")
FALLING = ({"math": 0.7, "facts": 0.7}, {"math": 0.2, "facts": 0.6})
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style></svg><svg onload=alert(3)>",
    "$\\frac{1}{0}$ ]]> &lt;b&gt; `code`",
    "_hidden\u202e\x1b' onmouseover='alert(4)",
)
RAN = re.compile(r"<(script|img|iframe|object|embed|link|base|form|a)\b", re.IGNORECASE)


class Read(HTMLParser):
    """What a page holds: its elements with their attributes, its text, the rows of its tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        self.texts.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def report(lake: Path, *options: object) -> tuple[int, str, str]:
    words = ["report", *map(str, options), "--lake", str(lake)]
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.stdout, result.stderr


def told(lake: Path, *words: str) -> dict:
    result = CliRunner().invoke(app, [*words, "--lake", str(lake), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def fallen(tmp_path_factory) -> Iterator[Path]:
    """A lake with the run `a`: M_1 is better than M_0, and M_2 loses math."""
    folder = tmp_path_factory.mktemp("fallen")
    with pytest.MonkeyPatch.context() as patch:
        turned(folder, patch, RISING_AND_FALLING[:3])
    return folder / "lake"


@pytest.fixture(scope="module")
def worse(tmp_path_factory) -> Path:
    """A lake whose run made its policy worse, with prompts whose names are hostile."""
    folder = tmp_path_factory.mktemp("worse")
    rows = [json.loads(line) for line in prompts_file(folder, each=30).read_text().splitlines()]
    for number, row in enumerate(rows):
        row["family"] = HOSTILE[number % len(HOSTILE)]
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        turned(folder, patch, FALLING)
    return folder / "lake"


def kept(lake: Path, name: str = "a") -> Path:
    """Write the report into its run's folder."""
    code, stdout, stderr = report(lake)
    assert code == 0, stderr
    assert Path(stdout.strip()) == run_folder(lake, name) / "report" / "report.html"
    return Path(stdout.strip())


@pytest.fixture(scope="module")
def file(fallen) -> Path:
    return kept(fallen)


@pytest.fixture(scope="module")
def page(file) -> Read:
    return Read(file.read_text())


@pytest.fixture(scope="module")
def worse_file(worse) -> Path:
    return kept(worse)


def test_the_answer_is_that_of_the_verdict(page, fallen):
    found = told(fallen, "verdict", "a")
    best = found["best"]["iteration"]
    assert best == 1
    (row,) = [
        r
        for r in found["iterations"][best - 1]["against"]["initial"]["held-out"]
        if r["scope"] == "all"
    ]
    assert "Better" in page.text
    assert f"M_{best} against M_0" in page.text
    assert f"{100 * row['before']:.1f} → {100 * row['after']:.1f} %" in page.text
    assert f"{100 * row['difference']:+.1f} points" in page.text
    assert f"between {100 * row['low']:+.1f} and {100 * row['high']:+.1f}" in page.text
    assert "at most 5% of the time" in page.text
    assert f"lpfloop model a M_{best}" in page.text
    assert "The latest is M_2: " in page.text
    assert "by 50.0 points in math" in page.text


def test_a_run_that_got_worse_says_so_and_where(worse_file):
    read = Read(worse_file.read_text())
    assert "Worse" in read.text
    assert "The best model is M_0" in read.text
    assert "Surely worse since M_0 on held-out prompts: math 70 → 20 %" in read.text


def test_the_table_holds_the_figures_of_status(page, fallen):
    results = told(fallen, "status", "a")["results"]
    shown = {}
    title = ""
    for row in page.rows:
        if len(row) == len(results["models"]) + 2 and not any(row[1:]):
            title = row[0].rpartition(",")[0]
        shown[title, row[0].removesuffix(" %") if row else ""] = row[1:]
    verified = [r for r in results["rows"] if r["figure"] == "verified"]
    assert {r["name"] for r in verified} == {"", "math", "facts"}
    for row in verified:
        line = shown[row["name"] or "all", "verified"]
        assert line[row["iteration"]] == f"{100 * row['value']:.1f}"
        if row["iteration"] == 1:
            ends = f"[{100 * row['change_low']:+.1f}, {100 * row['change_high']:+.1f}]"
            assert line[-1] == f"{100 * row['change']:+.1f} {ends}"


def test_the_page_asks_for_nothing_and_runs_nothing(page):
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
        assert not re.search(r"url\((?!#)", attributes.get("style") or "")
    assert not re.search(r"@import|url\(", "".join(page.texts))
    (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_no_two_elements_of_the_page_share_an_id(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    drawn = {a.get("href") for _, a in page.elements if "href" in a}
    assert {name.removeprefix("#") for name in drawn if name} <= set(ids)


def test_the_same_lake_gives_the_same_bytes_wherever_it_lies(file, fallen, tmp_path):
    other = tmp_path / "lake"
    shutil.copytree(fallen, other, ignore=shutil.ignore_patterns("report"))
    again = kept(other)
    assert again.read_bytes() == file.read_bytes()
    names = {path.name for path in file.parent.iterdir()}
    assert names == {path.name for path in again.parent.iterdir()}
    for name in names:
        assert (file.parent / name).read_bytes() == (again.parent / name).read_bytes()
    verified = CliRunner().invoke(app, ["lake", "verify", "a", "--lake", str(other)])
    assert verified.exit_code == 0


def test_each_plot_lies_beside_the_page_as_svg_and_its_rows_as_parquet(page, file):
    folder = file.parent
    drawn = {a["id"] for tag, a in page.elements if tag == "section" and "id" in a}
    svgs = {path.stem for path in folder.glob("*.svg")}
    assert {"results", "length"} <= svgs <= drawn
    assert svgs == {path.stem for path in folder.glob("*.parquet")}
    for name in svgs:
        assert pl.read_parquet(folder / f"{name}.parquet").height > 0
        root = ET.fromstring((folder / f"{name}.svg").read_text())  # noqa: S314 -- it was just made
        assert root.tag.endswith("svg")
        assert not [e for e in root.iter() if e.tag.endswith("script")]
    rows = pl.read_parquet(folder / "results.parquet")
    assert set(rows["scope"]) == {"all", "task", "family"}
    assert set(rows["iteration"]) == {0, 1, 2}
    lengths = pl.read_parquet(folder / "length.parquet")
    assert {"sample", "greedy", "chosen", "rejected"} <= set(lengths["part"])


def test_hostile_names_are_shown_and_run_nothing(worse_file):
    text = worse_file.read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\u{202e}" in text
    assert not RAN.search(text)
    assert not [a for _, a in Read(text).elements if any(n.startswith("on") for n in a)]


def test_a_browser_opens_the_page_without_a_word(file, worse_file):
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with browsing() as browser:
        for place in (file.as_uri(), worse_file.as_uri()):
            with opened(browser, own=place, options=options) as (tab, complaints):
                tab.goto(place)
                tab.locator("#results figure svg").first.wait_for()
                wide = tab.evaluate("document.documentElement.scrollWidth")
                ink = tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
            assert complaints.listed() == []
            assert wide <= 360
            assert ink == "rgb(228, 230, 232)"  # The page's own, in the dark.


def test_a_run_that_was_stopped_has_a_report_that_says_what_is_missing(tmp_path, monkeypatch):
    with pytest.raises(Stopped):
        turned(tmp_path, monkeypatch, FALLING, stop_after=3)
    code, stdout, stderr = report(tmp_path / "lake")
    assert code == 0, stderr
    read = Read(Path(stdout.strip()).read_text())
    assert "Not known" in read.text
    assert "it was stopped" in read.text
    assert "lpfloop resume a" in read.text
    assert "Nothing to draw: " in read.text


def test_what_cannot_be_verified_is_missing_with_its_reason(tmp_path):
    """The run has prompts that nothing can verify, few answers, and unread critiques."""
    lake = tmp_path / "lake"
    lake.mkdir()
    prompts = tmp_path / "prompts.jsonl"
    rows = ({"prompt": f"Tell me of {n}.", "task": HOSTILE[n % 3]} for n in range(12))
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with stand_ins(lake):
        loop(lake, config=small_config(prompts))
    code, stdout, stderr = report(lake)
    assert code == 0, stderr
    page = Path(stdout.strip()).read_text()
    assert not RAN.search(page)
    read = Read(page)
    assert "no answer was both rated by a model and verified" in read.text
    assert "nan" not in read.text.lower().split()


def test_only_a_report_is_replaced_unasked(file, fallen, tmp_path):
    target, plots = tmp_path / "page.html", tmp_path / "plots"
    target.write_text("mine")
    code, stdout, stderr = report(fallen, "-o", target)
    assert (code, stdout, target.read_text()) == (2, "", "mine")
    assert "is there already" in stderr
    assert report(fallen, "-o", target, "--force", "--plots", plots)[0] == 0
    assert target.read_bytes() == file.read_bytes()
    assert {p.name for p in plots.iterdir()} > {"results.svg", "results.parquet"}
    code, _, stderr = report(fallen, "-o", target, "--plots", plots)
    assert code == 2
    assert "plots is there already" in " ".join(stderr.split())
    assert report(fallen, "--output", target)[0] == 0


def test_a_lake_that_cannot_be_written_says_where_else_to_put_it(fallen, tmp_path):
    lake = tmp_path / "lake"
    shutil.copytree(fallen, lake, ignore=shutil.ignore_patterns("report"))
    (run_folder(lake, "a") / "report").write_text("in the way")
    code, _, stderr = report(lake)
    assert code == 2
    assert "name another place with -o FILE" in " ".join(stderr.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("b",), "there is no run 'b'"),
        (("-o", "missing/page.html"), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(fallen, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = report(fallen, *options)
    assert (code, stdout) == (2, "")
    assert said in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
