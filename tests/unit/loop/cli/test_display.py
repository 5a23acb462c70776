"""What a terminal and a pipe say of a unit that takes long."""

import io
import threading

import pytest
from rich.console import Console

from lpfloop.loop.cli.display import LiveReporter, PlainReporter
from lpfloop.loop.run.reporter import Advance


def test_plain_line_of_a_training() -> None:
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
    reporter.advance(1, "train", Advance(rows=20))
    reporter.end(1, "train")
    first, last = out.getvalue().splitlines()
    assert "0/1 units, step 3 of 20, loss 0.5, 200 tokens/s" in first
    assert "1:05 to go" in first
    assert "1/1 units, 20 rows" in last


@pytest.mark.parametrize("left_s", [None, 65.0])
def test_live_bar_of_a_training(left_s: float | None) -> None:
    out = io.StringIO()
    reporter = LiveReporter(Console(file=out, width=200, force_terminal=True))
    reporter.begin(1, "train", planned=1, done=0)
    reporter.working(1, "train", "step 3 of 20", left_s)
    reporter.close()
    assert "step 3 of 20" in out.getvalue()
    assert ("1:05 to go" in out.getvalue()) == (left_s is not None)
