"""Judging in a terminal, by keyboard alone."""

import asyncio
import json
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

HOSTILE = "[red]A\x1b[2J\x1b]0;owned\x07 [@click=app.bell]b[/] \u202e end"


def text_of(app: JudgingScreen) -> str:
    """Return what the screen shows, line by line."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


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
        assert "> Correctness: ?" in text_of(app)
        await pilot.press("1")
        assert "Correctness: failure" in text_of(app)
        assert "> Readability: ?" in text_of(app)
        await pilot.press("plus")
        await pilot.pause()
        assert "you 1, all 1 of 12" in text_of(app)
        await pilot.press("minus", "0", "2", "3", "q")

    with ada(tmp_path) as session:
        app = used(session, use)
    assert app.return_value == 3
    ratings = [row["ratings"] for row in said(tmp_path)]
    names = ("Correctness", "Readability")
    assert ratings == [dict(zip(names, two, strict=True)) for two in ((-1, 1), (-1, 0), (0, 1))]


def test_the_whole_item_fits_80_by_24(tmp_path):
    plain_run(tmp_path)

    async def use(pilot, app):
        del pilot
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
        assert "Which answer is better?" in text_of(app)
        assert "Answer A" in text_of(app)
        await pilot.press("1")
        await pilot.press("a", "b", "t", "q")

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
        await pilot.press("c", *"quits", "enter")
        assert "comment: quits" in text_of(app)
        await pilot.press("c", *"no", "escape")
        assert "comment: quits" in text_of(app)
        await pilot.press("1", "1")
        await pilot.pause()
        assert "comment" not in text_of(app).split("Readability")[1].split("you 1")[0]
        await pilot.press("q")

    with ada(tmp_path) as session:
        used(session, use)
    (row,) = said(tmp_path)
    assert row["text"] == "quits"


def test_the_last_judgement_is_taken_back_and_an_item_left_to_others(tmp_path):
    plain_run(tmp_path, 2)

    async def use(pilot, app):
        await pilot.press("u")
        assert "nothing to take back" in text_of(app)
        await pilot.press("1", "1", "u")
        await pilot.pause()
        assert "you 0, all 0" in text_of(app)
        await pilot.press("s", "3", "3")
        await pilot.pause()
        assert "Nothing is left for you" in text_of(app)
        await pilot.press("1", "s", "a", "c", "q")

    with ada(tmp_path) as session:
        app = used(session, use)
    assert app.return_value == 1
    assert len(said(tmp_path)) == 1


def test_agreement_is_live(tmp_path):
    plain_run(tmp_path, 4)
    rate_all(tmp_path, "bo", -1, at_most=4)

    async def use(pilot, app):
        assert "nothing judged by several people yet" in text_of(app)
        await pilot.press("1", "1")
        await pilot.pause()
        assert "2 people, 2 shared labels: agree 100%, Cohen's kappa -" in text_of(app)
        await pilot.press("1", "3", "q")
        await pilot.pause()

    with ada(tmp_path) as session:
        used(session, use)
    with ada(tmp_path) as session:
        assert "4 shared labels: agree 75%" in session.agreement().sentence


def test_what_a_model_wrote_runs_nothing_and_hides_nothing(tmp_path):
    plain_run(tmp_path, 1, text=HOSTILE)

    async def use(pilot, app):
        del pilot
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
