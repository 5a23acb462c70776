"""A comparison at equal tokens as texts and as data: methods, verdicts, trials, remarks."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...stores.keys import Json
from ...stores.lake import RunReader
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
)
from ..evaluation.pairwise_verdicts import PairwiseVerdict
from ..evaluation.token_course import DRIFT, TokenCourse, token_course
from ..lake.query.figures import SHARES
from ..lake.query.told_figures import figure_label, figure_name, told_bounds, told_difference
from ..run.outcomes import NothingToTrainOn
from .equal_record import EqualRecord, opened_run

HEADINGS = {
    DRIFT: "style drift",
    "policy_tokens": "policy tokens",
    "judge_tokens": "judge tokens",
    "judge_calls": "judge calls",
}
"""Headings of columns that hold no figure of a policy."""
DECIMALS = {DRIFT: 2, "kl": 2, "reward": 2, "hours": 2, **dict.fromkeys(COSTS[:3], 0)}
SHORT = "†"
"""Marks a method that used too little of the budget."""
VERDICT_HEAD = ("Method", "against", "answer", "by", "difference, points", "prompts")
TRIAL_HEAD = ("Method", "trial", "size", "dev score", "policy tokens", "judge tokens", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTable:
    """The table of a comparison: its record, and each method's outcome."""

    record: EqualRecord
    outcomes: Sequence[MethodOutcome]

    @property
    def shown(self) -> list[MethodOutcome]:
        """The outcomes with M_0 before them."""
        first = initial_outcome(self.outcomes)
        return [*([] if first is None else [first]), *self.outcomes]

    @property
    def names(self) -> list[str]:
        """The names of the table's rows."""
        return [self._marked(outcome.method) for outcome in self.shown]

    @property
    def title(self) -> str:
        """The title of the table, with the meaning of its intervals."""
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
        for name in (*FIGURES, *COSTS):
            values = [outcome.figure(name) for outcome in self.shown]
            if all(value is None for value in values):
                continue
            mark = MARK if name in FIGURES and self._incomparable(name) else ""
            costs = [name in COSTS and o not in self.outcomes for o in self.shown]
            cells = ["" if free else _told(name, v) for free, v in zip(costs, values, strict=True)]
            found.append((f"{_heading(name)}{mark}", cells))
        used = [_told("used", o.used) if o in self.outcomes else "" for o in self.shown]
        return [*found, ("used %", used)]

    @property
    def verdict_rows(self) -> list[tuple[str, ...]]:
        """Each method against each before it, as texts."""
        return [self._verdict_row(each) for each in method_verdicts(self.outcomes)]

    @property
    def trial_rows(self) -> list[tuple[str, ...]]:
        """Each trial as texts."""
        return [
            (
                method.name,
                str(trial),
                str(method.trial_size),
                f"{trial.figure} {trial.score:.3f} on {trial.prompts:,}"
                if trial.score is not None
                else one_line(trial.reason, limit=60) or "-",
                f"{trial.policy_tokens:,}",
                f"{trial.judge_tokens:,}",
                "chosen" if method.chosen == number else "",
            )
            for method in self.record.methods
            for number, trial in enumerate(method.trials)
        ]

    def remarks(self) -> Iterator[str]:
        """Yield the remarks that a reader of the tables needs."""
        reasons: dict[str, list[str]] = {}
        for name in FIGURES:
            reason = self._incomparable(name)
            if reason is not None:
                reasons.setdefault(reason, []).append(_heading(name))
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
            if len(method.trials) < self.record.trials:
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

    def _incomparable(self, name: str) -> str | None:
        return incomparable([outcome.together for outcome in self.shown], name)

    def _marked(self, method: str) -> str:
        short = any(o.method == method and o.is_short for o in self.outcomes)
        return f"{method}{SHORT}" if short else method

    def _verdict_row(self, each: PairwiseVerdict) -> tuple[str, ...]:
        decision = each.decision
        answer = "worse" if decision.high is not None and decision.high < 0 else decision.answer
        difference = told_difference(each.metric, decision.difference)
        bounds = told_bounds(each.metric, decision.low, decision.high)
        return (
            self._marked(each.after.method),
            self._marked(each.before.method),
            answer,
            figure_name(each.metric),
            f"{difference} {bounds}".rstrip(),
            f"{decision.n:,}",
        )

    def as_document(self) -> dict[str, Json]:
        """Return the comparison as one JSON document."""
        record = self.record
        return {
            "name": record.name,
            "policy_tokens": record.budget.policy_tokens,
            "judge_tokens": record.budget.judge_tokens,
            "seeds": list[Json](self.seeds),
            "trial_seed": record.trial_seed,
            "methods": [self._method(outcome) for outcome in self.shown],
            "verdicts": [_verdict(each) for each in method_verdicts(self.outcomes)],
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
            "remarks": list(self.remarks()),
        }

    def _method(self, outcome: MethodOutcome) -> dict[str, Json]:
        row: dict[str, Json] = {
            "method": outcome.method,
            "runs": [course.run for course in outcome.courses],
            "policies": [point.policy.name for point in outcome.points],
        }
        if outcome in self.outcomes:
            row |= {"used": outcome.used.value, "short": outcome.is_short}
        for name in (*FIGURES, *COSTS):
            value = outcome.figure(name)
            if value is not None:
                row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        return row


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


def _told(name: str, value: FigureInterval | None) -> str:
    if value is None:
        return "-"
    factor = 100 if name in SHARES or name == "used" else 1
    low, high = (None if end is None else factor * end for end in (value.low, value.high))
    return _with_bounds(factor * value.value, low, high, DECIMALS.get(name, 1))


def _with_bounds(mean: float, low: float | None, high: float | None, decimals: int) -> str:
    told = f"{mean:,.{decimals}f}"
    if low is None or high is None:
        return told
    return f"{told} [{low:,.{decimals}f}, {high:,.{decimals}f}]"


def _heading(name: str) -> str:
    return HEADINGS.get(name) or figure_label(name)


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
