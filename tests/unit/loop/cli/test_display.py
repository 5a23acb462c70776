"""The lines of a run's display: one for each phase, an evaluation with its score, warnings."""

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from lpfloop.loop.cli.display import LineReporter, LiveReporter, PlainReporter
from lpfloop.loop.run.reporter import UnitStats


def phase(reporter: LineReporter, iteration: int, stage: str, **made: Any) -> None:
    reporter.begin(iteration, stage, planned=1, done=0)
    reporter.advance(iteration, stage, UnitStats(**made))
    reporter.end(iteration, stage)


def test_lines_of_an_iteration() -> None:
    out, clock = io.StringIO(), iter(range(1000))
    reporter = LineReporter(Console(file=out, width=200), now=lambda: float(next(clock)))
    phase(reporter, 0, "prompts", rows=9)
    reporter.note("iteration 1: M_0 to M_1", "iteration", iteration=1)
    phase(reporter, 1, "sample", rows=360, tokens=100)
    phase(reporter, 1, "critique:sample", rows=360, unscored=2)
    reporter.begin(1, "train", planned=1, done=0)
    reporter.note("dpo: loss 0.5", "phase", iteration=1, stage="train", loss=0.5)
    reporter.advance(1, "train", UnitStats(rows=14))
    reporter.end(1, "train")
    phase(reporter, 1, "evaluate:dev", rows=30)
    phase(reporter, 1, "critique:evaluate:dev", rows=30)
    phase(reporter, 1, "measure:dev", rows=30)
    phase(reporter, 1, "evaluate:held-out", rows=20)
    reporter.note("many answers are alike", "alarm", code="W-COPIES", iteration=1)
    phase(reporter, 1, "watch", rows=1)
    reporter.note("test verified 47.4 %", "score", iteration=1, value=0.474)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert [line[0] for line in lines] == [
        *("iteration", "sample", "critique", "train", "evaluate", "warning")
    ]
    sampled, critiqued, trained, evaluated, warned = lines[1:]
    assert {"360", "answers", "tokens/s"} <= {*sampled}
    assert {"360", "critiques", "2", "unscored"} <= {*critiqued}
    assert {"14", "steps", "0.5"} <= {*trained}
    assert {"50", "answers", "47.4"} <= {*evaluated}
    assert warned[1] == "W-COPIES:"


def test_reused_stages_hidden() -> None:
    out = io.StringIO()
    reporter = LineReporter(Console(file=out))
    for stage in ("sample", "evaluate:dev"):
        reporter.begin(1, stage, planned=2, done=2)
        reporter.end(1, stage)
    reporter.note("test verified 47.4 %", "score", iteration=1)
    reporter.close()
    assert out.getvalue() == ""


def test_evaluation_without_a_score_has_its_line() -> None:
    out = io.StringIO()
    reporter = LineReporter(Console(file=out, width=200))
    phase(reporter, 2, "evaluate:mine-0123abcd", rows=7)
    reporter.close()
    assert "7 answers" in out.getvalue()


def test_plain_progress_of_a_training() -> None:
    out, told, spoken = io.StringIO(), threading.Event(), threading.Event()

    def wait(over: threading.Event, _seconds: float) -> bool:
        if not told.is_set():
            told.wait(10)
            return False
        spoken.set()
        return over.wait(10)

    console = Console(file=out, width=200)
    reporter = PlainReporter(console, now=lambda: 0.0, wait=wait)
    reporter.begin(1, "train", planned=1, done=0)
    reporter.working(1, "train", "step 3 of 20, loss 0.5, 200 tokens/s", 65.0)
    told.set()
    assert spoken.wait(10)
    reporter.advance(1, "train", UnitStats(rows=20))
    reporter.end(1, "train")
    first, _, last = out.getvalue().splitlines()
    assert "step 3 of 20, loss 0.5, 200 tokens/s" in first
    assert "1:05" in first
    assert "20 steps" in last


@pytest.mark.parametrize("left_s", [None, 65.0])
def test_live_bar_of_a_training(left_s: float | None) -> None:
    out = io.StringIO()
    reporter = LiveReporter(Console(file=out, width=200, force_terminal=True))
    reporter.begin(1, "train", planned=1, done=0)
    reporter.working(1, "train", "step 3 of 20", left_s)
    reporter.close()
    assert "step 3 of 20" in out.getvalue()
    assert ("1:05" in out.getvalue()) == (left_s is not None)
