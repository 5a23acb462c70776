# pyright: basic
"""The agreement of people who judged the same answers and pairs.

If a person judged the same answer or pair several times, the last judgement counts. A label is a
rating of an aspect, or the choice of the better of two answers: three classes either way, as kappas
need.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ...stores.frames import frame_rows
from ...stores.lake import RunReader
from ...stores.records import Critique, Preference
from ..data.judged_candidates import HUMAN
from ..lake.annotations.bring_in import judgment_rows, waiting
from .judge_statistics import cohen, fleiss

CLASSES = 3
Said = Critique | Preference
Labels = Mapping[tuple[str, ...], Mapping[str, int]]
"""The labels of a unit, an aspect of an answer or a pair, by person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleAgreement:
    """The agreement of people on units that several judged.

    `kappa` is Cohen's of two people, else Fleiss'. It is None if all labels are the same, or no
    unit is shared.
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
    value = float(kappa.value(kappa.columns.sum(axis=0).astype(float)))
    return PeopleAgreement(
        people=people,
        units=len(shared),
        agreement=float(same.mean()),
        kappa=None if np.isnan(value) else value,
    )


def agreement_lines(run: RunReader) -> Iterator[str]:
    """Yield how far people agree on a run's answers and pairs; the waiting judgements count."""
    by_people = pl.col("critic").str.starts_with(HUMAN)
    critiques = run.scan("critiques").filter(by_people).collect()
    voted = pl.col("annotator").str.starts_with(HUMAN) & ~pl.col("flipped")
    votes = run.scan("preferences").filter(voted).collect()
    stored = [*frame_rows(Critique, critiques), *frame_rows(Preference, votes)]
    judgments = [*stored, *judgment_rows(waiting(run.folder))]
    for kind, row_type in (("ratings", Critique), ("pairs", Preference)):
        own = [row for row in judgments if isinstance(row, row_type)]
        if own:
            yield f"{kind}: {people_agreement(own).sentence}"


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
