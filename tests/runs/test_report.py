"""The report of a run: its figures, escaped texts, its path, and no requests to the network."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner
from world import RISING_AND_FALLING, skilled_prompts, skilled_run

from lpfloop.loop.cli.app import app
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
RAN = re.compile(r"<(script|iframe|object|embed|link|base|form)\b", re.IGNORECASE)

DRAWN = "data:image/svg+xml;base64,"


class Read(HTMLParser):
    """Contents of a page: elements with their attributes, text, rows of tables."""

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
        skilled_run(folder, patch, RISING_AND_FALLING[:3])
    return folder / "lake"


@pytest.fixture(scope="module")
def worse(tmp_path_factory) -> Path:
    """A lake whose run made its policy worse, with hostile names of prompts."""
    folder = tmp_path_factory.mktemp("worse")
    rows = [json.loads(line) for line in skilled_prompts(folder, each=30).read_text().splitlines()]
    for number, row in enumerate(rows):
        row["family"] = HOSTILE[number % len(HOSTILE)]
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        skilled_run(folder, patch, FALLING)
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


def test_answer_is_the_verdict(page, fallen):
    found = told(fallen, "verdict", "a")
    best = found["best"]["iteration"]
    assert best == 1
    (row,) = [
        r
        for r in found["iterations"][best - 1]["against"]["initial"]["held-out"]
        if r["scope"] == "all"
    ]
    assert "Better" in page.text
    assert f"{100 * row['before']:.1f} → {100 * row['after']:.1f}" in page.text
    change = f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
    # In the answer, in the table of results, and in the verdict.
    assert page.text.count(change) >= 3
    assert f"lpfloop model a M_{best}" in page.text


def test_worse_run_and_hostile_names(worse_file):
    read = Read(worse_file.read_text())
    assert "Worse" in read.text
    assert "The best model is M_0" in read.text
    assert "math 70 → 20 %" in read.text
    drawn = [a["src"] or "" for tag, a in read.elements if tag == "img"]
    assert all(address.startswith(DRAWN) for address in drawn)
    plots = [b64decode(address.removeprefix(DRAWN)).decode() for address in drawn]
    text = "".join([worse_file.read_text(), *plots])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\u{202e}" in text
    assert not RAN.search(text)
    assert not [a for _, a in read.elements if any(n.startswith("on") for n in a)]
    links = [a.get("href") or "" for tag, a in read.elements if tag == "a"]
    assert all(link.startswith("#") for link in links)


def test_page_asks_for_nothing(page):
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "base", "form"}
    for _, attributes in page.elements:
        assert (attributes.get("src") or DRAWN).startswith(DRAWN)
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
        assert not re.search(r"url\((?!#)", attributes.get("style") or "")
    assert not re.search(r"@import|url\(", "".join(page.texts))
    (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    drawn = {a.get("href") for _, a in page.elements if "href" in a}
    assert {name.removeprefix("#") for name in drawn if name} <= set(ids)


def test_only_a_report_is_replaced(file, fallen, tmp_path):
    target, plots = tmp_path / "page.html", tmp_path / "plots"
    target.write_text("mine")
    code, stdout, stderr = report(fallen, "-o", target)
    assert (code, stdout, target.read_text()) == (2, "", "mine")
    assert "page.html" in stderr
    assert report(fallen, "-o", target, "--force", "--plots", plots)[0] == 0
    assert target.read_bytes() == file.read_bytes()
    names = {"results.svg", "results.parquet", "spending.svg", "spending.parquet"}
    assert {p.name for p in plots.iterdir()} > names
    assert report(fallen, "-o", target, "--plots", plots)[0] == 2
