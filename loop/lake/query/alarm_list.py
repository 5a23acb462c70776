"""The alarms of a run, the newest first: those of its watch, and the falls of its probes."""

from dataclasses import asdict

import polars as pl

from ....stores.frames import empty, frame_rows
from ....stores.lake import RunReader
from ....stores.records import Alarm, Evaluation
from .forgetting import FALL, PREFIX, alarming, told
from .runs import evaluations

UNVERIFIED, PROBE_FALL = "unverified", "probe"
"""Kinds of alarms: approval that nothing verifies, which is merely unknown; a probe's fall."""


def alarms(run: RunReader, iteration: int | None = None) -> list[Alarm]:
    """Return the alarms of all iterations, or of one; those that stop come first in theirs."""
    stored = frame_rows(Alarm, run.scan("alarms", iteration=iteration).collect())
    fallen = [
        _of_probe(number)
        for number in evaluations(run)
        if alarming(number) and iteration in (None, number.iteration)
    ]
    return sorted((*stored, *fallen), key=lambda alarm: (-alarm.iteration, not alarm.stops))


def alarm_rows(run: RunReader, iteration: int | None = None) -> pl.LazyFrame:
    """Return the alarms as rows."""
    rows = [asdict(alarm) for alarm in alarms(run, iteration)]
    return pl.DataFrame(rows, schema=empty("alarms").schema).lazy()


def sentence(alarm: Alarm) -> str:
    """Return an alarm as a sentence that says what it is."""
    return f"{'unknown' if alarm.kind == UNVERIFIED else 'alarm'}: {alarm.told}"


def _of_probe(number: Evaluation) -> Alarm:
    """Return a probe's fall, of which `before` is not known, as an alarm."""
    return Alarm(
        iteration=number.iteration,
        checkpoint_id=number.checkpoint_id,
        kind=PROBE_FALL,
        scope="all",
        name=number.benchmark.removeprefix(PREFIX) + ("" if number.metric == FALL else ", overall"),
        before=None,
        after=-number.value,
        limit=-(number.stderr or 0.0),
        stops=False,
        told=told(number),
        examples=(),
    )
