# pyright: basic
"""The quality of people's judgements: agreement with others and the verifier, and speed, by day.

If a person judged the same answer or pair several times, the last judgement counts. A label is a
rating of an aspect, or the choice of the better of two answers: three classes either way, as kappas
need.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

import numpy as np

from ...stores.keys import Json
from ...stores.records import Critique, Preference
from ..lake.statistics.clustered_estimates import OfSums
from .kappas import cohen, fleiss

CLASSES = 3
EVER = "all"
"""The entry in place of a day in figures over all days."""
Said = Critique | Preference


@dataclass(frozen=True, slots=True, kw_only=True)
class HandLabel:
    """A person's judgement of one unit: an aspect of an answer, or a pair."""

    annotator: str
    unit: tuple[str, ...]
    label: int
    day: str


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
    def measure(self) -> str:
        """The name of the kappa."""
        return "Cohen" if len(self.people) == 2 else "Fleiss"  # noqa: PLR2004 -- two people

    @property
    def sentence(self) -> str:
        """It in words, for a footer."""
        if not self.units:
            return "nothing judged by several people yet"
        kappa = "-" if self.kappa is None else f"{self.kappa:.2f}"
        return (
            f"{len(self.people)} people, {self.units} shared labels: agree "
            f"{self.agreement:.0%}, {self.measure}'s kappa {kappa}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorDay:
    """A person on one day, or over all: how much, how fast, and how far others agree.

    `others` is the share of other people's labels on the same units that are the same, `kappa`
    Cohen's with them; `verifier` the share of the person's passes and fails that agree with it.
    """

    annotator: str
    day: str
    judged: int
    seconds: float | None
    shared: int
    others: float | None
    kappa: float | None
    verified: int
    verifier: float | None

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return asdict(self)


def latest(rows: Iterable[Said]) -> list[Said]:
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


def people_agreement(rows: Iterable[Said]) -> PeopleAgreement:
    """Return how far people agree, on all units that several judged."""
    by_unit = _by_unit(_labels(latest(rows)))
    shared = [given for given in by_unit.values() if len(given) > 1]
    people = tuple(sorted({name for given in shared for name in given}))
    if not shared:
        return PeopleAgreement(people=people, units=0, agreement=None, kappa=None)
    counts = np.array([_counted(given.values()) for given in shared])
    total = counts.sum(axis=1)
    same = (counts * (counts - 1)).sum(axis=1) / (total * (total - 1))
    return PeopleAgreement(
        people=people,
        units=len(shared),
        agreement=float(same.mean()),
        kappa=_kappa_among(people, shared, counts),
    )


def annotator_days(rows: Sequence[Said], right: Mapping[str, bool]) -> list[AnnotatorDay]:
    """Return each person's quality over all days and by day; `right` is the verifier's verdict."""
    last = latest(rows)
    labels = list(_labels(last))
    by_unit = _by_unit(labels)
    found = list[AnnotatorDay]()
    for name in sorted({_who(row) for row in last}):
        mine = [row for row in last if _who(row) == name]
        days = sorted({_day(row) for row in mine})
        for day in (EVER, *days):
            of_day = [row for row in mine if day in (EVER, _day(row))]
            own = [x for x in labels if x.annotator == name and day in (EVER, x.day)]
            found.append(_of_day(name, day, of_day, own, by_unit, right))
    return found


def _of_day(
    name: str,
    day: str,
    rows: Sequence[Said],
    labels: Sequence[HandLabel],
    by_unit: Mapping[tuple[str, ...], Mapping[str, int]],
    right: Mapping[str, bool],
) -> AnnotatorDay:
    took = [row.judged_seconds for row in rows if row.judged_seconds is not None]
    beside = [(x, [v for who, v in by_unit[x.unit].items() if who != name]) for x in labels]
    shared = [(x.label, others) for x, others in beside if others]
    checked = [
        all(a.rating in (None, 1) for a in row.aspects) == right[row.candidate_id]
        for row in rows
        if isinstance(row, Critique) and row.candidate_id in right
    ]
    return AnnotatorDay(
        annotator=name,
        day=day,
        judged=len(rows),
        seconds=median(took) if took else None,
        shared=len(shared),
        others=fmean(fmean(v == own for v in others) for own, others in shared) if shared else None,
        kappa=_kappa_with_others(shared),
        verified=len(checked),
        verifier=fmean(checked) if checked else None,
    )


def _who(row: Said) -> str:
    return row.critic if isinstance(row, Critique) else row.annotator


def _day(row: Said) -> str:
    return row.judged_at[:10] if row.judged_at else "unknown"


def _labels(rows: Iterable[Said]) -> Iterator[HandLabel]:
    for row in rows:
        if isinstance(row, Critique):
            for aspect in row.aspects:
                if aspect.rating is not None:
                    yield HandLabel(
                        annotator=row.critic,
                        unit=(row.candidate_id, aspect.name),
                        label=aspect.rating + 1,
                        day=_day(row),
                    )
        elif row.preferred is not None:
            pair = sorted((row.first_id, row.second_id))
            first = row.first_id if row.preferred == "first" else row.second_id
            label = CLASSES - 1 if row.preferred == "tie" else pair.index(first)
            yield HandLabel(annotator=row.annotator, unit=tuple(pair), label=label, day=_day(row))


def _by_unit(labels: Iterable[HandLabel]) -> dict[tuple[str, ...], dict[str, int]]:
    found = defaultdict[tuple[str, ...], dict[str, int]](dict)
    for label in labels:
        found[label.unit][label.annotator] = label.label
    return found


def _counted(labels: Iterable[int]) -> np.ndarray:
    return np.bincount(list(labels), minlength=CLASSES)


def _kappa_among(
    people: Sequence[str], shared: Sequence[Mapping[str, int]], counts: np.ndarray
) -> float | None:
    if len(people) > 2:  # noqa: PLR2004 -- two people
        return _point(fleiss(counts))
    sides = [np.array([_counted([given[name]]) for given in shared]) for name in people]
    return _point(cohen(sides[0], sides[1].astype(float)))


def _kappa_with_others(shared: Sequence[tuple[int, Sequence[int]]]) -> float | None:
    if not shared:
        return None
    own = np.array([_counted([label]) for label, _ in shared])
    others = np.array([_counted(labels) / len(labels) for _, labels in shared])
    return _point(cohen(own, others))


def _point(measure: OfSums) -> float | None:
    value = float(measure.value(measure.columns.sum(axis=0).astype(float)))
    return None if np.isnan(value) else value
