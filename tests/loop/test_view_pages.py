"""What the viewer's pages answer, asked without a browser: filters, pages, live parts, errors."""

import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from operated import EVALUATED, Operated
from shown_lake import write_run
from starlette.testclient import TestClient
from viewed import viewing
from waiting import wait_until

from lpfloop.loop.lake.search.text_search import reindex
from lpfloop.loop.view import page_rows
from lpfloop.loop.view.site import site

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from synthetic import configuration

TEXTS = [f"answer number {number:03}" for number in range(120)]
RUN = "/runs/seen"
LATE_S = 120
"""A page comes within a second or two, unless the machine is busy."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("seen") / "lake"
    write_run(folder, "seen", TEXTS, configuration())
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
    """Return the address of the next page, if there is one."""
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


def test_pages_together_hold_each_row_once(client):
    found = walk(client, "/candidates")
    assert len(found) == len(set(found)) == len(TEXTS) + 4


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("kind=refinement", lambda n: 15 <= n < 30),
        ("kind=sample&min_reward=5", lambda n: 5 <= n < 15),
        ("max_reward=3", lambda n: 1 <= n <= 3),
        ("min_reward=5&max_reward=8&sort=-reward", lambda n: 5 <= n <= 8),
        ("rating=1", lambda n: n % 2 and n < 30),
        ("rating=1&kind=refinement&max_reward=20", lambda n: n % 2 and 15 <= n <= 20),
        ("rating=-1&sort=length", lambda n: n % 2 == 0 and n < 30),
        ("iteration=1&kind=sample&rating=1", lambda n: n % 2 and n < 15),
        ("text=answer+number+03", lambda n: n < 10 or n == 30),
        ("unscored=1", lambda n: n == 0),
    ],
)
def test_filters_keep_the_rows_that_pass_and_no_other(client, asked, kept):
    every = walk(client, "/candidates")
    found = walk(client, f"/candidates?{asked}")
    expected = {i for i, n in zip(every, numbers(every), strict=True) if kept(n)}
    if "text" in asked:
        expected = {i for i in expected if i.startswith("cand-00001e")}
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("sort", ["reward", "-reward", "length", "-length"])
def test_a_list_comes_in_the_order_that_is_asked_for(client, sort):
    found = numbers(walk(client, f"/candidates?sort={sort}&iteration=1&min_reward=1"))
    assert len(found) == 4 * 29
    assert found == sorted(found, reverse=sort.startswith("-"))


def test_a_sparse_filter_looks_on_page_by_page(client, monkeypatch):
    monkeypatch.setattr(page_rows, "BLOCK", 7)
    monkeypatch.setattr(page_rows, "LARGEST", 7)
    monkeypatch.setattr(page_rows, "ENOUGH_S", 0.0)
    path = "/candidates?text=number+119"
    assert ids(client, path) == []
    assert "No row passes so far" in client.get(RUN + path).text
    assert len(walk(client, path)) == 1


def test_prompts_whose_answers_got_worse_are_found(client):
    pattern = re.compile(r'<th scope="row"><a href="/runs/seen/prompts/')
    pages = {
        way: len(pattern.findall(client.get(f"{RUN}/prompts?flip={way}").text))
        for way in ("lost", "gained")
    }
    assert pages == {"lost": 4, "gained": 0}
    assert len(walk(client, "/candidates?flip=lost")) == len(TEXTS) + 4
    assert walk(client, "/critiques?flip=gained") == []


def test_words_are_looked_for_in_the_index_to_which_nothing_is_added(tmp_path):
    write_run(tmp_path, "seen", TEXTS, configuration())
    reindex(tmp_path)
    write_run(tmp_path, "later", ["unheard words"], configuration())
    client = TestClient(site(tmp_path))
    found = numbers(ids(client, "/candidates?how=words&text=number+007"))
    assert found[0] == 7
    assert numbers(walk(client, '/candidates?how=words&text="answer number 007"&rating=1')) == [7]
    assert walk(client, '/candidates?how=words&text="answer number 007"&rating=-1') == []
    answer = client.get("/runs/later/candidates?how=words&text=unheard")
    assert "No row passes" in answer.text
    assert "2 rows of this run are not indexed yet" in answer.text
    wrong = client.get(f"{RUN}/candidates?how=words&text=number&sort=reward")
    assert wrong.status_code == 400


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/candidates?task=nope", "there is no task 'nope' here"),
        ("/candidates?rating=x", "rating 'x' is not a whole number"),
        ("/candidates?min_reward=high", "min_reward 'high' is not a number"),
        ("/candidates?sort=text", "there is no column to sort by 'text' here"),
        ("/candidates?how=magic", "how 'magic' is not one of: contains, words, meaning"),
        ("/candidates?how=words&text=a", "reindex` makes it"),
        ("/candidates?start=1.5", "start '1.5' is not a whole number"),
        ("/pairs?how=words&text=a", "there is no list that the search index has 'pairs'"),
        ("/candidates?iteration=99999999999999999999", "is not a whole number"),
        ("/diff?from=7", "iteration 7 of run seen was not measured"),
    ],
)
def test_a_wrong_filter_is_told_in_a_sentence(client, path, said):
    answer = client.get(RUN + path)
    assert answer.status_code == 400
    assert said in unescape(answer.text)


@pytest.mark.parametrize(
    "path", ["/runs/none", "/runs/none/prompts", "/nope", f"{RUN}/prompts/none", f"{RUN}/rows/none"]
)
def test_what_is_not_there_is_said(client, path):
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert "This cannot be shown" in answer.text


def test_a_run_that_cannot_be_read_hides_no_other(tmp_path):
    write_run(tmp_path, "seen", TEXTS[:2], configuration())
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "journal.sqlite").write_bytes(b"no journal" * 1000)
    client = TestClient(site(tmp_path))
    listed = client.get("/").text
    assert 'href="/runs/seen"' in listed
    assert "problem" in listed
    broken = client.get("/runs/broken")
    assert broken.status_code == 500
    assert "lpfloop lake" in broken.text


def test_asking_changes_nothing(lake, client):
    def files() -> dict[str, bytes]:
        names = (path for path in lake.rglob("*") if path.is_file() and "-shm" not in path.name)
        return {str(path): path.read_bytes() for path in names}

    before = files()
    paths = ["", "/prompts", "/candidates?rating=1", "/critiques", "/pairs", "/diff", "/report"]
    for path in [*paths, "/rows/cand-00000001", "/live", "/candidates?how=words&text=a"]:
        client.get(RUN + path)
    assert files() == before


def test_the_run_s_report_is_given_and_shut_off(tmp_path):
    write_run(tmp_path, "seen", TEXTS[:2], configuration())
    client = TestClient(site(tmp_path))
    assert client.get(f"{RUN}/report").status_code == 404
    folder = tmp_path / "runs" / "seen" / "report"
    folder.mkdir()
    (folder / "report.html").write_text("<h1>made</h1>")
    answer = client.get(f"{RUN}/report")
    assert answer.text == "<h1>made</h1>"
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


def test_a_live_part_is_drawn_anew_only_after_a_change(tmp_path):
    run = Operated(tmp_path)
    run.allow(EVALUATED + 1)
    try:
        run.detach()
        # Before, a page may be drawn of a run that has not even told its plan.
        wait_until(lambda: run.asked() == EVALUATED + 2 and run.done() == 1)
        client = TestClient(site(run.lake))
        first = client.get("/runs/slow/live")
        assert first.status_code == 200
        tag = first.headers["etag"]
        while client.get("/runs/slow/live", headers={"If-None-Match": tag}).status_code == 200:
            tag = client.get("/runs/slow/live").headers["etag"]
        run.allow(EVALUATED + 2)
        while (next_ := client.get("/runs/slow/live", headers={"If-None-Match": tag})).text == "":
            assert next_.status_code == 304
        assert next_.headers["etag"] != tag
        assert "<!doctype" not in next_.text
        assert "sample" in next_.text
    finally:
        run.end()


# the command

PAGE = Path(__file__).parents[2] / "docs" / "view.md"
SHOWN = re.findall(r"^```sh view\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", "".join(SHOWN).splitlines())
def test_the_commands_of_the_guide_serve_until_ctrl_c(tmp_path, command):
    write_run(tmp_path, "tiny-rlrf", TEXTS[:2], configuration())
    with viewing(tmp_path, *shlex.split(command)[2:]) as viewer:
        page = httpx2.get(viewer.entry, follow_redirects=True, trust_env=False, timeout=LATE_S)
        assert page.status_code == 200
        assert "tiny-rlrf" in page.text
        # Any free port may have these digits, such as 37575.
        assert (urlsplit(viewer.entry).port == 7575) == ("7575" in command)


def told(*arguments: object) -> tuple[int, str]:
    """Run `lpfloop view` where it must end at once; return its code and what it says."""
    command = [sys.executable, "-m", "lpfloop", "view", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_without_a_lake_it_says_so(tmp_path):
    code, said = told("--lake", tmp_path / "none")
    assert code == 2
    assert (
        said.strip()
        == f"error: there is no lake at {tmp_path / 'none'}: start a run with `lpfloop run`"
    )


def test_a_run_that_is_not_there_is_named(lake):
    code, said = told("other", "--lake", lake)
    assert code == 2
    assert "there is no run 'other'" in said
    assert "seen" in said


def test_a_port_that_is_taken_is_named(lake):
    from lpfloop.loop.view.server import listening

    with listening(0) as taken:
        port = taken.getsockname()[1]
        code, said = told("--lake", lake, "--port", port)
    assert code == 2
    assert said.startswith(f"error: --port {port}: it cannot be had")
