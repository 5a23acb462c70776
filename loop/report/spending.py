# pyright: basic
"""Where time, tokens and money went: the sums of each stage's units, which count a unit once."""

import polars as pl

from ...stores.lake import RunReader
from ...stores.side_evals import side_eval_of
from ..evaluation.plots import Panel
from .section import Section, over_iterations

SIDE_EVAL = "outside the loop"
"""The label of side evals, which are not part of the loop."""
HOUR = 3600
TITLES = {
    "seconds": "Time (side by side counts twice)",
    "tokens": "Tokens, read and written",
    "money": "Money",
}
COUNTS = ("calls", "retries", "judge_calls")
SCHEMA = {
    "iteration": pl.Int64,
    **dict.fromkeys(("stage", "verb"), pl.String),
    **dict.fromkeys(("planned", "done", "tokens", *COUNTS), pl.Int64),
    **dict.fromkeys(("seconds", "money"), pl.Float64),
}


def spending_section(run: RunReader) -> Section:
    """Return the cost of each iteration's stages."""
    rows = spending_rows(run)
    return Section(
        name="spending",
        title="Spending: time, tokens and money",
        reading="The highest line is what to make cheaper first.",
        command=f"lpfloop status {run.folder.name} --json",
        tables={"spending": rows},
        panels=[panel for name in TITLES for panel in _panels(rows, name)],
        missing="no stage has spent anything",
    )


def spending_rows(run: RunReader) -> pl.DataFrame:
    """Return the cost of each stage."""
    rows = [
        {
            "iteration": state.iteration,
            "stage": state.stage,
            "verb": SIDE_EVAL if side_eval_of(state.stage) else state.stage.partition(":")[0],
            "planned": state.planned,
            "done": state.done,
            "tokens": int(state.totals.get("tokens", 0) + state.totals.get("prompt_tokens", 0)),
            "seconds": state.seconds,
            "money": float(state.totals.get("money", 0.0)),
            **{name: int(state.totals.get(name, 0)) for name in COUNTS},
        }
        for state in run.journal.stages()
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _panels(rows: pl.DataFrame, name: str) -> list[Panel]:
    """Return a line for each verb with its cost in each iteration."""
    short = name == "seconds" and rows[name].sum() < HOUR
    unit, scale = {
        "seconds": ("minutes", 1 / 60) if short else ("hours", 1 / HOUR),
        "tokens": ("thousand tokens", 1 / 1000),
        "money": ("US dollars", 1.0),
    }[name]
    sums = rows.group_by("iteration", "verb").agg(value=pl.col(name).sum() * scale)
    costly = sums.filter((pl.col("value") > 0).any().over("verb"))
    return over_iterations(costly, "verb", "value", title=TITLES[name], y_label=unit)
