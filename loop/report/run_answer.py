"""The first answer of a report: is a run's policy better, by how much, and where not?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...stores.lake import RunReader
from ...stores.records import Checkpoint, PolicyVerdict
from ..data.splits import DEV, HELD_OUT
from ..data.text import short_id
from ..evaluation.pairwise_verdicts import ERROR_RATE
from ..lake.query.alarm_list import alarms, sentence
from ..lake.query.format_figures import figure_label, format_value
from ..lake.query.model_names import checkpoints
from ..lake.query.next_steps import need_lines, read_state, run_needs
from ..lake.query.run_verdicts import IterationVerdict, RunVerdict, format_verdict, run_verdict
from ..lake.query.runs import NoSuchRunError

Kind = Literal["better", "worse", "open"]
ALARMS = 4
"""So many alarms are listed; the newest."""
GROUPS = 8
"""So many groups that lost are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The answer in a word, and its evidence in sentences; backticks enclose commands."""

    kind: Kind
    word: str
    sentences: Sequence[str]


def run_answer(run: RunReader) -> RunAnswer:
    """Return whether the best model of a run is better than the one it began with."""
    made = checkpoints(run)
    try:
        found = run_verdict(run, made)
    except NoSuchRunError as error:
        return RunAnswer(kind="open", word="Not known", sentences=(f"{error}.",))
    row = deciding_verdict(found, made)
    if row is None:
        why = f"No policy of run {found.run} was compared with the one it began with."
        return RunAnswer(kind="open", word="Not known", sentences=(why,))
    kind, word = _word(row)
    sentences = (*_how_much(row), *_against_best(found, row), *_lost(found), *_models(found))
    return RunAnswer(kind=kind, word=word, sentences=sentences)


def format_needs(run: RunReader, work: str) -> list[str]:
    """Return the user's next steps for a run; `work` is its process's activity."""
    return list(need_lines(run_needs(read_state(run, work)), work))


def deciding_verdict(found: RunVerdict, made: Sequence[Checkpoint]) -> PolicyVerdict | None:
    """Return the verdict on the best policy against the first; on the latest if that is best."""
    best = [i for i in found.iterations if i.checkpoint.iteration == found.best.iteration]
    of = best[0] if best and found.best.iteration != made[0].iteration else found.iterations[-1]
    return of.of(HELD_OUT, "initial") or of.of(DEV, "initial")


def _word(row: PolicyVerdict) -> tuple[Kind, str]:
    if row.answer == "better":
        return "better", "Better"
    if row.high is not None and row.high < 0:
        return "worse", "Worse"
    return ("worse", "Not better") if row.answer == "not better" else ("open", "Undecided")


def _how_much(row: PolicyVerdict) -> Iterator[str]:
    """Yield by how much a policy has changed, with the level of the interval."""
    before, after = (format_value(row.figure, value) for value in (row.before, row.after))
    clusters = "" if row.clusters == row.n else f" in {row.clusters:,} clusters"
    yield (
        f"M_{row.iteration} against M_{row.other_iteration}, the first model: "
        f"{figure_label(row.figure)} {before} → {after}, {format_verdict(row)}, on "
        f"{row.n:,} {row.split} prompts{clusters}; {row.gained:.0%} of them got better, "
        f"{row.lost:.0%} got worse."
    )
    if row.answer == "undecided" and row.needed is not None:
        yield f"About {row.needed:,} prompts like these would decide it."
    yield (
        "The level is corrected for all comparisons of the run: a run without a gain is called "
        f"better with a probability of at most {ERROR_RATE:.0%}. Significant refers to this level."
    )


def _against_best(found: RunVerdict, row: PolicyVerdict) -> Iterator[str]:
    """Yield a sentence with the dev result of the same policy, by which the loop decides."""
    own = next(i for i in found.iterations if i.checkpoint.iteration == row.iteration)
    dev = own.of(DEV, "initial")
    if dev is not None and row.split != DEV:
        yield (
            f"On the {dev.n:,} dev prompts, by which the loop accepts a model: {dev.answer}, "
            f"{format_verdict(dev)}."
        )


def _lost(found: RunVerdict) -> Iterator[str]:
    """Yield sentences on the groups that got significantly worse."""
    best = [i for i in found.iterations if i.checkpoint.iteration == found.best.iteration]
    iteration = best[0] if best else found.iterations[-1]
    worse = [*_tasks(iteration), *iteration.regressions()]
    if worse:
        named = ", ".join(
            f"{r.name} {100 * r.before:.0f} → {100 * r.after:.0f} %" for r in worse[:GROUPS]
        )
        more = f" and {len(worse) - GROUPS} more" if len(worse) > GROUPS else ""
        yield f"Significantly worse than M_0 on held-out prompts: {named}{more}."
    else:
        yield "No task or family is significantly worse than it was."


def _tasks(found: IterationVerdict) -> list[PolicyVerdict]:
    """Return the eval sets and tasks whose held-out prompts are significantly worse."""
    own = [r for r in found.rows if (r.split, r.against) == (HELD_OUT, "initial")]
    named = [row for scope in ("eval_set", "task") for row in own if row.scope == scope]
    return [row for row in named if row.high is not None and row.high < 0]


def _models(found: RunVerdict) -> Iterator[str]:
    """Yield sentences on the best model, and how to get it."""
    best, latest = found.best, found.latest
    name = f"M_{best.iteration}"
    yield (
        f"The best model is {name} ({short_id(best.checkpoint_id)}): "
        f"`lpfloop model {found.run} {name}` prints its folder, copies it or serves it."
    )
    last = found.iterations[-1].standing
    if best.iteration != latest.iteration and last is not None:
        yield f"The latest is M_{latest.iteration}: {last.reason}."


def format_alarms(run: RunReader) -> Iterator[str]:
    """Yield the newest alarms, and how many more there are."""
    found = alarms(run)
    for alarm in found[:ALARMS]:
        where = f"M_{alarm.iteration}: " if f"M_{alarm.iteration}" not in alarm.message else ""
        yield f"{where}{sentence(alarm)}"
    if len(found) > ALARMS:
        yield f"{len(found) - ALARMS} more: `lpfloop alarms {run.folder.name}`"
