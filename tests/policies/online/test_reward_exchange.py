"""Rewards that a trainer's parent finds: asked once for the same answers, and never for half."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from examples import CANDIDATE
from lpfloop.policies.trainers.reward_exchange import (
    JudgedAnswer,
    ask_parent,
    read_answers,
    read_judged,
    write_answers,
    write_judged,
)
from lpfloop.policies.trainers.trainer_orders import Orders, write_orders
from lpfloop.policies.trainers.trainer_steps import STEPS, new_lines, parse_row, read_steps
from lpfloop.stores.records import Candidate

SOURCES = ("verifier", "critic")


def answers(*texts: str) -> list[Candidate]:
    return [
        replace(CANDIDATE, candidate_id=f"cand-{place}", text=text)
        for place, text in enumerate(texts)
    ]


def judged(work: Path, step: int) -> list[JudgedAnswer]:
    """Judge answers by their length; the critic has nothing to say about an empty one."""
    return [
        JudgedAnswer(
            candidate_id=answer.candidate_id,
            scores={"verifier": float(len(answer.text)), "critic": 1.0 if answer.text else None},
        )
        for answer in read_answers(work, step)
    ]


def parent(work: Path, asked: list[int], ended: threading.Event) -> None:
    """Answer events as a trainer's parent does."""
    offset = 0
    while not ended.is_set():
        lines, offset = new_lines(work / STEPS, offset)
        for row in filter(None, map(parse_row, lines)):
            asked.append(row["step"])
            write_judged(work, row["step"], judged(work, row["step"]))
        time.sleep(0.01)


@pytest.fixture
def asked_of(tmp_path: Path):
    """The steps that a parent was asked about; it runs beside the test."""
    asked: list[int] = []
    ended = threading.Event()
    thread = threading.Thread(target=parent, args=(tmp_path, asked, ended))
    thread.start()
    yield asked
    ended.set()
    thread.join()


def ask(work: Path, drawn: list[Candidate], alive: Callable[[], None] = lambda: None):
    return ask_parent(work, 3, drawn, SOURCES, alive=alive)


def test_the_parent_is_asked_and_the_child_gets_its_scores(tmp_path, asked_of) -> None:
    signs: list[None] = []
    found = ask(tmp_path, answers("two", ""), lambda: signs.append(None))
    assert found == [
        JudgedAnswer(candidate_id="cand-0", scores={"verifier": 3.0, "critic": 1.0}),
        JudgedAnswer(candidate_id="cand-1", scores={"verifier": 0.0, "critic": None}),
    ]
    assert asked_of == [3]
    assert signs, "a child that waits gives a sign of life"
    assert read_steps(tmp_path / STEPS) == [], "asking is no step"


def test_for_the_same_answers_nobody_is_asked_again_for_others_anew(tmp_path, asked_of) -> None:
    first = ask(tmp_path, answers("a", "bb"))
    assert ask(tmp_path, answers("a", "bb")) == first
    assert asked_of == [3]
    # The same ids with another text, as on a GPU whose sums differ by their order.
    again = ask(tmp_path, answers("a", "bbbb"))
    assert again is not None
    assert again[1].scores["verifier"] == 4.0
    assert asked_of == [3, 3]


def test_who_has_not_judged_is_asked_though_another_source_was(tmp_path) -> None:
    write_answers(tmp_path, 3, answers("a"))
    scores = [JudgedAnswer(candidate_id="cand-0", scores={"verifier": 1.0})]
    write_judged(tmp_path, 3, scores)
    assert read_judged(tmp_path, 3, ("verifier",)) == scores
    assert read_judged(tmp_path, 3, SOURCES) is None


def test_a_child_that_is_to_end_waits_no_longer(tmp_path) -> None:
    write_orders(tmp_path, Orders(end=True))
    assert ask(tmp_path, answers("a")) is None


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([("cand-0", 1.0)], "not each of its 2 answers"),
        ([("cand-0", 1.0), ("cand-0", 1.0)], "not each of its 2 answers"),
        ([("cand-0", 1.0), ("cand-9", 1.0)], "not each of its 2 answers"),
        ([("cand-0", 1.0), ("cand-1", float("nan"))], "critic is not finite"),
    ],
)
def test_half_a_judgement_is_none(tmp_path, scores, said) -> None:
    write_answers(tmp_path, 1, answers("a", "b"))
    told = [JudgedAnswer(candidate_id=name, scores={"critic": score}) for name, score in scores]
    with pytest.raises(ValueError, match=said):
        write_judged(tmp_path, 1, told)
    assert read_judged(tmp_path, 1, ("critic",)) is None
