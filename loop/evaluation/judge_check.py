"""The check of judges: every measure of every annotator, on all pairs and by task type.

AlpacaFarm, Section 4.3, and UltraFeedback, Section 4: agreement with people's majority, with single
people and with a second judge, bias and variance, preferences, consistency, and a model's wins. All
intervals are over instructions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..data.files import InputError
from ..lake.statistics.clustered_estimates import (
    Estimate,
    Indices,
    Numbers,
    OfSums,
    estimate,
    ratio,
)
from . import judge_statistics as statistics
from .judge_statistics import FIRST, SECOND, TIE, AgreementStandard, Counts
from .judgments import ORDERS, Judgments, Votes, together
from .kappas import cohen, fleiss

PEOPLE, JUDGE, POOL = "people", "judge", "pool"
ALL = "all"
AS_GIVEN, SWAPPED = ORDERS["as_given"], ORDERS["swapped"]
NAMED = 10
"""The most names that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is compared."""

    panel: int = 4
    """The most verdicts of a majority; one less if a verdict is held out."""
    second: str | None = None
    """A second judge to compare with."""
    model: str | None = None
    """A model whose wins are counted."""


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
    """An annotator's measures on one task type, or on all pairs; None without data.

    Measures are shares from 0 to 1, or kappas.
    """

    task: str
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
    person: JudgeFigure | None = None
    """With one other person."""
    cohen: JudgeFigure | None = None
    """Cohen's kappa with the majority of people."""
    fleiss: JudgeFigure | None = None
    """Fleiss' kappa among its own verdicts on the same pair."""
    second: JudgeFigure | None = None
    """With the second judge."""
    second_cohen: JudgeFigure | None = None
    """Cohen's kappa with the second judge."""
    win: JudgeFigure | None = None
    """How often a model's output wins, on pairs that people judged if there are any."""
    tie: JudgeFigure | None = None
    lose: JudgeFigure | None = None
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

    ratio: OfSums
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
    """Measure people, each judge, and, of several judges, their pool; on all pairs, then by task.

    Raises:
        InputError: if the second judge or the model is unknown.
    """
    second = _second(judgments, settings.second)
    sign = _sign(judgments, settings.model)
    measured = [
        (votes, kind, _measures(votes, kind, judgments, settings.panel, second, sign))
        for votes, kind in _annotators(judgments)
    ]
    checked = list[Checked]()
    for (task, members), (votes, kind, measures) in product(_tasks(judgments).items(), measured):
        read, unread = int(votes.counts[members].sum()), int(votes.missing[members].sum())
        checked.append(
            Checked(
                task=task,
                name=votes.name,
                kind=kind,
                verdicts=read,
                unread=unread,
                unread_share=_share(unread, read),
                price=votes.price,
                **{
                    name: _figure(each.within(members), votes, judgments.instructions)
                    for name, each in measures.items()
                },
            )
        )
    return checked


def _tasks(judgments: Judgments) -> Mapping[str, NDArray[np.bool_]]:
    """Return a mask of the pairs of each task type, after one of all pairs."""
    names = sorted({task for task in judgments.tasks if task is not None})
    every = {ALL: np.ones(len(judgments.tasks), dtype=np.bool_)}
    return every | {
        name: np.array([task == name for task in judgments.tasks], dtype=np.bool_) for name in names
    }


def _share(unread: int, read: int) -> float:
    """Return the share of the replies that could not be read."""
    return unread / (unread + read) if unread + read else 0.0


def _figure(measure: JudgeMeasure, votes: Votes, instructions: Indices) -> JudgeFigure | None:
    """Return the estimate of a measure with the number of unread replies on its pairs."""
    found = estimate(measure.ratio, instructions)
    if found is None:
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
        **{name.name: getattr(found, name.name) for name in fields(Estimate)},
        unread=unread,
        unread_share=_share(unread, read),
        worst=worst,
        best=best,
    )


def _annotators(judgments: Judgments) -> Iterator[tuple[Votes, str]]:
    if judgments.people.counts.any():
        yield judgments.people, PEOPLE
    for votes in judgments.judges:
        yield votes, JUDGE
    if len(judgments.judges) > 1:
        yield together("all judges", judgments.judges), POOL


def _measures(
    votes: Votes,
    kind: str,
    judgments: Judgments,
    panel: int,
    second: Votes | None,
    sign: Numbers | None,
) -> dict[str, JudgeMeasure]:
    """Return an annotator's measures, by field of `Checked`."""
    labels, people = votes.labels, judgments.people.labels
    every = np.ones(len(labels), dtype=np.bool_)
    own = statistics.held_out_agreement(labels, panel)
    alone = {"fleiss": fleiss(labels), "variance": statistics.error(own)}
    if kind == PEOPLE:
        alone |= {"held_out": own, "person": statistics.held_out_agreement(labels, 2)}
        found = dict[str, JudgeMeasure]()
    else:
        found = _against_people(votes, people, panel)
    if kind == JUDGE:
        alone |= _consistency(votes)
    found |= {name: JudgeMeasure(ratio=own, about=every) for name, own in alone.items()}
    for name, lead in (("longer", judgments.longer), ("lists", judgments.lists)):
        taste = statistics.preference_for(lead, labels)
        found[name] = JudgeMeasure(ratio=taste, about=lead != 0)
    if second is not None and votes is not second:
        found |= _against(votes, statistics.single_standard(second.labels), "second")
    return found if sign is None else found | _wins(labels, people, sign)


def _against_people(votes: Votes, people: Counts, panel: int) -> dict[str, JudgeMeasure]:
    majority = statistics.majority_standard(people, panel)
    same = statistics.majorities_agreement(votes.labels, people, panel)
    agreement = _against(votes, majority, "agreement")
    return {
        "agreement": agreement["agreement"],
        "cohen": agreement["agreement_cohen"],
        "decided": _by(votes, statistics.majority_standard(people[:, :TIE], panel)),
        "held_out": _by(votes, statistics.in_place_standard(people, panel)),
        "person": _by(votes, statistics.single_standard(people)),
        "bias": JudgeMeasure(ratio=statistics.error(same), about=majority.asked),
    }


def _against(votes: Votes, standard: AgreementStandard, name: str) -> dict[str, JudgeMeasure]:
    """Return the agreement with a standard, and its kappa."""
    kappa = cohen(votes.labels, standard.shares)
    return {
        name: _by(votes, standard),
        f"{name}_cohen": JudgeMeasure(ratio=kappa, about=standard.asked),
    }


def _by(votes: Votes, standard: AgreementStandard) -> JudgeMeasure:
    """Return the measure of how often an annotator's verdicts are right by a standard."""
    labels = votes.labels[:, : standard.shares.shape[1]]
    return JudgeMeasure(
        ratio=statistics.matched(labels, standard), about=standard.asked, standard=standard
    )


def _consistency(votes: Votes) -> dict[str, OfSums]:
    """Return a judge's bias by order, and its consistency.

    If outputs were shown in one order only, bias for the place cannot be separated from preference
    for the output.
    """
    as_given, swapped = votes.counts[:, AS_GIVEN], votes.counts[:, SWAPPED]
    found = {
        "both_orders": statistics.order_agreement(as_given, swapped),
        "repeats": statistics.repeat_agreement([votes.counts[:, n] for n in ORDERS.values()]),
    }
    if as_given.any() and swapped.any():
        found["first_shown"] = statistics.first_shown(as_given, swapped)
    return found


def _wins(labels: Counts, people: Counts, sign: Numbers) -> dict[str, JudgeMeasure]:
    """Return how often the model's output wins, ties or loses."""
    counted = sign != 0
    if people.any():
        counted &= people.sum(axis=1) > 0
    mine = np.where(sign > 0, labels[:, SECOND], labels[:, FIRST])
    other = np.where(sign > 0, labels[:, FIRST], labels[:, SECOND])
    given = np.where(counted, labels.sum(axis=1), 0)
    return {
        name: JudgeMeasure(
            ratio=ratio(np.where(counted, told, 0), given),
            about=counted,
        )
        for name, told in (("win", mine), ("tie", labels[:, TIE]), ("lose", other))
    }


def _second(judgments: Judgments, name: str | None) -> Votes | None:
    """Return the judge of this name, or None."""
    if name is None:
        return None
    for votes in judgments.judges:
        if votes.name == name:
            return votes
    known = [votes.name for votes in judgments.judges]
    raise InputError(f"--second {name}: no such judge; the judges are {_listed(known)}")


def _sign(judgments: Judgments, model: str | None) -> Numbers | None:
    """Return 1 if the second output is the model's, -1 if the first is, 0 otherwise."""
    if model is None:
        return None
    sides = np.array([[name == model for name in pair] for pair in judgments.models], dtype=float)
    if not sides.any():
        known = sorted({name for pair in judgments.models for name in pair if name is not None})
        raise InputError(
            f"--model {model}: no output is of this model; the models are {_listed(known)}"
        )
    return sides[:, 1] - sides[:, 0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (", ".join(names[:NAMED]) or "none") + more
