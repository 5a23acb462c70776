# pyright: basic
"""The quality of people's judgements: pace, and agreement with others and the verifier.

If a person judged the same answer or pair several times, the last judgement counts. A label is a
rating of an aspect, or the choice of the better of two answers: three classes either way, as kappas
need.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from ...stores.keys import Json
from ...stores.records import Critique, Preference
from ..lake.statistics.clustered_estimates import OfSums
from .kappas import cohen, fleiss

CLASSES = 3
Said = Critique | Preference
Labels = Mapping[tuple[str, ...], Mapping[str, int]]
"""The labels of a unit, an aspect of an answer or a pair, by person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleAgreement:
    """How far people agree on units that several judged; `kappa` is Cohen's of two, else Fleiss'.

    It is None if all labels are the same, or no unit is shared.
    """

    people: tuple[str, ...]
    units: int
    agreement: float | None
    kappa: float | None

    @property
    def sentence(self) -> str:
        """It in words, for a footer."""
        if not self.units:
            return "nothing judged by several people yet"
        kappa = "-" if self.kappa is None else f"{self.kappa:.2f}"
        measure = "Cohen" if len(self.people) == 2 else "Fleiss"  # noqa: PLR2004 -- two people
        return (
            f"{len(self.people)} people, {self.units} shared labels: agree "
            f"{self.agreement:.0%}, {measure}'s kappa {kappa}"
        )


def people_agreement(rows: Iterable[Said]) -> PeopleAgreement:
    """Return how far people agree, on all units that several judged."""
    shared = [given for given in _labels(_latest(rows)).values() if len(given) > 1]
    people = tuple(sorted({name for given in shared for name in given}))
    if not shared:
        return PeopleAgreement(people=people, units=0, agreement=None, kappa=None)
    counts = np.array([_count_labels(given.values()) for given in shared])
    total = counts.sum(axis=1)
    same = (counts * (counts - 1)).sum(axis=1) / (total * (total - 1))
    if len(people) > 2:  # noqa: PLR2004 -- two people
        kappa = fleiss(counts)
    else:
        one, two = (np.array([_count_labels([given[name]]) for given in shared]) for name in people)
        kappa = cohen(one, two.astype(float))
    return PeopleAgreement(
        people=people, units=len(shared), agreement=float(same.mean()), kappa=_point(kappa)
    )


def annotator_quality(rows: Iterable[Said], right: Mapping[str, bool]) -> list[dict[str, Json]]:
    """Return a row for each person: how much, how fast, and how far others agree.

    `others` is the share of other people's labels on the same units that are the same, `kappa`
    Cohen's with them; `verifier` the share of the person's passes and fails that agree with it;
    `right` is its verdict by candidate.
    """
    last = _latest(rows)
    by_unit = _labels(last)
    return [
        _of_person(name, [row for row in last if _who(row) == name], by_unit, right)
        for name in sorted({_who(row) for row in last})
    ]


def _of_person(
    name: str, rows: Sequence[Said], by_unit: Labels, right: Mapping[str, bool]
) -> dict[str, Json]:
    took = [row.judged_seconds for row in rows if row.judged_seconds is not None]
    both = [
        (given[name], [label for who, label in given.items() if who != name])
        for given in by_unit.values()
        if name in given and len(given) > 1
    ]
    checked = [
        all(a.rating in (None, 1) for a in row.aspects) == right[row.candidate_id]
        for row in rows
        if isinstance(row, Critique) and row.candidate_id in right
    ]
    own = np.array([_count_labels([label]) for label, _ in both])
    others = np.array([_count_labels(labels) / len(labels) for _, labels in both])
    return {
        "annotator": name,
        "judged": len(rows),
        "seconds": median(took) if took else None,
        "shared": len(both),
        "others": float((own * others).sum(axis=1).mean()) if both else None,
        "kappa": _point(cohen(own, others)) if both else None,
        "verified": len(checked),
        "verifier": fmean(checked) if checked else None,
    }


def _latest(rows: Iterable[Said]) -> list[Said]:
    """Return each person's last judgement of each answer, and of each pair."""
    kept = dict[tuple[object, ...], Said]()
    for row in rows:
        if isinstance(row, Critique):
            # Somebody may rate one aspect now and another later.
            key = row.critic, row.candidate_id, *sorted(a.name for a in row.aspects)
        else:
            key = row.annotator, *sorted((row.first_id, row.second_id))
        kept.pop(key, None)
        kept[key] = row
    return list(kept.values())


def _who(row: Said) -> str:
    return row.critic if isinstance(row, Critique) else row.annotator


def _labels(rows: Iterable[Said]) -> Labels:
    found = dict[tuple[str, ...], dict[str, int]]()
    for row in rows:
        for unit, label in _labels_of(row):
            found.setdefault(unit, {})[_who(row)] = label
    return found


def _labels_of(row: Said) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(row, Critique):
        for aspect in row.aspects:
            if aspect.rating is not None:
                yield (row.candidate_id, aspect.name), aspect.rating + 1
    elif row.preferred is not None:
        pair = sorted((row.first_id, row.second_id))
        first = row.first_id if row.preferred == "first" else row.second_id
        yield tuple(pair), CLASSES - 1 if row.preferred == "tie" else pair.index(first)


def _count_labels(labels: Iterable[int]) -> np.ndarray:
    return np.bincount(list(labels), minlength=CLASSES)


def _point(measure: OfSums) -> float | None:
    value = float(measure.value(measure.columns.sum(axis=0).astype(float)))
    return None if np.isnan(value) else value
