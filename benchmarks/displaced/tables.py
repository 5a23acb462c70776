"""The tables of the study: Eq. 3's trainings, correlates of a fall, the remedies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from statistics import correlation, fmean, stdev
from typing import Any

from .arms import AS_IT_WAS

Result = Mapping[str, Any]
CHOSEN, REJECTED = 0, 1
WHOLE, PREFIX, SHARED, OTHER = 0, 2, 3, 4
"""Places in `measured.summary`."""


def print_tables(results: Sequence[Result]) -> None:
    """Print all tables as Markdown."""
    held_out = results[0]["held_out"].values() if results else ()
    for task in dict.fromkeys(family["task"] for family in held_out):
        print(f"\n## {task}")
        print_trainings([r for r in results if r["arm"] == AS_IT_WAS], task)
        print_stories([r for r in results if r["arm"] == AS_IT_WAS], task)
        print_arms(results, task)
        print_steps(results, task)


def share(result: Result, task: str, when: str) -> float:
    """Return the percentage of the task's held-out prompts with right answers."""
    return weighted(result["held_out"], task, lambda f: 100 * f[when])


def nats(result: Result, task: str, side: int, part: int, when: str) -> float:
    """Return the mean log-probability of a part of the pairs' answers."""
    return weighted(result["pairs"], task, lambda f: f[when][side][part])


def weighted(
    families: Mapping[str, Any], task: str, value: Callable[[Mapping[str, Any]], float]
) -> float:
    """Return the mean of a family's value over the task's pairs, or prompts."""
    own = [f for f in families.values() if f["task"] == task]
    return sum(f["n"] * value(f) for f in own) / sum(f["n"] for f in own)


def row(cells: Iterable[object]) -> None:
    """Print a row of a Markdown table."""
    print("|", " | ".join(map(str, cells)), "|")


def head(*names: str) -> None:
    """Print a table's head."""
    print()
    row(names)
    row(["---"] * len(names))


def print_trainings(results: Sequence[Result], task: str) -> None:
    """Print each of the run's trainings by Eq. 3."""
    head("run", "training", "held out", "chosen", "shared", "other", "rejected", "chosen that fell")
    for r in sorted(results, key=lambda r: (r["run"], r["iteration"])):
        parts = ((CHOSEN, WHOLE), (CHOSEN, SHARED), (CHOSEN, OTHER), (REJECTED, WHOLE))
        moved = [
            " → ".join(f"{nats(r, task, side, part, w):.2f}" for w in ("before", "after"))
            for side, part in parts
        ]
        right = " → ".join(f"{share(r, task, when):.1f}" for when in ("before", "after"))
        fell = f"{weighted(r['pairs'], task, lambda f: 100 * f['fell']):.0f} %"
        row([r["run"], f"M_{r['iteration']}", right, *moved, fell])


def print_stories(results: Sequence[Result], task: str) -> None:
    """Print correlates of the change of held-out accuracy, by family and training."""
    pairs = [
        (h, p)
        for r in results
        for name, h in r["held_out"].items()
        if h["task"] == task and (p := r["pairs"].get(name)) is not None
    ]
    change = [h["after"] - h["before"] for h, _ in pairs]
    told: Mapping[str, Callable[[Any, Any], float]] = {
        "held-out accuracy before": lambda h, _: h["before"],
        "share of chosen that fell": lambda _, p: p["fell"],
        "log-probability of chosen": lambda _, p: p["after"][0][0] - p["before"][0][0],
        "of its shared tokens": lambda _, p: p["after"][0][SHARED] - p["before"][0][SHARED],
        "of rejected": lambda _, p: p["after"][1][0] - p["before"][1][0],
        "share of chosen that is right": lambda _, p: p["chosen_right"],
        "pairs": lambda _, p: p["n"],
    }
    if len(pairs) < 3:
        return
    head(f"of {len(pairs)} families of trainings", "correlation", "that lose 10", "that gain 10")
    for name, of in told.items():
        values = [of(h, p) for h, p in pairs]
        groups = (
            [v for v, c in zip(values, change, strict=True) if c < -0.1],
            [v for v, c in zip(values, change, strict=True) if c > 0.1],
        )
        means = [f"{fmean(g):.2f}" if g else "" for g in groups]
        row([name, f"{correlation(values, change):+.2f}", *means])


def print_arms(results: Sequence[Result], task: str) -> None:
    """Print each arm next to Eq. 3 from the same starts and pairs."""
    base = {(r["run"], r["iteration"]): r for r in results if r["arm"] == AS_IT_WAS}
    head(
        "arm", "trainings", "change", "that fall", "worst", "against Eq. 3", "chosen, nats", "fell"
    )
    for arm in dict.fromkeys(r["arm"] for r in results):
        own = [r for r in results if r["arm"] == arm]
        changes = [share(r, task, "after") - share(r, task, "before") for r in own]
        apart = [
            share(r, task, "after") - share(base[place], task, "after")
            for r in own
            if (place := (r["run"], r["iteration"])) in base
        ]
        moved = [
            nats(r, task, CHOSEN, WHOLE, "after") - nats(r, task, CHOSEN, WHOLE, "before")
            for r in own
        ]
        fell = fmean(weighted(r["pairs"], task, lambda f: 100 * f["fell"]) for r in own)
        row(
            [
                arm,
                len(own),
                f"{fmean(changes):+.1f}",
                sum(c < 0 for c in changes),
                f"{min(changes):+.1f}",
                "" if arm == AS_IT_WAS else with_error(apart),
                f"{fmean(moved):+.2f}",
                f"{fell:.0f} %",
            ]
        )


def with_error(values: Sequence[float]) -> str:
    """Return the mean with its standard error, if the values suffice."""
    if len(values) < 2:
        return f"{values[0]:+.1f}" if values else ""
    return f"{fmean(values):+.1f} ± {stdev(values) / sqrt(len(values)):.1f}"


def print_steps(results: Sequence[Result], task: str) -> None:
    """Print the watched pairs' numbers step by step, for each watched training."""
    watched = [r for r in results if r.get("steps")]
    if not watched:
        return
    head("arm", "run", "training", "step: chosen (its shared tokens), rejected, in nats")
    for r in watched:
        looks = [
            f"{step}: {sides[0][WHOLE]:.2f} ({sides[0][SHARED]:.2f}), {sides[1][WHOLE]:.2f}"
            for step, told in r["steps"]
            if (sides := told.get(task))
        ]
        row([r["arm"], r["run"], f"M_{r['iteration']}", "; ".join(looks)])
