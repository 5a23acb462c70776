"""The results of a run by iteration: the document of `lpfloop status`."""

from collections.abc import Sequence
from typing import Any, cast

import polars as pl

from ....stores.frames import frame_rows
from ....stores.journal_reader import Reader, Serving
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import SCORED, Evaluation, FilterCount
from ....stores.side_evals import side_eval_of
from ...data.filter_counts import accounts
from ...data.splits import HELD_OUT, eval_set_of
from ...run.reporter import REMARK
from ..search.prompt_overlap import recorded_overlap
from ..statistics.intervals import share_interval
from .answer_logprobs import answer_logprobs, sinking_warning, update_survival
from .critic_scores import AGREEMENT, critic_scores
from .forgetting import PREFIX, alarming, is_probe
from .policy_figures import measured_on
from .runs import ending, of_loop
from .vocabulary import SHARES

COUNTED = (
    "candidates",
    "critiques",
    "pairs",
    "demonstrations",
    "unpaired_answers",
)
SHOWN = 3
"""How many reported identities of an endpoint are listed."""


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
    numbers = evaluations(run)
    scores = critic_scores(run, iteration)
    filtered = run.scan("filter_counts", iteration=iteration).collect()
    left_out = frame_rows(FilterCount, filtered)
    made = run.scan("checkpoints").filter(pl.col("at_step").is_null()).collect()
    checkpoints = {row["iteration"]: row for row in made.to_dicts()}
    every = run.journal.stages()
    stages = [state for state in every if side_eval_of(state.stage) is None]
    last = max((state.iteration for state in stages), default=-1)
    iterations = [n for n in range(last + 1) if iteration is None or n == iteration]
    trained = {n: logprobs for n in iterations if (logprobs := answer_logprobs(run, n)) is not None}
    sinking = [text for n, found in trained.items() if (text := sinking_warning(n, found))]
    return {
        "run": run.folder.name,
        "ended": ending(run.journal),
        "overlap": recorded_overlap(run.journal),
        "warnings": list[Json]([*_model_changes(run.journal), *_remarks(run.journal), *sinking]),
        "iterations": [
            {
                "iteration": number,
                "checkpoint": checkpoints.get(number, {}).get("checkpoint_id"),
                "metrics": {
                    e.metric: _figure(e)
                    for e in numbers
                    if e.iteration == number and e.benchmark == HELD_OUT and e.metric != AGREEMENT
                },
                "eval_sets": _eval_sets([e for e in numbers if e.iteration == number]),
                "critic": [score.figures for score in scores if score.iteration == number],
                "probes": _probes([e for e in numbers if e.iteration == number]),
                "counts": _counts(run, number),
                "filter_counts": accounts([r for r in left_out if r.iteration == number]),
                "answers": trained.get(number),
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
        "side_evals": [
            {"benchmark": name, "iteration": number, "counts": _made_counts(run, number, name)}
            for number, name in dict.fromkeys((s.iteration, side_eval_of(s.stage)) for s in every)
            if name is not None and (iteration is None or number == iteration)
        ],
    }


def _figure(number: Evaluation) -> dict[str, Json]:
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
            found.setdefault(eval_set, {})[e.metric] = _figure(e)
    return dict(found)


def _probes(numbers: Sequence[Evaluation]) -> dict[str, Json]:
    """Return the share of each probe passed, its fall, and whether that is an alarm."""
    found: dict[str, dict[str, Json]] = {}
    for e in (e for e in numbers if is_probe(e.benchmark)):
        probe = found.setdefault(e.benchmark.removeprefix(PREFIX), {"alarm": False})
        probe[e.metric] = _figure(e)
        probe["alarm"] = probe["alarm"] or alarming(e)
    return dict(found)


def _counts(run: RunReader, iteration: int) -> dict[str, Json]:
    unscored = of_loop(run, "critiques", iteration).filter(pl.col("status") != SCORED)
    outcomes = run.scan("pairing_outcomes", iteration=iteration)
    return {
        **_made_counts(run, iteration, None),
        "unscored": _by(unscored, "status"),
        "prompts_by_outcome": _by(outcomes, "outcome"),
    }


def _by(rows: pl.LazyFrame, column: str) -> dict[str, Json]:
    """Count rows by the value of a column."""
    return dict(rows.group_by(column).len().sort(column).collect().iter_rows())


def _made_counts(run: RunReader, iteration: int, benchmark: str | None) -> dict[str, Json]:
    """Return the row counts of an iteration of the loop, or of a side eval."""
    return {
        table: sum(
            part.rows
            for part in run.journal.parts(table=table, iteration=iteration)
            if side_eval_of(part.stage) == benchmark
        )
        for table in COUNTED
    }


def _model_changes(journal: Reader) -> list[str]:
    """Return a sentence for each stage whose endpoints report another model than before."""
    by_model: dict[str, dict[tuple[int, str], list[str]]] = {}
    for serving in journal.serving_reports():
        stages = by_model.setdefault(str(serving.report.get("asked")), {})
        stages.setdefault((serving.iteration, serving.stage), []).append(_name_of(serving))
    found = list[str]()
    for model, stages in by_model.items():
        before: list[str] = []
        for (iteration, stage), now in stages.items():
            changed = f"{model} changed in {stage} of iteration {iteration}:"
            if before and set(now) != set(before):
                found.append(f"{changed} from {_join_some(before)} to {_join_some(now)}")
            elif not before and len(now) > 1:
                found.append(f"{changed} {_join_some(now)}")
            before = now
    return found


def _name_of(serving: Serving) -> str:
    model = str(serving.report.get("model") or "a model without a name")
    fingerprint = serving.report.get("system_fingerprint")
    return f"{model} ({fingerprint})" if fingerprint else model


def _join_some(parts: list[str]) -> str:
    more = len(parts) - SHOWN
    return " and ".join(parts[:SHOWN]) + (f" and {more} others" if more > 0 else "")


def _remarks(journal: Reader) -> list[str]:
    """Return each remark once, with the stages that it is about."""
    about: dict[str, list[str]] = {}
    for event in cast("list[dict[str, Any]]", journal.events(REMARK)):
        where = f"{event['stage']} of iteration {event['iteration']}"
        about.setdefault(str(event["remark"]), []).append(where)
    return [f"{remark} (in {_join_some(stages)})" for remark, stages in about.items()]
