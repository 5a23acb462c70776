"""The check of judges: every measure of every annotator, from the same resamples."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...stores.keys import derive_seed
from ..lake.statistics.bootstrap import Estimate, Ratio, estimates
from . import judge_statistics as statistics
from .judge_statistics import Counts
from .judgments import ORDERS, Judgments, Votes, together

PEOPLE, JUDGE, POOL = "people", "judge", "pool"
AS_GIVEN, SWAPPED = ORDERS["as_given"], ORDERS["swapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much is resampled."""

    panel: int = 4
    """The most verdicts of a majority; one less if a verdict is held out."""
    draws: int = 2000
    """Bootstrap resamples."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An annotator's measures, as shares from 0 to 1; None without data."""

    name: str
    kind: str
    verdicts: int
    unread: int
    agreement: Estimate | None = None
    """With the majority of people."""
    decided: Estimate | None = None
    """The same, ties left out on both sides."""
    held_out: Estimate | None = None
    """With the majority of the other people, replacing each person in turn."""
    bias: Estimate | None = None
    """Error between the majorities of its verdicts and of people's; people have none."""
    variance: Estimate | None = None
    """Error of a held-out verdict against the majority of its others on the same pair."""
    longer: Estimate | None = None
    """Preference for the longer output."""
    lists: Estimate | None = None
    """Preference for the output with a list, if the other has none."""
    first_shown: Estimate | None = None
    """Preference for the output that was shown first."""
    both_orders: Estimate | None = None
    """How often the verdicts in the two orders are the same."""
    repeats: Estimate | None = None
    """How often two verdicts on the same question are the same."""


def check(judgments: Judgments, settings: Settings) -> list[Checked]:
    """Measure people, each judge, and, of several judges, their pool."""
    rows = list(_annotators(judgments))
    measures = [_measures(votes, kind, judgments, settings.panel) for votes, kind in rows]
    found = iter(
        estimates(
            [ratio for named in measures for ratio in named.values()],
            judgments.instructions,
            draws=settings.draws,
            seed=derive_seed(settings.seed, "judge-check"),
        )
    )
    return [
        Checked(
            name=votes.name,
            kind=kind,
            verdicts=votes.number,
            unread=votes.unread,
            **{name: next(found) for name in named},
        )
        for (votes, kind), named in zip(rows, measures, strict=True)
    ]


def _annotators(judgments: Judgments) -> Iterator[tuple[Votes, str]]:
    if judgments.people.number:
        yield judgments.people, PEOPLE
    for votes in judgments.judges:
        yield votes, JUDGE
    if len(judgments.judges) > 1:
        yield together("all judges", judgments.judges), POOL


def _measures(votes: Votes, kind: str, judgments: Judgments, panel: int) -> dict[str, Ratio]:
    """Return an annotator's measures, by field of `Checked`."""
    labels = votes.labels
    own = statistics.held_out_agreement(labels, panel)
    return {
        **(
            {"held_out": own}
            if kind == PEOPLE
            else _beside_people(labels, judgments.people.labels, panel)
        ),
        "variance": statistics.error(own),
        "longer": statistics.preference_for(judgments.longer, labels),
        "lists": statistics.preference_for(judgments.lists, labels),
        **(_consistency(votes) if kind == JUDGE else {}),
    }


def _beside_people(labels: Counts, people: Counts, panel: int) -> dict[str, Ratio]:
    majorities = statistics.majorities_agreement(labels, people, panel)
    return {
        "agreement": statistics.agreement(labels, people, panel),
        "decided": statistics.decided_agreement(labels, people, panel),
        "held_out": statistics.agreement_in_place(people, labels, panel),
        "bias": statistics.error(majorities),
    }


def _consistency(votes: Votes) -> dict[str, Ratio]:
    """Return a judge's bias by order, and its consistency.

    If outputs were shown in one order only, bias for the place cannot be separated from preference
    for the output. Verdicts that a source made from two record whether both orders agreed.
    """
    as_given, swapped = votes.counts[:, AS_GIVEN], votes.counts[:, SWAPPED]
    same = statistics.order_agreement(as_given, swapped)
    found = {
        "both_orders": Ratio(
            numerator=same.numerator + votes.reconciled[:, 1],
            denominator=same.denominator + votes.reconciled.sum(axis=1),
        ),
        "repeats": statistics.repeat_agreement([votes.counts[:, n] for n in ORDERS.values()]),
    }
    if as_given.any() and swapped.any():
        found["first_shown"] = statistics.first_shown(as_given, swapped)
    return found
