"""The viewer in a real browser: hostile text, light and dark, narrow, by keyboard, and live."""

import sys
import time
from pathlib import Path

import pytest
from browser import browsing, opened
from hostile import payloads
from operated import EVALUATED, Operated
from shown_lake import PER_PROMPT, write_run
from viewed import viewing

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from synthetic import configuration

TEXTS = [
    "The sum is 12.",
    "It was born in Genoa, and lived there.",
    "A river runs to the sea.",
    "It was born in Essen, and lived there.",
]
PAGES = ("", "/prompts", "/candidates", "/critiques", "/pairs", "/diff")
LATE_S = 120
LOOK = """() => [
    document.body.textContent,
    [
        ...document.querySelectorAll("iframe, object, embed, base, style, svg, math, img, video"),
        ...[...document.querySelectorAll("script")].filter(
            (e) => e.textContent || !/^[/]static[/]/.test(e.getAttribute("src"))),
        ...[...document.querySelectorAll("*")].filter((e) => [...e.attributes].some(
            (a) => /^(on|hx-|style$|srcdoc$)/.test(a.name))),
        ...[...document.querySelectorAll("[href], [action], [data-live]")].filter(
            (e) => !/^([/](?![/])|#)/.test(
                e.getAttribute("href") ?? e.getAttribute("action") ?? e.dataset.live)),
    ].map((e) => e.outerHTML.slice(0, 200)),
    window.ran,
    document.documentElement.scrollWidth > window.innerWidth,
]"""
"""Gives a page's text, elements made by hostile text, what ran, and whether it is too wide."""
BRIGHTNESS = """() => ["backgroundColor", "color"].map((name) =>
    getComputedStyle(document.body)[name].match(/[0-9]+/g).slice(0, 3)
    .reduce((sum, part) => sum + Number(part), 0) / 3)"""


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    lake = tmp_path_factory.mktemp("plain") / "lake"
    write_run(lake, "plain", TEXTS, configuration())
    with viewing(lake) as viewer:
        yield viewer


@pytest.fixture
def page(browser, plain):
    with opened(browser, own=plain.own) as (found, complaints):
        found.goto(plain.entry)
        yield found
        assert complaints.listed() == []


def test_no_hostile_text_runs_anywhere(browser, tmp_path):
    """Over a hundred texts stand in every column of text that a row has."""
    texts = payloads()
    assert len(texts) > 100
    write_run(tmp_path / "lake", "hostile", texts, configuration())
    paths = [f"/runs/hostile{end}" for end in PAGES]
    paths += [f"/runs/hostile/candidates?start={start}" for start in range(25, len(texts), 25)]
    paths += [f"/runs/hostile/critiques?start={start}" for start in range(25, len(texts), 25)]
    paths += [f"/runs/hostile/rows/cand-{n:06x}00" for n in range(0, len(texts), PER_PROMPT)]
    paths += ["/runs/hostile/prompts?text=<script>window.ran=1</script>", "/runs/<script>"]
    shown = ""
    with viewing(tmp_path / "lake") as viewer, opened(browser, own=viewer.own) as (page, said):
        page.goto(viewer.entry)
        for path in paths:
            page.goto(viewer.own + path)
            text, intruders, ran, wide = page.evaluate(LOOK)
            assert (intruders, ran, wide) == ([], None, False), path
            shown += text
        # The browser itself says in its console that a page is not there.
        assert [complaint for complaint in said.listed() if "404" not in complaint] == []
    plain = [text for text in texts if text.isascii() and text.isprintable()]
    assert [text for text in plain if text not in shown] == []
    assert "\\u{202e}" in shown
    assert "\u202e" not in shown


def test_a_row_is_found_by_filtering_and_stays_after_a_reload(page):
    page.get_by_role("link", name="plain", exact=True).click()
    page.get_by_role("link", name="candidates", exact=True).click()
    page.fill("input[name=text]", "genoa")
    page.select_option("select[name=kind]", "sample")
    page.click("button:text('Filter')")
    page.wait_for_url("**text=genoa**")
    rows = page.locator("tbody tr")
    assert rows.count() == 1
    assert "Genoa" in rows.first.inner_text()
    rows.first.locator("a").click()
    page.wait_for_url("**/prompts/**#*")
    assert "Genoa" in page.locator("article:target").inner_text()
    twice = page.locator("article", has=page.locator(".times")).first
    assert {"The sum is 12.", "cand-00000000"} <= {*twice.locator("pre, code").all_inner_texts()}
    assert page.locator("article ins").first.inner_text() == "A river runs to the sea"
    before = page.content()
    page.reload()
    assert page.content() == before


def test_each_id_leads_to_its_place(page, plain):
    for identity in ("cand-00000001", "crit-00000001", "pair-00000000", "demo-00000000"):
        page.goto(f"{plain.own}/runs/plain/rows/{identity}")
        assert page.url.endswith(f"#{identity}")
        assert page.locator(f"[id={identity}]").count() == 1


def test_everything_can_be_done_by_keyboard(page):
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/plain")
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.goto(f"{page.url}/candidates")
    page.keyboard.press("/")
    page.keyboard.type("river jk?")
    assert page.input_value("input[name=text]") == "river jk?"
    for _ in " jk?":
        page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=river**")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/prompts/**")
    page.keyboard.press("j")
    assert page.evaluate("() => document.activeElement.tagName") == "ARTICLE"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_light_and_dark(browser, plain, scheme):
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    paths = ["/", *(f"/runs/plain{end}" for end in PAGES), "/runs/plain/rows/cand-00000000"]
    with opened(browser, own=plain.own, options=options) as (page, complaints):
        page.goto(plain.entry)
        for path in paths:
            page.goto(plain.own + path)
            assert not page.evaluate(LOOK)[3], path
        ground, ink = page.evaluate(BRIGHTNESS)
        assert (ground > 200 and ink < 60) if scheme == "light" else (ground < 60 and ink > 200)
        assert complaints.listed() == []


def wait_for(place, text):
    """Wait until a place of a page says something; nothing but the page itself reads it anew."""
    end = time.monotonic() + LATE_S
    while place.inner_text() != text and time.monotonic() < end:
        place.page.wait_for_timeout(50)
    assert place.inner_text() == text


def test_a_page_follows_the_run_that_is_being_written(browser, tmp_path):
    run = Operated(tmp_path)
    run.allow(EVALUATED + 1)
    try:
        run.detach()
        with viewing(run.lake) as viewer, opened(browser, own=viewer.own) as (page, complaints):
            page.goto(viewer.entry)
            page.get_by_role("link", name="slow", exact=True).click()
            page.wait_for_url("**/runs/slow")
            page.evaluate("() => window.same = true")
            units = page.locator("tr:has(th:text-is('sample')) td").nth(1)
            wait_for(units, "1/6")
            run.allow(EVALUATED + 3)
            wait_for(units, "3/6")
            assert page.evaluate("() => window.same")
            assert complaints.listed() == []
    finally:
        run.end()
