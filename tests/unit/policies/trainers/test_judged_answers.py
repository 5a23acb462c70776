"""Rewards from a trainer's parent: requested once for the same answers, and never partial."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rows import CANDIDATE

from lpfloop.policies.trainers import step_files
from lpfloop.policies.trainers.step_files import (
    Judged,
    ask_parent,
    read_answers,
    read_judged,
    write_answers,
    write_judged,
)
from lpfloop.policies.trainers.work_folder import (
    STEPS,
    Orders,
    new_lines,
    parse_row,
    read_steps,
    write_orders,
)
from lpfloop.stores.records import Candidate

SOURCES = ("verifier", "critic")


def answers(*texts: str) -> list[Candidate]:
    return [
        replace(CANDIDATE, candidate_id=f"cand-{place}", text=text)
        for place, text in enumerate(texts)
    ]


def judged(work: Path, step: int) -> Judged:
    """Score answers by their length; the critic has no score for an empty one."""
    return {
        answer.candidate_id: {
            "verifier": float(len(answer.text)),
            "critic": 1.0 if answer.text else None,
        }
        for answer in read_answers(work, step)
    }


class Parent:
    """Answers events like a trainer's parent, whenever the child looks for an answer."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.asked, self.offset = work, list[int](), 0
        monkeypatch.setattr(step_files, "sleep", lambda _seconds: self.look())

    def look(self) -> None:
        lines, self.offset = new_lines(self.work / STEPS, self.offset)
        for row in filter(None, map(parse_row, lines)):
            self.asked.append(row["step"])
            write_judged(self.work, row["step"], judged(self.work, row["step"]))


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parent:
    return Parent(tmp_path, monkeypatch)


def ask(work: Path, drawn: list[Candidate], alive: Callable[[], None] = lambda: None):
    return ask_parent(work, 3, drawn, SOURCES, alive=alive)


def test_the_child_gets_its_scores(tmp_path, parent) -> None:
    signs: list[None] = []
    found = ask(tmp_path, answers("two", ""), lambda: signs.append(None))
    assert found == {
        "cand-0": {"verifier": 3.0, "critic": 1.0},
        "cand-1": {"verifier": 0.0, "critic": None},
    }
    assert parent.asked == [3]
    assert signs, "a child that waits gives a sign of life"
    assert read_steps(tmp_path / STEPS) == [], "asking is no step"


def test_equal_answers_judged_once(tmp_path, parent) -> None:
    first = ask(tmp_path, answers("a", "bb"))
    assert ask(tmp_path, answers("a", "bb")) == first
    assert parent.asked == [3]
    # The same ids with another text, as on a GPU whose sums depend on their order.
    again = ask(tmp_path, answers("a", "bbbb"))
    assert again is not None
    assert again["cand-1"]["verifier"] == 4.0
    assert parent.asked == [3, 3]


def test_a_child_that_is_to_end(tmp_path) -> None:
    write_orders(tmp_path, Orders(end=True))
    assert ask(tmp_path, answers("a")) is None


def test_partial_judgement_unscored(tmp_path, subtests) -> None:
    write_answers(tmp_path, 1, answers("a", "b"))
    for scores, key in (
        ({"cand-0": 1.0}, "2 answers"),
        ({"cand-0": 1.0, "cand-9": 1.0}, "2 answers"),
        ({"cand-0": 1.0, "cand-1": float("nan")}, "critic"),
    ):
        judgement = {name: {"critic": score} for name, score in scores.items()}
        with subtests.test(scores=scores), pytest.raises(ValueError, match=key):
            write_judged(tmp_path, 1, judgement)
        assert read_judged(tmp_path, 1, ("critic",)) is None
