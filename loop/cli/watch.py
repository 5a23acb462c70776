"""The display of a run in another process, from its journal."""

import time

from ...stores.journal_reader import Reader
from ..daemon.control import PAUSED, alive
from ..daemon.progress import Progress, progress
from ..lake.query.runs import ending
from ..run.reporter import Reporter, UnitStats

POLL_S = 0.5
Place = tuple[int, str]
COUNTS = ("rows", "tokens", "prompt_tokens", "calls", "retries", "unscored", "failed")


def watch_run(reader: Reader, reporter: Reporter) -> str:
    """Report a run's progress from its journal, as a reporter in its own process would.

    Return how it ended, when no process works on it any more.
    """
    seen, shown, paused = dict[Place, Progress](), set[Place](), False
    for stage in progress(reader, running=True):
        place = (stage.iteration, stage.stage)
        seen[place] = stage
        if stage.pending:
            shown.add(place)
            reporter.begin(*place, planned=stage.planned, done=stage.done)
    going_on = alive(reader.folder)
    if going_on:
        reporter.note(f"watching run {reader.folder.name}; Ctrl-C leaves it alone")
    while going_on:
        going_on = alive(reader.folder)
        for stage in progress(reader, running=True):
            _report(reporter, seen.get((stage.iteration, stage.stage)), stage, shown)
            seen[stage.iteration, stage.stage] = stage
        if paused != (reader.meta(PAUSED) == "1"):
            paused = not paused
            reporter.note("the run is paused" if paused else "the run resumes")
        if going_on:
            time.sleep(POLL_S)
    for place in sorted(shown):
        reporter.end(*place)
    why = ending(reader) or "it did not end by itself"
    return f"no process works on run {reader.folder.name}: {why}"


def _report(reporter: Reporter, before: Progress | None, now: Progress, shown: set[Place]) -> None:
    """Report the units of a stage done since the last look, their sums with the last unit."""
    place, done = (now.iteration, now.stage), 0 if before is None else before.done
    if before is not None and now.done == done:
        return
    if place not in shown:
        shown.add(place)
        reporter.begin(*place, planned=now.planned, done=done)
    sums = {name: getattr(now, name) - getattr(before, name, 0) for name in COUNTS}
    for unit in range(done, now.done):
        reporter.advance(*place, UnitStats(**sums) if unit + 1 == now.done else UnitStats())
    if not now.pending:
        shown.remove(place)
        reporter.end(*place)
