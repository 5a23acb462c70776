"""A comparison at equal tokens as a document and as tables: methods, verdicts, trials, remarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ...stores.keys import Json
from ...stores.lake import RunReader
from ..data.sanitize import one_line
from ..evaluation.compare_runs import incomparable
from ..evaluation.method_outcomes import (
    COSTS,
    ENOUGH,
    FIGURES,
    MethodOutcome,
    initial_outcome,
    method_verdicts,
)
from ..evaluation.pairwise_verdicts import PairwiseVerdict
from ..evaluation.token_course import DRIFT, TokenCourse, token_course
from ..lake.query.told_figures import figure_label, told_bounds, told_difference, told_value
from ..run.outcomes import NothingToTrainOn
from .equal_record import EqualRecord, opened_run

HEADINGS = {DRIFT: "style drift", **{cost: cost.replace("_", " ") for cost in COSTS}}
"""Headings of columns that hold no figure of a policy."""
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings, and rows of texts."""


def outcomes_of(lake: Path, record: EqualRecord) -> list[MethodOutcome]:
    """Return each method's outcome, of the seeds under which every method's run is over.

    A method without runs, or without measured ones, is left out.
    """
    courses = {m.name: _courses(lake, record, m.name) for m in record.methods}
    begun = {name: by_seed for name, by_seed in courses.items() if by_seed}
    shared = set(record.seeds).intersection(*begun.values())
    return [
        MethodOutcome(
            method=name,
            budget=record.budget,
            courses=tuple(course for seed, course in by_seed.items() if seed in shared),
        )
        for name, by_seed in begun.items()
        if shared
    ]


def equal_document(record: EqualRecord, outcomes: Sequence[MethodOutcome]) -> dict[str, Json]:
    """Return a comparison as one JSON document; M_0 is the first of its methods."""
    return {
        "name": record.name,
        "policy_tokens": record.budget.policy_tokens,
        "judge_tokens": record.budget.judge_tokens,
        "seeds": list[Json](_seeds(outcomes)),
        "trial_seed": record.trial_seed,
        "methods": [_method(outcome, outcomes) for outcome in _with_start(outcomes)],
        "verdicts": [_verdict(each) for each in method_verdicts(outcomes)],
        "trials": [
            {
                **asdict(trial),
                "method": method.name,
                "size": str(method.trial_size),
                "chosen": method.chosen == number,
            }
            for method in record.methods
            for number, trial in enumerate(method.trials)
        ],
        "remarks": list(equal_remarks(record, outcomes)),
    }


def equal_tables(record: EqualRecord, outcomes: Sequence[MethodOutcome]) -> Mapping[str, Table]:
    """Return a comparison's tables by title; each interval is one of 95 %."""
    seeds, judged = len(_seeds(outcomes)), record.budget.judge_tokens
    of_judges = "" if judged is None else f", {judged:,} of judges"
    over = f"over {seeds} seeds" if seeds > 1 else "over prompts, as there is one seed"
    title = (
        f"Held-out prompts (test): the last policy within {record.budget.policy_tokens:,} "
        f"generated tokens{of_judges}; mean [95 % {over}]"
    )
    shown = _with_start(outcomes)
    names = [n for n in (*FIGURES, *COSTS) if any(o.figure(n) is not None for o in shown)]
    head = ["Method", *(HEADINGS.get(name) or figure_label(name) for name in names), "used %"]
    rows = [
        [o.method, *(_cell(n, o, outcomes) for n in names), _cell("used", o, outcomes)]
        for o in shown
    ]
    verdicts = [
        (
            each.after.method,
            each.before.method,
            _answer(each),
            figure_label(each.metric),
            told_difference(each.metric, each.decision.difference),
            told_bounds(each.metric, each.decision.low, each.decision.high),
            f"{each.decision.n:,}",
        )
        for each in method_verdicts(outcomes)
    ]
    trials = [
        (
            method.name,
            str(trial),
            str(method.trial_size),
            f"{trial.figure} {trial.score:.3f} on {trial.prompts:,}"
            if trial.score is not None
            else one_line(trial.reason, limit=60) or "-",
            f"{trial.policy_tokens:,}",
            "chosen" if method.chosen == number else "",
        )
        for method in record.methods
        for number, trial in enumerate(method.trials)
    ]
    return {
        title: (head, rows),
        "Verdicts": (("Method", "against", "answer", "by", "difference", "", "prompts"), verdicts),
        "Trials": (("Method", "trial", "size", "dev score", "policy tokens", ""), trials),
    }


def _courses(lake: Path, record: EqualRecord, method: str) -> dict[int, TokenCourse]:
    """Return the courses of a method's runs that are over and were measured, by seed."""
    found = dict[int, TokenCourse]()
    for seed in record.seeds:
        with opened_run(lake, record.run_of(method, seed)) as run:
            course = token_course(run, method) if run is not None and _is_over(run) else None
        if course is not None and course.points:
            found[seed] = course
    return found


def _is_over(run: RunReader) -> bool:
    """Whether a run has made its iterations, or lacked rows to train on."""
    ended = [str(how) for how in run.journal.events("end")[-1:]]
    return any(how.startswith(("done", NothingToTrainOn.__name__)) for how in ended)


def _with_start(outcomes: Sequence[MethodOutcome]) -> list[MethodOutcome]:
    """Return the outcomes with M_0 before them."""
    first = initial_outcome(outcomes)
    return [*([] if first is None else [first]), *outcomes]


def _seeds(outcomes: Sequence[MethodOutcome]) -> list[int]:
    """Return the seeds that count: those under which every method's run is over."""
    return sorted({c.seed for outcome in outcomes for c in outcome.courses})


def _method(outcome: MethodOutcome, outcomes: Sequence[MethodOutcome]) -> dict[str, Json]:
    row: dict[str, Json] = {
        "method": outcome.method,
        "runs": [course.run for course in outcome.courses],
        "policies": [point.policy.name for point in outcome.points],
    }
    if outcome in outcomes:
        row |= {"used": outcome.used.value, "short": outcome.is_short}
    for name in (*FIGURES, *COSTS):
        value = outcome.figure(name)
        if value is not None:
            row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    return row


def _verdict(each: PairwiseVerdict) -> dict[str, Json]:
    decision = each.decision
    return {
        "method": each.after.method,
        "against": each.before.method,
        "answer": decision.answer,
        "metric": each.metric,
        "difference": decision.difference,
        "low": decision.low,
        "high": decision.high,
        "prompts": decision.n,
    }


def _answer(each: PairwiseVerdict) -> str:
    high = each.decision.high
    return "worse" if high is not None and high < 0 else each.decision.answer


def _cell(name: str, outcome: MethodOutcome, outcomes: Sequence[MethodOutcome]) -> str:
    """Return a figure or a cost with its interval; M_0 was free."""
    if outcome not in outcomes and name in ("used", *COSTS):
        return ""
    value = outcome.used if name == "used" else outcome.figure(name)
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return _format(name, value.value)
    return f"{_format(name, value.value)} [{_format(name, value.low)}, {_format(name, value.high)}]"


def _format(name: str, value: float) -> str:
    if name in COSTS:
        return f"{value:,.2f}" if name == "hours" else f"{value:,.0f}"
    return f"{100 * value:.1f}" if name == "used" else told_value(name, value)


def equal_remarks(record: EqualRecord, outcomes: Sequence[MethodOutcome]) -> Iterator[str]:
    """Yield the remarks that a reader of the tables needs."""
    yield from _incomparable(outcomes)
    for outcome in outcomes:
        if outcome.is_short:
            yield (
                f"{outcome.method} used less than {100 * ENOUGH:.0f} % of the budget in a run: "
                "its policy had fewer tokens to learn from than the others'"
            )
    for method in record.methods:
        if method.left_out:
            yield f"{method.name} was left out: {one_line(method.left_out, limit=200)}"
        if len(method.trials) < record.trials:
            yield f"{method.name} is your own recipe: none of its settings were tried"
    yield (
        f"settings were chosen by dev prompts, at seed {record.trial_seed}, from {record.trials} "
        "trials a method; what these generated does not count"
    )
    missing = [f"{seed}" for seed in record.seeds if seed not in _seeds(outcomes)]
    if missing:
        yield (
            "seeds that do not count, as a method's run is not over: "
            f"{', '.join(missing)}; the same command goes on with them"
        )
    if len(_seeds(outcomes)) == 1:
        yield "one seed: the verdicts are about these policies, not about the methods"


def _incomparable(outcomes: Sequence[MethodOutcome]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for name in FIGURES:
        reason = incomparable([outcome.together for outcome in _with_start(outcomes)], name)
        if reason is not None:
            reasons.setdefault(reason, []).append(HEADINGS.get(name) or figure_label(name))
    for reason, headings in reasons.items():
        yield f"not comparable as it stands: {', '.join(headings)}, measured {reason}"
