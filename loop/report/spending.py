# pyright: basic
"""Where time, tokens and money went: the sums of each stage's units, which count a unit once."""

import polars as pl

from ...stores.lake import RunReader
from ...stores.side_evals import measured_beside
from ..evaluation.plots import Bars, Heights
from .section import MOST_SERIES, Section

BESIDE = "outside the loop"
"""The label of side evals, which are not part of the loop."""
OTHERS = "others"
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
        reading="The tallest part of a bar is what to make cheaper first.",
        command=f"lpfloop status {run.folder.name} --json",
        tables={"spending": rows},
        panels=[_bars(rows, name) for name in TITLES if (rows[name] > 0).any()],
        missing="no stage has spent anything",
    )


def spending_rows(run: RunReader) -> pl.DataFrame:
    """Return the cost of each stage."""
    rows = [
        {
            "iteration": state.iteration,
            "stage": state.stage,
            "verb": BESIDE if measured_beside(state.stage) else state.stage.partition(":")[0],
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


def _bars(rows: pl.DataFrame, name: str) -> Bars:
    """Return a bar for each iteration, of its verbs, those that cost most first."""
    short = name == "seconds" and rows[name].sum() < HOUR
    unit, scale = {
        "seconds": ("minutes", 1 / 60) if short else ("hours", 1 / HOUR),
        "tokens": ("thousand tokens", 1 / 1000),
        "money": ("US dollars", 1.0),
    }[name]
    totals = rows.group_by("verb").agg(pl.col(name).sum()).sort(-pl.col(name), "verb")
    kept = totals.filter(pl.col(name) > 0)["verb"].to_list()
    if len(kept) > MOST_SERIES:
        kept = [*kept[: MOST_SERIES - 1], OTHERS]
    part = pl.when(pl.col("verb").is_in(kept)).then("verb").otherwise(pl.lit(OTHERS))
    sums = rows.group_by("iteration", part.alias("part")).agg(pl.col(name).sum() * scale)
    values = {(iteration, verb): value for iteration, verb, value in sums.iter_rows()}
    turns = sorted(rows["iteration"].unique())
    return Bars(
        groups=[str(turn) for turn in turns],
        parts=[
            Heights(label=verb, values=[values.get((turn, verb), 0.0) for turn in turns])
            for verb in kept
        ],
        title=TITLES[name],
        x_label="iteration",
        y_label=unit,
    )
