"""The check of judges: every measure of every annotator, from the same resamples."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ...stores.keys import derive_seed
from ..lake.statistics.bootstrap import Estimate, OfSums, Ratio, estimates
from . import judge_statistics as statistics
from .judge_statistics import TIE, AgreementStandard, Counts
from .judgments import ORDERS, Judgments, Votes, together
from .kappas import cohen, fleiss

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
class JudgeFigure(Estimate):
    """A measure of a judge, and the number of its unread replies on the same pairs.

    `worst` and `best` bound an agreement: its value if all unread replies were wrong, and if all of
    them were right.
    """

    unread: int = 0
    unread_share: float = 0.0
    worst: float | None = None
    best: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An annotator's measures, as shares from 0 to 1, or kappas; None without data."""

    name: str
    kind: str
    verdicts: int
    unread: int
    unread_share: float
    price: float | None = None
    """The mean cost of a verdict, in the currency of its source, if known."""
    agreement: JudgeFigure | None = None
    """With the majority of people."""
    decided: JudgeFigure | None = None
    """The same, ties left out on both sides."""
    held_out: JudgeFigure | None = None
    """With the majority of the other people, replacing each person in turn."""
    cohen: JudgeFigure | None = None
    """Cohen's kappa with the majority of people."""
    fleiss: JudgeFigure | None = None
    """Fleiss' kappa among its own verdicts on the same pair."""
    bias: JudgeFigure | None = None
    """Error between the majorities of its verdicts and of people's; None for people."""
    variance: JudgeFigure | None = None
    """Error of a held-out verdict against the majority of its others on the same pair."""
    longer: JudgeFigure | None = None
    """Preference for the longer output."""
    lists: JudgeFigure | None = None
    """Preference for the output with a list, if the other one lacks it."""
    first_shown: JudgeFigure | None = None
    """Preference for the output that was shown first."""
    both_orders: JudgeFigure | None = None
    """How often the verdicts in the two orders are the same."""
    repeats: JudgeFigure | None = None
    """How often two verdicts on the same question are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeasure:
    """A measure, its pairs, and the standard of right verdicts on them, if any."""

    ratio: Ratio | OfSums
    about: NDArray[np.bool_]
    standard: AgreementStandard | None = None

    def within(self, members: NDArray[np.bool_]) -> "JudgeMeasure":
        """Return the same measure of some pairs alone."""
        standard = self.standard
        return JudgeMeasure(
            ratio=self.ratio.within(members),
            about=self.about & members,
            standard=standard and replace(standard, asked=standard.asked & members),
        )


def check(judgments: Judgments, settings: Settings) -> list[Checked]:
    """Measure people, each judge, and, of several judges, their pool."""
    rows = list(_annotators(judgments))
    measures = [_measures(votes, kind, judgments, settings.panel) for votes, kind in rows]
    found = iter(
        estimates(
            [each.ratio for named in measures for each in named.values()],
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
            unread_share=share(votes.unread, votes.number),
            price=votes.price,
            **{name: figure(next(found), votes, each) for name, each in named.items()},
        )
        for (votes, kind), named in zip(rows, measures, strict=True)
    ]


def share(unread: int, read: int) -> float:
    """Return the share of the replies that could not be read."""
    return unread / (unread + read) if unread + read else 0.0


def figure(estimate: Estimate | None, votes: Votes, measure: JudgeMeasure) -> JudgeFigure | None:
    """Return an estimate with the number of unread replies on its pairs."""
    if estimate is None:
        return None
    missing = votes.missing.sum(axis=1)
    unread = int(missing[measure.about].sum())
    read = int(votes.labels[measure.about].sum())
    bounds = None
    if measure.standard is not None:
        labels = votes.labels[:, : measure.standard.shares.shape[1]]
        bounds = statistics.unread_bounds(labels, missing, measure.standard)
    worst, best = bounds or (None, None)
    return JudgeFigure(
        **{name.name: getattr(estimate, name.name) for name in fields(Estimate)},
        unread=unread,
        unread_share=share(unread, read),
        worst=worst,
        best=best,
    )


def by_standard(votes: Votes, standard: AgreementStandard) -> JudgeMeasure:
    """Return the measure of how often an annotator's verdicts are right by a standard."""
    labels = votes.labels[:, : standard.shares.shape[1]]
    ratio = statistics.matched(labels, standard)
    return JudgeMeasure(ratio=ratio, about=standard.asked, standard=standard)


def _annotators(judgments: Judgments) -> Iterator[tuple[Votes, str]]:
    if judgments.people.number:
        yield judgments.people, PEOPLE
    for votes in judgments.judges:
        yield votes, JUDGE
    if len(judgments.judges) > 1:
        yield together("all judges", judgments.judges), POOL


def _measures(votes: Votes, kind: str, judgments: Judgments, panel: int) -> dict[str, JudgeMeasure]:
    """Return an annotator's measures, by field of `Checked`."""
    labels = votes.labels
    every = np.ones(len(labels), dtype=np.bool_)
    own = statistics.held_out_agreement(labels, panel)
    beside = (
        {"held_out": JudgeMeasure(ratio=own, about=every)}
        if kind == PEOPLE
        else _beside_people(votes, judgments.people.labels, panel)
    )
    tastes = {
        name: JudgeMeasure(ratio=statistics.preference_for(sign, labels), about=sign != 0)
        for name, sign in (("longer", judgments.longer), ("lists", judgments.lists))
    }
    alone = {"fleiss": fleiss(labels), "variance": statistics.error(own)}
    alone |= _consistency(votes) if kind == JUDGE else {}
    return beside | tastes | {n: JudgeMeasure(ratio=r, about=every) for n, r in alone.items()}


def _beside_people(votes: Votes, people: Counts, panel: int) -> dict[str, JudgeMeasure]:
    labels = votes.labels
    majority = statistics.majority_standard(people, panel)
    same = statistics.majorities_agreement(labels, people, panel)
    return {
        "agreement": by_standard(votes, majority),
        "decided": by_standard(votes, statistics.majority_standard(people[:, :TIE], panel)),
        "held_out": by_standard(votes, statistics.in_place_standard(people, panel)),
        "cohen": JudgeMeasure(ratio=cohen(labels, majority.shares), about=majority.asked),
        "bias": JudgeMeasure(ratio=statistics.error(same), about=majority.asked),
    }


def _consistency(votes: Votes) -> dict[str, Ratio | OfSums]:
    """Return a judge's bias by order, and its consistency.

    If outputs were shown in one order only, bias for the place cannot be separated from preference
    for the output. Verdicts that a source made from two record whether both orders agreed.
    """
    as_given, swapped = votes.counts[:, AS_GIVEN], votes.counts[:, SWAPPED]
    same = statistics.order_agreement(as_given, swapped)
    found: dict[str, Ratio | OfSums] = {
        "both_orders": Ratio(
            numerator=same.numerator + votes.reconciled[:, 1],
            denominator=same.denominator + votes.reconciled.sum(axis=1),
        ),
        "repeats": statistics.repeat_agreement([votes.counts[:, n] for n in ORDERS.values()]),
    }
    if as_given.any() and swapped.any():
        found["first_shown"] = statistics.first_shown(as_given, swapped)
    return found
