"""The compared trainings: Eq. 3, and each remedy of its displacement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""A pair in the lake's format."""
Setting = str | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A training: its changes to `training.dpo`, to the pairs, and to their order.

    `rate`: factor of the learning rate; `initial`: the reference policy is M_0.
    """

    update: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    rate: float = 1.0
    order: int = 0
    initial: bool = False
    rows: Callable[[Sequence[Row]], Sequence[Row]] = list


def distinct(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, except those with the chosen text of an earlier pair of their prompt."""
    first = {(row["prompt_id"], row["chosen"][-1]["content"]): row for row in reversed(rows)}
    kept = {id(row) for row in first.values()}
    return [row for row in rows if id(row) in kept]


AS_IT_WAS = "Eq. 3"
"""The run's training: measured, but not repeated."""
ARMS: Mapping[str, Arm] = {
    AS_IT_WAS: Arm(),
    "Eq. 3, made again": Arm(),
    "Eq. 3, another order": Arm(order=1),
    "sft_weight=0.1": Arm(update={"sft_weight": 0.1}),
    "sft_weight=0.3": Arm(update={"sft_weight": 0.3}),
    "sft_weight=1": Arm(update={"sft_weight": 1.0}),
    "sft_weight=3": Arm(update={"sft_weight": 3.0}),
    "chosen_penalty=5": Arm(update={"chosen_penalty": 5.0}),
    "chosen_penalty=50": Arm(update={"chosen_penalty": 50.0}),
    "chosen_penalty=5, beta=0.3": Arm(update={"chosen_penalty": 5.0, "beta": 0.3}),
    "chosen_penalty=50, beta=0.3": Arm(update={"chosen_penalty": 50.0, "beta": 0.3}),
    "chosen_penalty=5, sft_weight=1": Arm(update={"chosen_penalty": 5.0, "sft_weight": 1.0}),
    "beta=0.3": Arm(update={"beta": 0.3}),
    "beta=1": Arm(update={"beta": 1.0}),
    "loss=ipo, beta=1": Arm(update={"loss": "ipo", "beta": 1.0}),
    "loss=sigmoid_norm, beta=2": Arm(update={"loss": "sigmoid_norm", "beta": 2.0}),
    "loss=apo_zero": Arm(update={"loss": "apo_zero"}),
    "loss=hinge": Arm(update={"loss": "hinge"}),
    "learning rate x 0.5": Arm(rate=0.5),
    "learning rate x 2": Arm(rate=2.0),
    "distinct chosen": Arm(rows=distinct),
    "distinct chosen, sft_weight=1": Arm(update={"sft_weight": 1.0}, rows=distinct),
    "reference M_0": Arm(initial=True),
}
