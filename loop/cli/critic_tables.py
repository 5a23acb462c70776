"""The table of what a run's critic is worth, by task and model."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from ..data.sanitize import one_line
from ..data.splits import HELD_OUT
from ..lake.query.critic_scores import ALL, DRAFTS

CRITIC = {
    "approval": "passed",
    "verified": "right",
    "precision": "precision",
    "recall": "recall",
    "auroc": "ratings",
    "reward_auroc": "reward",
}
"""The figures of a critic, with their headings: of ratings and rewards it is the AUROC."""
TASK = 24


def critic_tables(iterations: Sequence[Mapping[str, Any]], *, wide: bool = False) -> list[Table]:
    """Return the table of what the critic is worth by task and model, if anything tells.

    `iterations` are those of a run's status. Of held-out answers it shows the first and the last
    model's; if `wide`, all answers of all models.
    """
    every = [(turn["iteration"], score) for turn in iterations for score in turn["critic"]]
    reported = [number for number, score in every if score["benchmark"] == HELD_OUT]
    ends = {min(reported), max(reported)} if reported and not wide else None
    scores: list[dict[str, Any]] = [
        {"answers": _answers_of(number, score["benchmark"]), **score}
        for number, score in every
        if ends is None or (number in ends and score["benchmark"] == HELD_OUT)
    ]
    if not scores:
        return []
    table = Table(
        title="The critic against the verifier, in percent (last: AUROC of ratings and reward)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    shares = [name for name in CRITIC if any(score[name] is not None for score in scores)]
    for heading in ("Task", "Answers"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", *(CRITIC[name] for name in shares)):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in sorted(scores, key=lambda s: (s["task"] == ALL, s["task"], s["benchmark"])):
        of = (escape(one_line(score["task"], limit=TASK)), score["answers"])
        table.add_row(*of, f"{score['n']:,}", *(_percent(score[name]) for name in shares))
    return [table]


def _answers_of(iteration: int, benchmark: str) -> str:
    """Say whose answers were judged: those of M_t, or the drafts of iteration t."""
    return f"{DRAFTS} {iteration}" if benchmark == DRAFTS else f"M_{iteration}, {benchmark}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
