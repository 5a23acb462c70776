"""The runs of a lake, and the results of a run.

Read-only and safe while the daemon writes.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from ....configs.mistakes import did_you_mean, list_names
from ....stores.frames import frame_rows
from ....stores.journal_reader import Reader
from ....stores.keys import Json
from ....stores.lake import RunReader, run_folder, run_names
from ....stores.records import SCORED, Evaluation, FilterCount
from ....stores.side_evals import measured_beside, smoke_test_of
from ...data.filter_counts import accounts
from ...data.splits import HELD_OUT, eval_set_of
from ...run.run_events import END, STAGE
from ..imports import UNUSED
from ..statistics.share_interval import share_interval
from .endpoints import warnings
from .forgetting import PREFIX, alarming, is_probe
from .policy_figures import measured_on
from .vocabulary import AGREEMENT, SHARES

COUNTED = (
    "candidates",
    "critiques",
    "pairs",
    "demonstrations",
    "unpaired_answers",
)


class NoSuchRunError(ValueError):
    """A run that is not in the lake, or a checkpoint that is not in the run."""

    code = "LPF-201"


def open_run(lake: Path, name: str | None) -> RunReader:
    """Open a run for reading; without a name, the one written last.

    Raises:
        NoSuchRunError: if it does not exist, naming those that do.
    """
    return RunReader(run_folder(lake, run_name(lake, name)))


def run_name(lake: Path, name: str | None) -> str:
    """Return the name of an existing run; by default, of the run written last.

    Raises:
        NoSuchRunError: if it does not exist, naming the existing ones.
    """
    names = run_names(lake)
    if name is None:
        if not names:
            raise NoSuchRunError(
                f"no run in {lake}: start one with `lpfloop demo` or `lpfloop run`"
            )
        name = names[-1]
    if name not in names:
        raise NoSuchRunError(
            f"no run {name!r} in {lake}; {did_you_mean(name, names)}runs there: "
            f"{list_names(names[::-1])}"
        )
    return name


def require_iteration(run: RunReader, iteration: int | None) -> None:
    """Refuse an iteration that a run has not started.

    Raises:
        NoSuchRunError: naming the existing ones.
    """
    begun = {stage.iteration for stage in run.journal.stages()}
    if iteration is None or not begun or iteration in begun:
        return
    there = f"{min(begun)} to {max(begun)}" if len(begun) > 1 else f"only {min(begun)}"
    raise NoSuchRunError(
        f"run {run.folder.name} does not have iteration {iteration}; it has {there}"
    )


def evaluations(run: RunReader) -> list[Evaluation]:
    """Return the run's numbers on its held-out prompts and on its capability probes."""
    condition = measured_on(HELD_OUT) | pl.col("benchmark").str.starts_with(PREFIX)
    frame = run.scan("evaluations").filter(condition).collect()
    return [Evaluation(**row) for row in frame.to_dicts()]


def status(run: RunReader, iteration: int | None = None) -> dict[str, Json]:
    """Return a run's results: each iteration's checkpoint, metrics, counts and seconds.

    The critic's quality is listed by task: an overall figure would hide a fall in one. Side evals
    are counted apart. `warnings` are sentences on the endpoints that served the run, and on chosen
    answers that became less probable by training.
    """
    # Every command opens a run; only this function needs these modules, which import the settings.
    from ..search.duplicates import report_iteration
    from .answer_logprobs import answer_logprobs, update_survival
    from .critic_scores import by_iteration, critic_scores

    numbers = evaluations(run)
    watched = by_iteration(critic_scores(run, iteration))
    made = run.scan("checkpoints").filter(pl.col("at_step").is_null()).collect()
    checkpoints = {row["iteration"]: row for row in made.to_dicts()}
    every = run.journal.stages()
    stages = [state for state in every if measured_beside(state.stage) is None]
    last = max((state.iteration for state in stages), default=-1)
    iterations = [n for n in range(last + 1) if iteration is None or n == iteration]
    trained = {n: logprobs for n in iterations if (logprobs := answer_logprobs(run, n)) is not None}
    sinking = [text for logprobs in trained.values() if (text := logprobs.warning()) is not None]
    return {
        "run": run.folder.name,
        "ended": ending(run.journal),
        "unused": _unused_fields(run),
        "warnings": list[Json]([*warnings(run.journal), *sinking]),
        "iterations": [
            {
                "iteration": number,
                "checkpoint": checkpoints.get(number, {}).get("checkpoint_id"),
                "metrics": {
                    e.metric: figure_json(e)
                    for e in numbers
                    if e.iteration == number and e.benchmark == HELD_OUT and e.metric != AGREEMENT
                },
                "eval_sets": _eval_sets([e for e in numbers if e.iteration == number]),
                "critic": watched.get(number, []),
                "probes": _probes([e for e in numbers if e.iteration == number]),
                "counts": _counts(run, number),
                "filter_counts": _filter_counts(run, number),
                "duplicates": report_iteration(run.journal, number),
                "answers": trained[number].as_json() if number in trained else None,
                "update_survival": update_survival(run, number),
                "seconds": {s.stage: round(s.seconds, 3) for s in stages if s.iteration == number},
                "stages": [
                    {
                        "stage": s.stage,
                        "planned": s.planned,
                        "done": s.done,
                        "tokens": int(s.totals.get("tokens", 0)),
                    }
                    for s in stages
                    if s.iteration == number
                ],
            }
            for number in iterations
        ],
        "beside": [
            {"benchmark": name, "iteration": number, "counts": _made_counts(run, number, name)}
            for number, name in dict.fromkeys(
                (s.iteration, measured_beside(s.stage)) for s in every
            )
            if name is not None and (iteration is None or number == iteration)
        ],
    }


def figure_json(number: Evaluation) -> dict[str, Json]:
    """Return a number as JSON; a share has its interval of level 95 %."""
    found: dict[str, Json] = {"value": number.value, "stderr": number.stderr, "n": number.n}
    share = number.metric in SHARES
    within = share_interval(number.value, number.stderr, number.n) if share else None
    return found if within is None else {**found, "low": within[0], "high": within[1]}


def _eval_sets(numbers: Sequence[Evaluation]) -> dict[str, Json]:
    """Return the metrics on each named set of held-out prompts."""
    found: dict[str, dict[str, Json]] = {}
    for e in numbers:
        eval_set = eval_set_of(e.benchmark)
        if eval_set is not None and e.metric != AGREEMENT:
            found.setdefault(eval_set, {})[e.metric] = figure_json(e)
    return dict(found)


def _probes(numbers: Sequence[Evaluation]) -> dict[str, Json]:
    """Return the share of each probe passed, its fall, and whether that is an alarm."""
    found: dict[str, dict[str, Json]] = {}
    for e in (e for e in numbers if is_probe(e.benchmark)):
        probe = found.setdefault(e.benchmark.removeprefix(PREFIX), {"alarm": False})
        probe[e.metric] = figure_json(e)
        probe["alarm"] = probe["alarm"] or alarming(e)
    return dict(found)


def _filter_counts(run: RunReader, iteration: int) -> list[Json]:
    """Return how many rows each filter of an iteration received, kept and dropped."""
    frame = run.scan("filter_counts", iteration=iteration).collect()
    return [account.as_json() for account in accounts(frame_rows(FilterCount, frame))]


def _unused_fields(run: RunReader) -> Json:
    """Return the fields of imported files that were not used, with the number of rows, or None."""
    text = run.journal.meta(UNUSED)
    return None if text is None else json.loads(text)


def ending(journal: Reader) -> str | None:
    """Return why the loop last ended, or None if it was resumed since; side evals do not count."""
    ends = journal.events(END)
    begun = cast("list[dict[str, Any]]", journal.events(STAGE, after=END))
    stages = [event["stage"] for event in begun]
    again = any(measured_beside(stage) is None or smoke_test_of(stage) for stage in stages)
    return str(ends[-1]) if ends and not again else None


def _counts(run: RunReader, iteration: int) -> dict[str, Json]:
    unscored = (
        of_loop(run, "critiques", iteration)
        .filter(pl.col("status") != SCORED)
        .group_by("status")
        .len()
        .sort("status")
        .collect()
    )
    outcomes = (
        run.scan("pairing_outcomes", iteration=iteration)
        .group_by("outcome")
        .len()
        .sort("outcome")
        .collect()
    )
    return {
        **_made_counts(run, iteration, None),
        "unscored": dict(unscored.iter_rows()),
        "prompts_by_outcome": dict(outcomes.iter_rows()),
    }


def _made_counts(run: RunReader, iteration: int, benchmark: str | None) -> dict[str, Json]:
    """Return the row counts of an iteration of the loop, or of a side eval."""
    return {
        table: sum(
            part.rows
            for part in run.journal.parts(table=table, iteration=iteration)
            if measured_beside(part.stage) == benchmark
        )
        for table in COUNTED
    }


def of_loop(
    run: RunReader,
    table: str,
    iteration: int | None = None,
    columns: Collection[str] | None = None,
) -> pl.LazyFrame:
    """Return the rows of a table that the loop made, in an iteration or in all.

    If only some of the columns are wanted, only they are read and verified.
    """
    return run.scan(table, iteration=iteration, columns=columns, stages=is_of_loop)


def is_of_loop(stage: str) -> bool:
    """Return whether a stage belongs to the loop, not to a side eval."""
    return measured_beside(stage) is None
