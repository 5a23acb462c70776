"""Judging in a terminal, by keyboard alone."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hand_judging import RUN, plain_run, queue, rate_all, sitting
from terminals import COLUMNS, ROWS, Terminal
from textual.pilot import Pilot

from lpfloop.loop.cli.judging_screen import JudgingScreen
from lpfloop.loop.evaluation.annotation_session import AnnotationSession
from lpfloop.stores.annotation_ledger import entries
from lpfloop.stores.lake import run_folder

LATE_S = 120
HOSTILE = "[red]A\x1b[2J\x1b]0;owned\x07 [@click=app.bell]b[/] \u202e end"


def text_of(app: JudgingScreen) -> str:
    """Return what the screen shows, line by line."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[int], happened: Callable[[], bool]) -> None:
    """Wait for what follows from keys: the pilot takes a busy machine's screen for an idle one."""
    end = time.monotonic() + LATE_S
    while not happened():
        assert time.monotonic() < end, text_of(pilot.app)
        await asyncio.sleep(0.02)


async def shows(pilot: Pilot[int], *texts: str) -> None:
    """Wait until the screen shows all of these texts."""
    await until(pilot, lambda: all(text in text_of(pilot.app) for text in texts))


async def ends(pilot: Pilot[int]) -> None:
    """End, once all keys before are taken."""
    await pilot.press("q")
    await until(pilot, lambda: pilot.app.return_value is not None)


def used(
    session: AnnotationSession, use: Callable[[Pilot[int], JudgingScreen], Awaitable[None]]
) -> JudgingScreen:
    """Let somebody use the screen."""
    app = JudgingScreen(session)

    async def begin() -> None:
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            await pilot.pause()
            await use(pilot, app)

    asyncio.run(begin())
    return app


@contextmanager
def ada(lake: Path, **wanted: object) -> Iterator[AnnotationSession]:
    with sitting(lake, "ada", queue(**wanted)) as session:
        yield session


def said(lake: Path) -> list[dict[str, object]]:
    return [json.loads(e.row) for e in entries(run_folder(lake, RUN)) if not e.undone]


def test_answers_are_rated_by_keys(tmp_path):
    plain_run(tmp_path)

    async def use(pilot, app):
        await shows(pilot, "> Correctness: ?")
        await pilot.press("1")
        await shows(pilot, "Correctness: failure")
        await shows(pilot, "> Readability: ?")
        await pilot.press("plus")
        await shows(pilot, "you 1, all 1 of 12")
        await pilot.press("minus", "0", "2", "3")
        await ends(pilot)

    with ada(tmp_path) as session:
        app = used(session, use)
    assert app.return_value == 3
    ratings = [row["ratings"] for row in said(tmp_path)]
    names = ("Correctness", "Readability")
    assert ratings == [dict(zip(names, two, strict=True)) for two in ((-1, 1), (-1, 0), (0, 1))]


def test_the_whole_item_fits_80_by_24(tmp_path):
    plain_run(tmp_path)

    async def use(pilot, app):
        await shows(pilot, "Answer", "Readability: ?", "q quit")
        shown = text_of(app)
        lines = shown.splitlines()
        assert len(lines) <= ROWS
        assert max(map(len, lines)) <= COLUMNS
        for text in ("What is", "Reference", "Answer", "Readability: ?", "q quit", "judged as ada"):
            assert text in shown

    with ada(tmp_path) as session:
        used(session, use)


def test_pairs_are_judged_by_keys(tmp_path):
    plain_run(tmp_path)

    async def use(pilot, app):
        await shows(pilot, "Which answer is better?")
        await shows(pilot, "Answer A")
        await pilot.press("1")
        await pilot.press("a", "b", "t")
        await ends(pilot)

    with ada(tmp_path, judged="pairs") as session:
        app = used(session, use)
    rows = said(tmp_path)
    assert app.return_value == len(rows) == 3
    for row, place in zip(rows, (0, 1), strict=False):
        shown = ["first", "second"][:: -1 if row["order"] == "swapped" else 1]
        assert row["preferred"] == shown[place]
    assert rows[2]["preferred"] == "tie"


def test_a_comment_is_stored_with_the_judgement_and_its_letters_are_no_keys(tmp_path):
    plain_run(tmp_path)

    async def use(pilot, app):
        field = app.query_one("#comment")
        await pilot.press("c")
        await until(pilot, lambda: field.has_focus)
        await pilot.press(*"quits", "enter")
        await shows(pilot, "comment: quits")
        await pilot.press("c")
        await until(pilot, lambda: field.has_focus)
        await pilot.press(*"no", "escape")
        await until(pilot, lambda: not field.has_focus)
        await shows(pilot, "comment: quits")
        await pilot.press("1", "1")
        await shows(pilot, "you 1, all 1 of 12", "Readability: ?")
        assert "comment" not in text_of(app).split("Readability")[1].split("you 1")[0]
        await ends(pilot)

    with ada(tmp_path) as session:
        used(session, use)
    (row,) = said(tmp_path)
    assert row["text"] == "quits"


def test_the_last_judgement_is_taken_back_and_an_item_left_to_others(tmp_path):
    plain_run(tmp_path, 2)

    async def use(pilot, app):
        await pilot.press("u")
        await shows(pilot, "nothing to take back")
        await pilot.press("1", "1")
        await shows(pilot, "you 1, all 1")
        await pilot.press("u")
        await shows(pilot, "you 0, all 0")
        await pilot.press("s", "3", "3")
        await shows(pilot, "Nothing is left for you")
        await pilot.press("1", "s", "a", "c")
        await ends(pilot)

    with ada(tmp_path) as session:
        app = used(session, use)
    assert app.return_value == 1
    assert len(said(tmp_path)) == 1


def test_agreement_is_live(tmp_path):
    plain_run(tmp_path, 4)
    rate_all(tmp_path, "bo", -1, at_most=4)

    async def use(pilot, app):
        await shows(pilot, "nothing judged by several people yet")
        await pilot.press("1", "1")
        await shows(pilot, "2 people, 2 shared labels: agree 100%, Cohen's kappa -")
        await pilot.press("1", "3")
        await ends(pilot)

    with ada(tmp_path) as session:
        used(session, use)
    with ada(tmp_path) as session:
        assert "4 shared labels: agree 75%" in session.agreement().sentence


def test_what_a_model_wrote_runs_nothing_and_hides_nothing(tmp_path):
    plain_run(tmp_path, 1, text=HOSTILE)

    async def use(pilot, app):
        await shows(pilot, "owned", "q quit")
        shown = text_of(app)
        assert "[red]A\\u{1b}[2J\\u{1b}]0;owned\\u{7} [@click=app.bell]b[/] \\u{202e} end" in (
            shown.replace("\n ", " ").replace("\n", " ")
        ).replace("  ", " ")
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)

    with ada(tmp_path) as session:
        used(session, use)


@pytest.mark.crash
def test_a_real_terminal_is_enough(tmp_path):
    plain_run(tmp_path)
    terminal = Terminal("annotate", RUN, "--annotator", "ada", "--lake", tmp_path)
    terminal.read_until("quit")
    terminal.press("1")
    terminal.read_until("failure")
    terminal.press("3")
    terminal.read_until("you 1", "1, all")
    terminal.press("q")
    assert terminal.end() == 0
    assert "ada judged 1 items" in terminal.screen
    assert "1 judgements came into the run" in terminal.screen
    (row,) = said(tmp_path)
    assert row["annotator"] == "ada"
