"""Watching a policy for signs that it learns to please its judge: alarms that may stop a run.

The stage reads the stored data on the policies' answers, calls no model, and commits the alarms
together with the figures of length and repetition.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from ...stores.address import run_argument
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Alarm, Evaluation, Split
from ...stores.schemas import RowsByType
from ..lake.query.alarm_list import alarm_fields, code_of
from ..run.iteration import Iteration
from ..run.run import Run, Verb, Work
from ..run.stop import WENT_ON, AlarmStopError
from .observe import Observation, answer_units, compared_iterations, observe_policy
from .probe import ALARM
from .raise_alarms import raise_alarms
from .style_alarms import STYLE, style_numbers

WATCH = Verb("watch", semantics=2)


def watch(it: Iteration, benchmark: Split) -> None:
    """Raise alarms about M_t by its answers to a benchmark, if there are others to compare with."""
    run = it.run
    config, journal = run.config.alarms, run.store.journal
    iterations = compared_iterations(run.store, benchmark, it.parent) if config.watch else []
    if not iterations:
        return
    numbers = (*iterations, it.number)
    units = [unit for number in numbers for unit in answer_units(journal, number, benchmark)]
    work = Work(
        verb=WATCH,
        params={"benchmark": benchmark},
        upstream=tuple(units),
        reads=lambda: [units],
    )

    def make(_: Unit) -> RowsByType:
        seen = observe_policy(run.store, it.parent, iterations, benchmark, run.prompts)
        alarms = raise_alarms(seen)
        _announce(run, alarms)
        return {Alarm: alarms, Evaluation: _figures(seen)}

    run.make(it.number, "watch", work, make)


def _figures(seen: Observation) -> list[Evaluation]:
    return [
        Evaluation(
            iteration=seen.policy.iteration,
            checkpoint_id=seen.checkpoint_id,
            benchmark=STYLE,
            metric=metric,
            value=value,
            stderr=None,
            n=n,
        )
        for metric, (value, n) in style_numbers(seen).items()
    ]


def _announce(run: Run, alarms: Sequence[Alarm]) -> None:
    """Report alarms before their rows are committed: after a crash twice, but never not at all."""
    for alarm in alarms:
        run.reporter.note(alarm.message, "alarm", **alarm_fields(alarm))
        detail: Json = asdict(alarm)
        run.store.when_there_is_room(partial(run.store.journal.record, ALARM, detail))


def stop_at_alarms(run: Run, iteration: int) -> None:
    """Stop before the next iteration if one was raised that stops; it is decided once.

    Raises:
        AlarmStopError: naming the alarm, and how to go on.
    """
    journal = run.store.journal
    if iteration >= run.config.iterations or iteration in journal.events(WENT_ON):
        return
    units = [
        part.unit
        for part in journal.parts(table="alarms", iteration=iteration)
        if part.stage == "watch"
    ]
    stopping = [row for unit in units for row in run.store.rows(Alarm, unit) if row.stops]
    if not stopping:
        return
    if run.config.alarms.on_alarm == "stop":
        more = f" (and {len(stopping) - 1} more alarms that stop)" if len(stopping) > 1 else ""
        raise AlarmStopError(
            f"iteration {iteration}: {code_of(stopping[0]).code}: {stopping[0].message}{more}. "
            f"`lpfloop alarms {run_argument(journal.folder)}` lists the alarms; to go on, "
            f"`lpfloop resume {run_argument(journal.folder)} --set alarms.on_alarm=continue`"
        )
    run.store.when_there_is_room(lambda: journal.record(WENT_ON, iteration))
