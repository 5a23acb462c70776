"""Agreement in wins, ties and losses: with people, with a second judge, by task type.

UltraFeedback, Section 4: a judge's verdicts against single people's and their majority's (4.1),
against another judge's (4.2), and each one's win-rate of a model, by task type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...stores.keys import derive_seed
from ..data.files import InputError
from ..lake.statistics.bootstrap import Numbers, Ratio, estimates
from . import judge_statistics as statistics
from .judge_check import JudgeFigure, JudgeMeasure, Settings, by_standard, figure
from .judge_statistics import FIRST, SECOND, TIE, Counts
from .judgments import Judgments, Votes
from .kappas import cohen, fleiss

ALL = "all"
NAMED = 10
"""The most names that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """An annotator's agreement on one task type, or on all; None without data.

    `person` is the agreement with one other person, `majority` with the majority of people (of the
    other people, for a person), `second` with the second judge. `cohen` is a judge's kappa with
    people's majority, `fleiss` people's among each other, `second_cohen` the kappa with the second
    judge. `win`, `tie` and `lose` are shares of the verdicts on a model's outputs, restricted to
    pairs that people judged if there are any.
    """

    task: str
    name: str
    person: JudgeFigure | None = None
    majority: JudgeFigure | None = None
    cohen: JudgeFigure | None = None
    fleiss: JudgeFigure | None = None
    second: JudgeFigure | None = None
    second_cohen: JudgeFigure | None = None
    win: JudgeFigure | None = None
    tie: JudgeFigure | None = None
    lose: JudgeFigure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementQuestion:
    """A second judge to compare with, and a model whose wins are counted."""

    second: str | None = None
    model: str | None = None


def agreements(
    judgments: Judgments, question: AgreementQuestion, settings: Settings
) -> list[Agreement]:
    """Return people's and each judge's agreement on all pairs, and on the pairs of each task type.

    Raises:
        InputError: if the judge or the model is unknown.
    """
    second = _second(judgments, question.second)
    sign = _sign(judgments, question.model)
    annotators = [*([judgments.people] if judgments.people.number else []), *judgments.judges]
    measures = [
        (votes, _measures(votes, judgments, second, sign, settings)) for votes in annotators
    ]
    rows = [
        (task, votes, _within(measured, members))
        for task, members in _tasks(judgments).items()
        for votes, measured in measures
    ]
    found = iter(
        estimates(
            [each.ratio for _, _, measured in rows for each in measured.values()],
            judgments.instructions,
            draws=settings.draws,
            seed=derive_seed(settings.seed, "judge-check"),
        )
    )
    return [
        Agreement(
            task=task,
            name=votes.name,
            **{name: figure(next(found), votes, each) for name, each in measured.items()},
        )
        for task, votes, measured in rows
    ]


def _tasks(judgments: Judgments) -> Mapping[str, NDArray[np.bool_]]:
    """Return a mask of the pairs of each task type, after one of all pairs."""
    names = sorted({task for task in judgments.tasks if task is not None})
    every = {ALL: np.ones(len(judgments.tasks), dtype=np.bool_)}
    return every | {
        name: np.array([task == name for task in judgments.tasks], dtype=np.bool_) for name in names
    }


def _measures(
    votes: Votes,
    judgments: Judgments,
    second: Votes | None,
    sign: Numbers | None,
    settings: Settings,
) -> dict[str, JudgeMeasure]:
    """Return an annotator's measures, by field of `Agreement`."""
    labels, people = votes.labels, judgments.people.labels
    panel = settings.panel
    if votes is judgments.people:
        several = labels.sum(axis=1) > 1
        measured = {
            "person": JudgeMeasure(ratio=statistics.held_out_agreement(labels, 2), about=several),
            "majority": JudgeMeasure(
                ratio=statistics.held_out_agreement(labels, panel), about=several
            ),
            "fleiss": JudgeMeasure(ratio=fleiss(labels), about=several),
        }
    else:
        standard = statistics.majority_standard(people, panel)
        measured = {
            "person": by_standard(votes, statistics.single_standard(people)),
            "majority": by_standard(votes, standard),
            "cohen": JudgeMeasure(ratio=cohen(labels, standard.shares), about=standard.asked),
        }
    if second is not None and votes is not second:
        other = statistics.single_standard(second.labels)
        measured["second"] = by_standard(votes, other)
        measured["second_cohen"] = JudgeMeasure(
            ratio=cohen(labels, other.shares), about=other.asked
        )
    return measured if sign is None else measured | _wins(labels, people, sign)


def _wins(labels: Counts, people: Counts, sign: Numbers) -> dict[str, JudgeMeasure]:
    """Return how often the model's output wins, ties or loses."""
    counted = sign != 0
    if people.any():
        counted &= people.sum(axis=1) > 0
    mine = np.where(sign > 0, labels[:, SECOND], labels[:, FIRST])
    other = np.where(sign > 0, labels[:, FIRST], labels[:, SECOND])
    given = np.where(counted, labels.sum(axis=1), 0).astype(float)
    return {
        name: JudgeMeasure(
            ratio=Ratio(numerator=np.where(counted, told, 0).astype(float), denominator=given),
            about=counted,
        )
        for name, told in (("win", mine), ("tie", labels[:, TIE]), ("lose", other))
    }


def _within(
    measured: Mapping[str, JudgeMeasure], members: NDArray[np.bool_]
) -> dict[str, JudgeMeasure]:
    """Return the same measures of some pairs alone."""
    return {name: each.within(members) for name, each in measured.items()}


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
