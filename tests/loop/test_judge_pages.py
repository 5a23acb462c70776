"""Judging in a real browser, by keyboard alone."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from browser import browsing, opened
from hand_judging import RUN, plain_run

from lpfloop.loop.view.entrance import Entrance
from lpfloop.loop.view.server import configured, listening
from lpfloop.loop.view.site import site
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
ITEM = f"/runs/{RUN}/judge/item"
LATE_S = 120
"""An answer comes within a second, unless the machine is busy."""


@contextmanager
def serving_judges(lake: Path) -> Iterator[str]:
    with listening(0) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(configured(Entrance(site(lake), port, TOKEN)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    plain_run(tmp_path, 4, text=" ".join(ATTACKS))
    with serving_judges(tmp_path) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    with browsing() as browser:
        yield browser


def said(lake: Path) -> list[dict[str, object]]:
    return [json.loads(e.row) for e in entries(run_folder(lake, RUN)) if not e.undone]


def begin(page, place: str, name: str, *, pairs: bool = False) -> None:
    """Come in, and begin to judge, by keyboard alone."""
    page.goto(f"{place}/runs/{RUN}/judge?token={TOKEN}")
    at_hand(page, "input[name=as]")
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    if pairs:
        page.keyboard.press("ArrowDown")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#judge")
    hearing(page)
    if page.locator("text=Begin").count():  # who holds an item already sees it at once
        at_hand(page, "button[value=next]")
        page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('Answer')")
    hearing(page)


def hearing(page) -> None:
    """Wait until the page's scripts, which come after its text, hear keys.

    No expression is waited for: the policy of our pages lets none be evaluated a second time.
    """
    page.wait_for_load_state("load")


def at_hand(page, selector: str) -> None:
    """Wait until keys go where a page begins: the browser sees to it when it first draws it."""
    page.wait_for_selector(f"{selector}:focus")


def judge(page, keys: str) -> None:
    """Press keys that judge one item, and wait for the next page, and until it hears keys."""
    before = page.input_value("input[name=item]")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_selector(f"input[name=item][value={json.dumps(before)}]", state="detached")
    hearing(page)


@pytest.mark.crash
def test_two_people_judge_by_keyboard_alone_and_see_how_far_they_agree(tmp_path, place, chromium):
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
        # Ada's page tells it without being asked again.
        page.goto(f"{place}{ITEM}?as=ada&judged=ratings&rule=disagreement&overlap=1&people=2")
        assert "75%" not in page.inner_text("#now")
        with opened(chromium, own=place) as (other, more):
            begin(other, place, "bo")
            judge(other, "13")
            assert more.listed() == []
        page.wait_for_selector("#now:has-text('4 shared labels: agree 75%')")
        assert complaints.listed() == []


@pytest.mark.crash
def test_pairs_are_judged_taken_back_and_left_by_keys(tmp_path, place, chromium):
    with opened(chromium, own=place) as (page, complaints):
        begin(page, place, "ada", pairs=True)
        first = page.input_value("input[name=item]")
        judge(page, "a")
        judge(page, "u")
        assert page.input_value("input[name=item]") == first
        judge(page, "t")
        judge(page, "s")
        page.keyboard.press("q")
        page.wait_for_selector("text=1 judgements wait")
        page.keyboard.press("Shift+Tab")
        page.click("text=Bring them in")
        page.wait_for_selector("text=1 judgements came into the run")
        assert complaints.listed() == []
    (row,) = said(tmp_path)
    assert row["preferred"] == "tie"


@pytest.mark.crash
def test_what_a_model_wrote_is_shown_and_runs_nothing(place, chromium):
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


# Without a browser: what the addresses do.


@pytest.fixture
def client(place: str) -> Iterator[httpx2.Client]:
    own = {"origin": place}
    with httpx2.Client(base_url=place, trust_env=False, headers=own, timeout=LATE_S) as client:
        client.get(f"/?token={TOKEN}")
        yield client


ADA = {"as": "ada", "judged": "ratings", "rule": "disagreement", "overlap": "1", "people": "2"}


def test_no_get_changes_anything(tmp_path, client):
    ledger = run_folder(tmp_path, RUN) / LEDGER
    for path in (f"/runs/{RUN}/judge", ITEM, f"/runs/{RUN}/judge/live"):
        assert client.get(path, params=ADA).status_code == 200
    assert not ledger.exists()
    assert client.get(f"/runs/{RUN}/judge/commit").status_code == 405
    client.post(ITEM, data={**ADA, "do": "next"})
    page = client.get(ITEM, params=ADA).text
    assert page == client.get(ITEM, params={**ADA, "do": "skip", "better": "0"}).text
    assert said(tmp_path) == []


def test_a_form_that_is_sent_twice_judges_once(tmp_path, client):
    client.post(ITEM, data={**ADA, "do": "next"})
    page = client.get(ITEM, params=ADA).text
    item = page.partition('name="item" value="')[2].partition('"')[0].replace("&#34;", '"')
    form = {**ADA, "item": item, "rating:Correctness": "1", "rating:Readability": "0"}
    for _ in range(2):
        assert client.post(ITEM, data=form).status_code == 303
    assert [row["ratings"] for row in said(tmp_path)] == [{"Correctness": 1, "Readability": 0}]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"as": ""}, "is no name to judge under"),
        ({"as": "a\x1bb"}, "is no name to judge under"),
        ({"rule": "best"}, "there is no such order"),
        ({"judged": "all"}, "is neither ratings nor pairs"),
        ({"overlap": "7"}, "is no number from 0 to 1"),
        ({"people": "nan"}, "is no number from 0 to 20"),
        ({"task": "poems"}, "the run&#39;s tasks are math"),
    ],
)
def test_what_cannot_be_judged_is_said_in_a_sentence(tmp_path, client, fields, sentence):
    answer = client.post(ITEM, data={**ADA, "do": "next", **fields})
    assert answer.status_code == 400
    assert sentence in answer.text
    assert said(tmp_path) == []


def test_only_this_page_may_judge(tmp_path, client):
    answer = client.post(
        ITEM, data={**ADA, "do": "next"}, headers={"origin": "http://evil.example"}
    )
    assert answer.status_code == 403
    assert not (run_folder(tmp_path, RUN) / LEDGER).exists()


def test_a_form_longer_than_any_of_ours_is_refused(client):
    assert client.post(ITEM, data={**ADA, "comment": "x" * 200_000}).status_code == 413
