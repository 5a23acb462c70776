"""A run's lines in a log: one for each stage, and now and then one of a long stage."""

import io
import time

from rich.console import Console

from lpfloop.loop.cli.display import PlainReporter
from lpfloop.loop.run.reporter import Advance


def test_a_long_stage_says_how_far_it_is_and_how_long_it_will_take():
    written = io.StringIO()
    reporter = PlainReporter(Console(file=written, width=200), every_s=0.05)
    reporter.begin(1, "sample", planned=4, done=0)
    wait_for(written, "0/4 units, 0 rows")
    reporter.advance(1, "sample", Advance(rows=3, tokens=100))
    wait_for(written, "to go")
    reporter.end(1, "sample")
    said = written.getvalue()
    time.sleep(0.2)
    assert written.getvalue() == said, "a stage that is over goes on talking"
    *before, last = said.splitlines()
    assert all(" so far" in line for line in before)
    assert "1/4 units, 3 rows, " in before[-1]
    assert "1/4 units, 3 rows, " in last
    assert "so far" not in last
    reporter.close()


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


def wait_for(written: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in written.getvalue():
        assert time.monotonic() < deadline, written.getvalue()
        time.sleep(0.01)
