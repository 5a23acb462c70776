"""The viewer's pages, requested without a browser: filters, paging, live parts, errors."""

import json
import re
import runpy
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from lakes import write_shown
from starlette.testclient import TestClient

from lpfloop.loop.view.server import site
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder

TEXTS = [f"answer number {number:03}" for number in range(120)]
RUN = "/runs/seen"


@pytest.fixture(scope="module")
def configuration(root):
    """Return the benchmarks' function that makes a run's configuration."""
    return runpy.run_path(str(root / "benchmarks" / "synthetic.py"))["configuration"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory, configuration) -> Path:
    folder = tmp_path_factory.mktemp("seen") / "lake"
    write_shown(folder, "seen", TEXTS, configuration())
    return folder


@pytest.fixture(scope="module")
def client(lake) -> TestClient:
    return TestClient(site(lake))


def ids(client: TestClient, path: str) -> list[str]:
    """Return the ids of a page's rows."""
    answer = client.get(RUN + path)
    assert answer.status_code == 200, answer.text
    return re.findall(r'<th scope="row"><a href="[^"]*#([^"]+)"', answer.text)


def following(client: TestClient, path: str) -> str | None:
    """Return the address of the next page, if any."""
    found = re.search(r'<a rel="next" href="([^"]+)"', client.get(RUN + path).text)
    return unescape(found[1]).removeprefix(RUN) if found else None


def numbers(found: list[str]) -> list[int]:
    """Return the numbers of candidates within their prompts."""
    return [int(identity[-2:], 16) for identity in found]


def walk(client: TestClient, path: str | None) -> list[str]:
    """Return the ids of all rows, page by page."""
    found = list[str]()
    while path is not None:
        found += ids(client, path)
        path = following(client, path)
    return found


def test_pages_hold_each_row_once(client):
    found = walk(client, "/candidates")
    assert len(found) == len(set(found)) == len(TEXTS) + 4


def test_filters(client, subtests):
    for asked, kept in (
        ("kind=refinement", lambda n: 15 <= n < 30),
        ("min_reward=5&max_reward=8&sort=-reward", lambda n: 5 <= n <= 8),
        ("rating=1&kind=refinement&max_reward=20", lambda n: n % 2 and 15 <= n <= 20),
        ("rating=-1&sort=length", lambda n: n % 2 == 0 and n < 30),
        ("text=answer+number+03", lambda n: n < 10 or n == 30),
        ("unscored=1", lambda n: n == 0),
    ):
        with subtests.test(asked=asked):
            every = walk(client, "/candidates")
            found = walk(client, f"/candidates?{asked}")
            expected = {i for i, n in zip(every, numbers(every), strict=True) if kept(n)}
            if "text" in asked:
                expected = {i for i in expected if i.startswith("cand-00001e")}
            assert sorted(found) == sorted(expected)


def test_bad_filters_are_refused(client, subtests):
    for path, said in (
        ("/candidates?task=nope", "no task 'nope' here"),
        ("/candidates?rating=x", "rating 'x' is not a whole number"),
        ("/candidates?sort=text", "no column to sort by 'text' here"),
        ("/candidates?iteration=99999999999999999999", "is not a whole number"),
        ("/diff?from=7", "iteration 7 of run seen was not measured"),
    ):
        with subtests.test(path=path):
            answer = client.get(RUN + path)
            assert answer.status_code == 400
            assert said in unescape(answer.text)
    for path in ("/runs/none", "/nope", f"{RUN}/rows/none"):
        assert client.get(path, follow_redirects=False).status_code == 404


def test_unreadable_run_hides_no_other(tmp_path, configuration):
    write_shown(tmp_path, "seen", TEXTS[:2], configuration())
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "journal.sqlite").write_bytes(b"no journal" * 1000)
    client = TestClient(site(tmp_path))
    listed = client.get("/").text
    assert 'href="/runs/seen"' in listed
    assert "problem" in listed
    broken = client.get("/runs/broken")
    assert broken.status_code == 500
    assert "lpfloop lake" in broken.text


def test_run_of_another_version(tmp_path, configuration):
    older = json.loads(configuration()) | {"removed": {"setting": 1}}
    write_shown(tmp_path, "older", TEXTS[:2], json.dumps(older))
    answer = TestClient(site(tmp_path)).get("/runs/older")
    assert answer.status_code == 500
    assert "removed" in answer.text


def test_reading_leaves_lake_unchanged(lake, client):
    def files() -> dict[str, bytes]:
        names = (path for path in lake.rglob("*") if path.is_file() and "-shm" not in path.name)
        return {str(path): path.read_bytes() for path in names}

    before = files()
    paths = ["", "/prompts", "/candidates?rating=1", "/critiques", "/pairs", "/diff", "/report"]
    for path in [*paths, "/rows/cand-00000001", "/live"]:
        client.get(RUN + path)
    assert files() == before


def test_live_part_is_sent_after_a_change(tmp_path, configuration):
    write_shown(tmp_path, "seen", TEXTS[:2], configuration())
    client = TestClient(site(tmp_path))
    first = client.get(f"{RUN}/live")
    assert first.status_code == 200
    assert "<!doctype" not in first.text
    tag = {"If-None-Match": first.headers["etag"]}
    same = client.get(f"{RUN}/live", headers=tag)
    assert (same.status_code, same.text) == (304, "")
    with closing(Journal(run_folder(tmp_path, "seen"))) as journal:
        journal.plan(7, "sample", "more", lambda: ["more"])
    changed = client.get(f"{RUN}/live", headers=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]
