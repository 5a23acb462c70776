"""The table of the quality of a run's critic, by task and model."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from ..data.sanitize import one_line
from ..data.splits import HELD_OUT
from ..lake.query.critic_scores import ALL, DRAFTS
from ..lake.query.row_table import print_columns, text_columns

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


TITLE = "The critic against the verifier, in percent (last: AUROC of ratings and reward)"


def print_critic(
    console: Console, iterations: Sequence[Mapping[str, Any]], *, wide: bool = False
) -> None:
    """Print the quality of the critic by task and model, if it was measured.

    `iterations` are the iterations of a run's status. Of held-out answers it shows the first and
    the last model's; if `wide`, all answers of all models.
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
        return
    shares = [name for name in CRITIC if any(score[name] is not None for score in scores)]
    rows = [
        (
            one_line(score["task"], limit=TASK),
            score["answers"],
            f"{score['n']:,}",
            *(_percent(score[name]) for name in shares),
        )
        for score in sorted(scores, key=lambda s: (s["task"] == ALL, s["task"], s["benchmark"]))
    ]
    headings = ("Task", "Answers", "n", *(CRITIC[name] for name in shares))
    console.print()
    print_columns(console, text_columns(headings, rows, left=2), title=TITLE)


def _answers_of(iteration: int, benchmark: str) -> str:
    """Return whose answers were judged: M_t's, or the drafts of iteration t."""
    return f"{DRAFTS} {iteration}" if benchmark == DRAFTS else f"M_{iteration}, {benchmark}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
