"""A comparison at equal tokens as texts and as data: methods, verdicts, trials, what to heed."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ...stores.keys import Json
from ..data.sanitize import one_line
from ..evaluation.compare_runs import incomparable
from ..evaluation.compared_columns import MARK, Column
from ..evaluation.method_outcomes import (
    COSTS,
    ENOUGH,
    FIGURES,
    FigureInterval,
    MethodOutcome,
    initial_outcome,
    method_verdicts,
    shared_metric,
)
from ..evaluation.pairwise_verdicts import PairwiseVerdict
from ..evaluation.panels import Panel
from ..evaluation.token_course import DRIFT
from ..evaluation.token_panels import token_panels
from ..lake.query.figures import SHARES
from ..lake.query.told_figures import figure_label, figure_name, told_bounds, told_difference
from .equal_reach import reach_documents, reached_scores
from .equal_record import ComparedMethod, EqualRecord, TriedSettings
from .trials import told_trial

HEADINGS = {
    DRIFT: "style drift",
    "policy_tokens": "policy tokens",
    "judge_tokens": "judge tokens",
    "judge_calls": "judge calls",
}
"""What columns are called that hold no figure of a policy."""
DECIMALS = {DRIFT: 2, "kl": 2, "reward": 2, "hours": 2, **dict.fromkeys(COSTS[:3], 0)}
SHORT = "†"
"""Marks a method that used too little of the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTable:
    """What is to be shown of a comparison: its record, and what each method came to."""

    record: EqualRecord
    outcomes: Sequence[MethodOutcome]

    @property
    def shown(self) -> list[MethodOutcome]:
        """The outcomes with M_0 before them."""
        first = initial_outcome(self.outcomes)
        return [*([] if first is None else [first]), *self.outcomes]

    @property
    def names(self) -> list[str]:
        """What the rows of the table are called."""
        began = len(self.shown) - len(self.outcomes)
        marks = [outcome.is_short for outcome in self.outcomes]
        methods = [
            f"{o.method}{SHORT if m else ''}" for o, m in zip(self.outcomes, marks, strict=True)
        ]
        return [*(outcome.method for outcome in self.shown[:began]), *methods]

    @property
    def title(self) -> str:
        """What the table shows, and what its intervals are over."""
        budget, seeds = self.record.budget, len(self.seeds)
        judged = "" if budget.judge_tokens is None else f", {budget.judge_tokens:,} of judges"
        over = f"over {seeds} seeds" if seeds > 1 else "over prompts, as there is one seed"
        return (
            f"Held-out prompts (test): the last policy within {budget.policy_tokens:,} generated "
            f"tokens{judged}; mean [95 % {over}]"
        )

    @property
    def seeds(self) -> list[int]:
        """The seeds that count: those under which every method's run is over."""
        return sorted({c.seed for outcome in self.outcomes for c in outcome.courses})

    @property
    def columns(self) -> list[Column]:
        """The figures and the costs of each row."""
        found = list[Column]()
        results = [outcome.together for outcome in self.shown]
        for name in (*FIGURES, *COSTS):
            values = [outcome.figure(name) for outcome in self.shown]
            if all(value is None for value in values):
                continue
            mark = MARK if name in FIGURES and incomparable(results, name) else ""
            free = ["" if o not in self.outcomes and name in COSTS else None for o in self.shown]
            cells = [told(name, v) if f is None else f for f, v in zip(free, values, strict=True)]
            found.append((f"{heading(name)}{mark}", cells))
        used = [told("used", o.used) if o in self.outcomes else "" for o in self.shown]
        return [*found, ("used %", used)]

    @property
    def verdicts(self) -> list[PairwiseVerdict]:
        """Each method against each before it."""
        return method_verdicts(self.outcomes)

    def remarks(self) -> Iterator[str]:
        """Say what must be known to read the tables."""
        results = [outcome.together for outcome in self.shown]
        reasons: dict[str, list[str]] = {}
        for name in FIGURES:
            reason = incomparable(results, name)
            if reason is not None:
                reasons.setdefault(reason, []).append(heading(name))
        for reason, headings in reasons.items():
            yield f"{MARK} not comparable as it stands: {', '.join(headings)}, measured {reason}"
        if any(outcome.is_short for outcome in self.outcomes):
            yield (
                f"{SHORT} a run used less than {100 * ENOUGH:.0f} % of the budget: its policy had "
                "fewer tokens to learn from than the others'"
            )
        for method in self.record.methods:
            if method.left_out:
                yield f"{method.name} was left out: {one_line(method.left_out, limit=200)}"
            few = len(method.trials) < self.record.trials
            if few:
                yield f"{method.name} is your own recipe: none of its settings were tried"
        yield (
            f"settings were chosen by dev prompts, at seed {self.record.trial_seed}, from "
            f"{self.record.trials} trials a method; what these generated does not count"
        )
        missing = [f"{seed}" for seed in self.record.seeds if seed not in self.seeds]
        if missing:
            yield (
                "seeds that do not count, as a method's run is not over: "
                f"{', '.join(missing)}; the same command goes on with them"
            )
        if len(self.seeds) == 1:
            yield "one seed: the verdicts are about these policies, not about the methods"


def equal_panels(outcomes: Sequence[MethodOutcome]) -> list[Panel]:
    """Return the panels of score against tokens, by the first figure that all were measured by."""
    metric = shared_metric(outcomes)
    return [] if metric is None else token_panels(outcomes, metric)


def told(name: str, value: FigureInterval | None) -> str:
    """Return a figure with its interval, as text."""
    if value is None:
        return "-"
    factor = 100 if name in SHARES or name == "used" else 1
    decimals = DECIMALS.get(name, 1)
    shown = f"{factor * value.value:,.{decimals}f}"
    if value.low is None or value.high is None:
        return shown
    low, high = (f"{factor * end:,.{decimals}f}" for end in (value.low, value.high))
    return f"{shown} [{low}, {high}]"


def heading(name: str) -> str:
    """Return what a column is called."""
    return HEADINGS.get(name) or figure_label(name)


VERDICT_HEAD = ("Method", "against", "answer", "by", "difference, points", "prompts")


def verdict_rows(table: EqualTable) -> list[tuple[str, ...]]:
    """Return the verdicts as texts; methods that used too little of the budget are marked."""
    short = {outcome.method for outcome in table.outcomes if outcome.is_short}
    return [_verdict_row(each, short) for each in table.verdicts]


def _verdict_row(each: PairwiseVerdict, short: Collection[str]) -> tuple[str, ...]:
    decision = each.decision
    after, before = (
        f"{method}{SHORT if method in short else ''}"
        for method in (each.after.method, each.before.method)
    )
    answer = "worse" if decision.high is not None and decision.high < 0 else decision.answer
    difference = told_difference(each.metric, decision.difference)
    difference = f"{difference} {told_bounds(each.metric, decision.low, decision.high)}".rstrip()
    return (
        after,
        before,
        answer,
        figure_name(each.metric),
        difference,
        f"{decision.n:,}",
    )


TRIAL_HEAD = ("Method", "trial", "size", "dev score", "policy tokens", "judge tokens", "")


def trial_rows(record: EqualRecord) -> list[tuple[str, ...]]:
    """Return each trial as texts."""
    return [
        _trial_row(method, number, trial)
        for method in record.methods
        for number, trial in enumerate(method.trials)
    ]


def _trial_row(method: ComparedMethod, number: int, trial: TriedSettings) -> tuple[str, ...]:
    score = one_line(trial.reason, limit=60) or "-"
    if trial.score is not None:
        score = f"{trial.figure} {trial.score:.3f} on {trial.prompts:,}"
    return (
        method.name,
        told_trial(trial.settings),
        str(trial.size),
        score,
        f"{trial.policy_tokens:,}",
        f"{trial.judge_tokens:,}",
        "chosen" if method.chosen == number else "",
    )


def as_document(table: EqualTable) -> dict[str, Json]:
    """Return a comparison as one JSON document."""
    record = table.record
    return {
        "name": record.name,
        "policy_tokens": record.budget.policy_tokens,
        "judge_tokens": record.budget.judge_tokens,
        "seeds": list[Json](table.seeds),
        "trial_seed": record.trial_seed,
        "methods": [_method_row(table, outcome) for outcome in table.shown],
        "verdicts": [_verdict(each) for each in table.verdicts],
        "tokens_to_reach": reach_documents(reached_scores(table.outcomes)),
        "trials": [
            {
                "method": method.name,
                "run": trial.run,
                "settings": dict(trial.settings),
                "size": str(trial.size),
                "figure": trial.figure,
                "score": trial.score,
                "prompts": trial.prompts,
                "policy_tokens": trial.policy_tokens,
                "judge_tokens": trial.judge_tokens,
                "reason": trial.reason,
                "chosen": method.chosen == number,
            }
            for method in record.methods
            for number, trial in enumerate(method.trials)
        ],
        "remarks": list(table.remarks()),
    }


def _method_row(table: EqualTable, outcome: MethodOutcome) -> dict[str, Json]:
    row: dict[str, Json] = {
        "method": outcome.method,
        "runs": [course.run for course in outcome.courses],
        "policies": [point.policy.name for point in outcome.points],
    }
    if outcome in table.outcomes:
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
