"""A run's lines in a log and on a terminal: one for each stage, and now and then of a long one."""

import io
import queue

import pytest
from rich.console import Console

from lpfloop.loop.cli.display import EVERY_S, LiveReporter, PlainReporter
from lpfloop.loop.run.reporter import Advance


class Clock:
    """A clock that stands still until it is told that time went by, and whoever waits for it."""

    def __init__(self):
        self.seconds = 0.0
        self.asked = queue.Queue()
        self.told = queue.Queue()

    def now(self):
        return self.seconds

    def wait(self, over, seconds):
        self.asked.put(seconds)
        self.told.get(timeout=120)
        return over.is_set()

    def pass_by(self, seconds):
        """Let time go by, and wait until who waited for it waits again."""
        self.seconds += seconds
        self.told.put(None)
        assert self.asked.get(timeout=120) == EVERY_S


def test_a_long_stage_says_every_half_minute_how_far_it_is_and_how_long_it_will_take():
    assert EVERY_S == 30
    written, clock = io.StringIO(), Clock()
    reporter = PlainReporter(Console(file=written, width=200), now=clock.now, wait=clock.wait)
    reporter.begin(1, "sample", planned=4, done=0)
    assert clock.asked.get(timeout=120) == EVERY_S
    clock.pass_by(30)
    reporter.advance(1, "sample", Advance(rows=3, tokens=600, unscored=1))
    clock.pass_by(30)
    clock.seconds += 15
    reporter.end(1, "sample")
    clock.told.put(None)
    first, second, last = (" ".join(line.split()) for line in written.getvalue().splitlines())
    assert first == "iteration 1 sample 0/4 units, 0 rows, 30.0 s so far"
    done = "iteration 1 sample 1/4 units, 3 rows, {} tokens/s, unscored 33.3%, {} s"
    assert second == done.format(10, "60.0") + " so far, about 3:00 to go"
    assert last == done.format(8, "75.0")
    reporter.close()


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_bar_shows_its_units_and_its_clock_however_narrow(width):
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    reporter = LiveReporter(console)
    reporter.begin(1, "critique:evaluate:held-out", planned=80, done=0)
    for _ in range(7):
        advance = Advance(rows=64, tokens=10**6, unscored=3)
        reporter.advance(1, "critique:evaluate:held-out", advance)
    reporter.close()
    shown = next(x for x in reversed(written.getvalue().splitlines()) if "7/80" in x)
    assert ":" in shown.split("7/80")[1].split("rows")[0], "the time to go"


def test_a_short_stage_has_one_line():
    written = io.StringIO()
    reporter = PlainReporter(Console(file=written, width=200))
    for stage in ("sample", "critique"):
        reporter.begin(0, stage, planned=1, done=0)
        reporter.advance(0, stage, Advance(rows=1))
        reporter.end(0, stage)
    assert len(written.getvalue().splitlines()) == 2


def test_stages_that_go_on_at_one_time_have_a_line_each():
    written = io.StringIO()
    reporter = PlainReporter(Console(file=written, width=200))
    reporter.begin(1, "sample", planned=2, done=0)
    reporter.begin(1, "critique", planned=3, done=1)
    reporter.advance(1, "sample", Advance(rows=7))
    reporter.advance(1, "critique", Advance(rows=5))
    reporter.advance(1, "sample", Advance(rows=7))
    reporter.end(1, "sample")
    reporter.end(1, "critique")
    first, second = written.getvalue().splitlines()
    assert "sample" in first
    assert "2/2 units, 14 rows" in first
    assert "critique" in second
    assert "2/3 units, 5 rows" in second
    assert "1 units re-used" in second
