"""Judging in a real browser, by keyboard alone."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx2
import pytest
import uvicorn
from browser import browsing, opened
from judges import JUDGED, judged_run

from lpfloop.loop.view.access_check import AccessCheck
from lpfloop.loop.view.server import listening, server_config, site
from lpfloop.stores.annotation_ledger import LEDGER, entries
from lpfloop.stores.lake import run_folder

TOKEN = "a-token"
ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</pre><svg onload=alert(3)>",
    "javascript:alert(4)",
    "{{ 7*7 }} ${alert(5)} \u202e\x1b[2J",
)
ITEM = f"/runs/{JUDGED}/judge/item"


@contextmanager
def serving_judges(lake: Path) -> Iterator[str]:
    with listening(0) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(server_config(AccessCheck(site(lake), port, TOKEN)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    judged_run(tmp_path, 4, text=" ".join(ATTACKS))
    with serving_judges(tmp_path) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    with browsing() as browser:
        yield browser


def said(lake: Path) -> list[dict[str, object]]:
    return [json.loads(e.row) for e in entries(run_folder(lake, JUDGED)) if not e.undone]


def begin(page, place: str, name: str) -> None:
    """Log in and start judging, by keyboard alone."""
    page.goto(f"{place}/runs/{JUDGED}/judge?token={TOKEN}")
    page.wait_for_selector("input[name=as]:focus")
    page.keyboard.type(name)
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#judge")
    hearing(page)
    if page.locator("text=Begin").count():  # a person with an open item sees it at once
        page.wait_for_selector("button[value=next]:focus")
        page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('Answer')")
    hearing(page)


def hearing(page) -> None:
    """Wait until the page's scripts, which load after its text, handle keys."""
    page.wait_for_load_state("load")


def judge(page, keys: str) -> None:
    """Judge one item by keys, and wait until the next page handles keys."""
    before = page.input_value("input[name=item]")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_selector(f"input[name=item][value={json.dumps(before)}]", state="detached")
    hearing(page)


def test_two_people_judge_by_keyboard(tmp_path, place, chromium):
    with opened(chromium, own=place) as (page, complaints):
        begin(page, place, "ada")
        assert "SECRET" not in page.content()
        judge(page, "13")
        page.keyboard.press("c")
        page.keyboard.type("quite so")
        page.keyboard.press("Escape")
        judge(page, "-+")
        page.reload()
        assert "you 2, all 2 of 8" in page.inner_text("#now")
        assert [row["ratings"] for row in said(tmp_path)] == [
            {"Correctness": -1, "Readability": 1}
        ] * 2
        assert [row.get("text") for row in said(tmp_path)] == [None, "quite so"]
        begin(page, place, "bo")
        judge(page, "11")
        assert "2 people, 2 shared labels: agree 50%" in page.inner_text("#now")
        # Ada's page shows the change without a reload.
        page.goto(f"{place}{ITEM}?as=ada&judged=ratings&overlap=1&people=2")
        assert "75%" not in page.inner_text("#now")
        with opened(chromium, own=place) as (other, more):
            begin(other, place, "bo")
            judge(other, "13")
            assert more.listed() == []
        page.wait_for_selector("#now:has-text('4 shared labels: agree 75%')")
        assert complaints.listed() == []


def test_model_text_never_executes(place, chromium):
    small = {"viewport": {"width": 360, "height": 700}}
    with opened(chromium, own=place, options=small) as (page, complaints):
        begin(page, place, "ada")
        shown = page.inner_text("main")
        for attack in ATTACKS[:4]:
            assert attack in shown
        assert "{{ 7*7 }} ${alert(5)} \\u{202e}\\u{1b}[2J" in shown
        assert page.locator("main img, main svg").count() == 0
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360
        assert complaints.listed() == []


@pytest.fixture
def client(place: str) -> Iterator[httpx2.Client]:
    own = {"origin": place}
    with httpx2.Client(base_url=place, trust_env=False, headers=own, timeout=120) as client:
        client.get(f"/?token={TOKEN}")
        yield client


ADA = {"as": "ada", "judged": "ratings", "overlap": "1", "people": "2"}


def test_unjudgeable_rows_refused(tmp_path, client):
    ask = {**ADA, "do": "next"}
    for fields in [{"as": ""}, {"overlap": "7"}]:
        assert client.post(ITEM, data={**ask, **fields}).status_code == 400, fields
    assert client.post(ITEM, data={**ADA, "comment": "x" * 200_000}).status_code == 413
    other = {"origin": "http://evil.example"}
    assert client.post(ITEM, data=ask, headers=other).status_code == 403
    assert client.get(ITEM, params={**ask, "better": "0"}).status_code == 200
    assert client.get(f"/runs/{JUDGED}/judge/commit").status_code == 405
    assert not (run_folder(tmp_path, JUDGED) / LEDGER).exists()


def test_answer_is_judged_again(tmp_path, client):
    rating = {"rating:Correctness": "-1", "rating:Readability": "1"}
    client.post(ITEM, data={**ADA, "do": "next"})
    for value in ("-1", "1"):
        page = client.get(ITEM, params=ADA).text
        item = re.findall(r'name="item" value="([^"]+)"', page)[0]
        form = {**ADA, "item": unescape(item), **rating, "rating:Correctness": value}
        assert client.post(ITEM, data=form).status_code == 303
        first = said(tmp_path)[0]["candidate_id"]
        assert client.post(ITEM, data={**ADA, "do": "again", "answer": first}).status_code == 303
    rows = [row for row in said(tmp_path) if row["candidate_id"] == first]
    assert [row["ratings"]["Correctness"] for row in rows] == [-1, 1]
    assert client.post(ITEM, data={**ADA, "do": "again", "answer": "none"}).status_code == 404
