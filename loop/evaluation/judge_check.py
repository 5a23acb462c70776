"""The check of judges: every measure of every annotator, on all pairs and by task type.

AlpacaFarm, Section 4.3, and UltraFeedback, Section 4: agreement with people's majority, with single
people and with a second judge, bias and variance, preferences, consistency, and a model's wins. All
intervals are over instructions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..data.files import InputError
from ..lake.statistics.clustered_estimates import (
    Estimate,
    Numbers,
    OfSums,
    estimate,
    ratio,
)
from . import judge_statistics as statistics
from .judge_statistics import FIRST, SECOND, TIE, Counts
from .judgments import ORDERS, Judgments, Votes, together
from .kappas import cohen, fleiss

PEOPLE, JUDGE, POOL = "people", "judge", "pool"
ALL = "all"
AS_GIVEN, SWAPPED = ORDERS["as_given"], ORDERS["swapped"]
NAMED = 10
"""The most names that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a comparison of judges."""

    panel: int = 4
    """The most verdicts of a majority; one less if a verdict is held out."""
    second: str | None = None
    """A second judge to compare with."""
    model: str | None = None
    """A model whose wins are counted."""


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
    agreement: Estimate | None = None
    """With the majority of people."""
    worst: float | None = None
    """The same if all unread replies on pairs that people judged were wrong; None without any."""
    best: float | None = None
    """The same if all of them were right."""
    decided: Estimate | None = None
    """The same, ties left out on both sides."""
    held_out: Estimate | None = None
    """With the majority of the other people, replacing each person in turn."""
    person: Estimate | None = None
    """With one other person."""
    cohen: Estimate | None = None
    """Cohen's kappa with the majority of people."""
    fleiss: Estimate | None = None
    """Fleiss' kappa among its own verdicts on the same pair."""
    second: Estimate | None = None
    """With the second judge."""
    second_cohen: Estimate | None = None
    """Cohen's kappa with the second judge."""
    win: Estimate | None = None
    """How often a model's output wins, on pairs that people judged if there are any."""
    tie: Estimate | None = None
    lose: Estimate | None = None
    bias: Estimate | None = None
    """Error between the majorities of its verdicts and of people's; None for people."""
    variance: Estimate | None = None
    """Error of a held-out verdict against the majority of its others on the same pair."""
    longer: Estimate | None = None
    """Preference for the longer output."""
    lists: Estimate | None = None
    """Preference for the output with a list, if the other one lacks it."""
    first_shown: Estimate | None = None
    """Preference for the output that was shown first."""
    both_orders: Estimate | None = None
    """How often the verdicts in the two orders are the same."""
    repeats: Estimate | None = None
    """How often two verdicts on the same question are the same."""


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
        found = {
            name: estimate(each.within(members), judgments.instructions)
            for name, each in measures.items()
        }
        asked = members & judgments.people.counts.any(axis=(1, 2))
        worst, best = _bounds(found.get("agreement"), int(votes.missing[asked].sum()))
        checked.append(
            Checked(
                task=task,
                name=votes.name,
                kind=kind,
                verdicts=read,
                unread=unread,
                unread_share=unread / (unread + read) if unread else 0.0,
                price=votes.price,
                worst=worst,
                best=best,
                **found,
            )
        )
    return checked


def _bounds(agreement: Estimate | None, lost: int) -> tuple[float | None, float | None]:
    """Return an agreement if all lost replies were wrong, and right; None if nothing is lost."""
    if not lost or agreement is None:
        return None, None
    right, whole = agreement.value * agreement.n, agreement.n + lost
    return right / whole, (right + lost) / whole


def _tasks(judgments: Judgments) -> Mapping[str, NDArray[np.bool_]]:
    """Return a mask of the pairs of each task type, after one of all pairs."""
    names = sorted({task for task in judgments.tasks if task is not None})
    every = {ALL: np.ones(len(judgments.tasks), dtype=np.bool_)}
    return every | {
        name: np.array([task == name for task in judgments.tasks], dtype=np.bool_) for name in names
    }


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
) -> dict[str, OfSums]:
    """Return an annotator's measures, by field of `Checked`."""
    labels, people = votes.labels, judgments.people.labels
    own = statistics.held_out_agreement(labels, panel)
    found = {
        "fleiss": fleiss(labels),
        "variance": statistics.error(own),
        "longer": statistics.preference_for(judgments.longer, labels),
        "lists": statistics.preference_for(judgments.lists, labels),
    }
    if kind == PEOPLE:
        found |= {"held_out": own, "person": statistics.held_out_agreement(labels, 2)}
    else:
        found |= _against_people(labels, people, panel)
    if kind == JUDGE:
        found |= _consistency(votes)
    if second is not None and votes is not second:
        other = statistics.shares_of(second.labels)
        found["second"] = statistics.match_rate(labels, other)
        found["second_cohen"] = cohen(labels, other)
    return found if sign is None else found | _wins(labels, people, sign)


def _against_people(labels: Counts, people: Counts, panel: int) -> dict[str, OfSums]:
    majority, decided = (statistics.majority(of, panel) for of in (people, people[:, :TIE]))
    same = statistics.majorities_agreement(labels, people, panel)
    return {
        "agreement": statistics.match_rate(labels, majority),
        "cohen": cohen(labels, majority),
        "decided": statistics.match_rate(labels[:, :TIE], decided),
        "held_out": statistics.match_rate(labels, statistics.in_place_standard(people, panel)),
        "person": statistics.match_rate(labels, statistics.shares_of(people)),
        "bias": statistics.error(same),
    }


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


def _wins(labels: Counts, people: Counts, sign: Numbers) -> dict[str, OfSums]:
    """Return how often the model's output wins, ties or loses."""
    counted = sign != 0
    if people.any():
        counted &= people.sum(axis=1) > 0
    mine = np.where(sign > 0, labels[:, SECOND], labels[:, FIRST])
    other = np.where(sign > 0, labels[:, FIRST], labels[:, SECOND])
    given = np.where(counted, labels.sum(axis=1), 0)
    told = {"win": mine, "tie": labels[:, TIE], "lose": other}
    return {name: ratio(np.where(counted, of, 0), given) for name, of in told.items()}


def _second(judgments: Judgments, name: str | None) -> Votes | None:
    """Return the judge of this name, or None."""
    if name is None:
        return None
    for votes in judgments.judges:
        if votes.name == name:
            return votes
    known = [votes.name for votes in judgments.judges]
    raise InputError(f"--second {name}: no such judge; the judges are {_list_names(known)}")


def _sign(judgments: Judgments, model: str | None) -> Numbers | None:
    """Return 1 if the second output is the model's, -1 if the first is, 0 otherwise."""
    if model is None:
        return None
    sides = np.array([[name == model for name in pair] for pair in judgments.models], dtype=float)
    if not sides.any():
        known = sorted({name for pair in judgments.models for name in pair if name is not None})
        raise InputError(
            f"--model {model}: no output is of this model; the models are {_list_names(known)}"
        )
    return sides[:, 1] - sides[:, 0]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (", ".join(names[:NAMED]) or "none") + more
