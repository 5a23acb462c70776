# pyright: basic
"""The check of a critic: how well its ratings, and the reward, separate right from wrong answers.

One row an answer, with the verdicts of the critic and the reward model, and whether it is right.
The critic passes answers that it rates 1 in all aspects; its score is the mean of its ratings.
Intervals are over prompts, or over clusters if prompts have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ...stores.keys import Json
from ..lake.statistics.clustered_estimates import (
    Estimate,
    Indices,
    Numbers,
    estimate,
    number_clusters,
    ratio,
)
from ..lake.statistics.roc_area import area_estimate

ALL = "all"
VERIFIER, PEOPLE, LABEL = "verifier", "people", "label"
"""The source of labels, right or wrong; a label is the data set's."""
ESTIMATES: Mapping[str, str] = {
    # The shares that the critic passes, and that are right.
    "approval": "passed",
    "right": "right",
    # Of passed answers that are right, of right ones that pass, of wrong ones that do not pass.
    "precision": "precision",
    "recall": "recall",
    "specificity": "specificity",
    "auroc": "AUROC",
    "reward_auroc": "reward AUROC",
}
"""The estimates of a critic, with their headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGroup:
    """The judged answers of one group, with labels of one source, drawn from `there` of them.

    A row has its `cluster`, the mean `rating`, whether it is `passed`, whether the critique is
    `unread`, the `reward`, and whether it is `right`.
    """

    against: str
    names: Mapping[str, Json]
    there: int
    frame: pl.DataFrame

    @property
    def title(self) -> str:
        """The name of the group."""
        return ", ".join(_group_name(name, value) for name, value in self.names.items()) or ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticFigures:
    """The quality of a critic and a reward model on one group.

    `n` answers have a rating and a label. `unscored` labelled answers have a critique that could
    not be read, `unlabelled` ones lack a label. `estimates` are those of `ESTIMATES` that are
    defined.
    """

    against: str
    group: str
    names: Mapping[str, Json]
    there: int
    n: int
    unscored: int
    unlabelled: int
    estimates: Mapping[str, Estimate]
    remark: str


def figures(group: AnswerGroup) -> CriticFigures:
    """Return the figures of a group."""
    labelled = group.frame.filter(pl.col("right").is_not_null())
    rated = labelled.filter(pl.col("rating").is_not_null())
    scored = labelled.filter(pl.col("reward").is_not_null())
    areas = {"auroc": _area(rated, "rating"), "reward_auroc": _area(scored, "reward")}
    found = {**_confusion(rated), **areas}
    return CriticFigures(
        against=group.against,
        group=group.title,
        names=group.names,
        there=group.there,
        n=rated.height,
        unscored=int(labelled["unread"].sum()),
        unlabelled=group.frame.height - labelled.height,
        estimates={name: of for name, of in found.items() if of is not None},
        remark=_remark(rated if rated.height else scored),
    )


def _group_name(name: str, value: Json) -> str:
    if value is None:
        return f"no {name}"
    if name == "reference":
        return "with reference" if value else "without reference"
    return f"iteration {value}" if name == "iteration" else str(value)


def _confusion(rated: pl.DataFrame) -> dict[str, Estimate | None]:
    if rated.is_empty():
        return {}
    right, passed = (_numbers(rated, name) for name in ("right", "passed"))
    every, both = np.ones(rated.height), right * passed
    ratios = {
        "approval": ratio(passed, every),
        "right": ratio(right, every),
        "precision": ratio(both, passed),
        "recall": ratio(both, right),
        "specificity": ratio((1 - right) * (1 - passed), 1 - right),
    }
    return {name: estimate(each, _clusters(rated)) for name, each in ratios.items()}


def _area(answers: pl.DataFrame, score: str) -> Estimate | None:
    if answers.is_empty():
        return None
    return area_estimate(_numbers(answers, score), answers["right"].to_numpy(), _clusters(answers))


def _remark(labelled: pl.DataFrame) -> str:
    """Explain which metrics are undefined, and why."""
    if labelled.is_empty():
        return "no answer has both a judgement and a label"
    if labelled["right"].all():
        return "no answer is wrong: no AUROC, no specificity"
    if not labelled["right"].any():
        return "no answer is right: no AUROC, no recall"
    return ""


def _numbers(answers: pl.DataFrame, name: str) -> Numbers:
    return answers[name].cast(pl.Float64).to_numpy()


def _clusters(answers: pl.DataFrame) -> Indices:
    return number_clusters(answers["cluster"].to_list())
