# pyright: basic
"""How far refining gets in each of its rounds: prompts with an answer that the critic passes.

Round 0 are the samples, round 1 refinements of those, round 2 refinements of refinements. Passed
prompts stay passed, so that their share never falls from a round to the next.
"""

import json
from collections.abc import Sequence
from statistics import fmean

import polars as pl

from ...stores.lake import RunReader
from ..data.judged_candidates import READ, Deciding, verdicts
from ..evaluation.panels import Lines, Panel
from ..lake.statistics.clustered_error import mean_error
from ..lake.statistics.share_interval import share_interval
from .report_plot import ReportPlot, names_of
from .run_rows import are_several, none_made, rows_of, series_by, with_clusters

READING = (
    "A line that is flat from a round on says that refining again gains nothing there; `refined` "
    "in the rows says for how many prompts it was tried."
)
COLUMNS = {
    "iteration": pl.Int64,
    "round": pl.Int64,
    "prompts": pl.Int64,
    "refined": pl.Int64,
    "passed": pl.Int64,
    "share": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


def rounds_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of how many prompts have a passed answer after each round of refinement."""
    rows = rows_of(runs, round_rows)
    return ReportPlot(
        name="rounds",
        title="Rounds of refinement: prompts with an answer that passes",
        reading=READING,
        command=f"lpfloop candidates {names_of(runs)[0]} --kind refinement",
        rows=rows,
        panels=[_panel(rows)] if rows.height else (),
        missing="" if rows.height else none_made(runs, "refinement"),
    )


def round_rows(run: RunReader) -> pl.DataFrame:
    """Return how many of an iteration's `prompts` have an answer that passes, after each round.

    `refined` counts the prompts with refinements in the round, `passed` the prompts with an answer
    of this round or one before that the critic passes; `share` is their share, with an interval
    over clusters of prompts from `low` to `high`, which are None for one cluster.
    """
    answers = _in_rounds(run)
    if answers.filter(pl.col("round") > 0).is_empty():
        return pl.DataFrame(schema=COLUMNS)
    deciding = Deciding.of(json.loads(run.journal.meta("config") or "{}"))
    said = verdicts(run.scan("critiques").select(READ["critiques"]), deciding)
    passed = said.filter("success").select("candidate_id").unique().collect(engine="in-memory")
    of_prompts = with_clusters(run, answers).with_columns(
        passed=pl.col("candidate_id").is_in(passed["candidate_id"].implode())
    )
    return pl.concat(
        [
            _counted(of_prompts.filter(iteration=iteration), iteration)
            for iteration in of_prompts["iteration"].unique().sort()
        ]
    )


def _in_rounds(run: RunReader) -> pl.DataFrame:
    """Return the samples and refinements of a run, each with its round."""
    columns = ("iteration", "prompt_id", "candidate_id", "parent_id", "kind")
    every = (
        run.scan("candidates", columns={*columns})
        .filter(pl.col("kind").is_in(["sample", "refinement"]), pl.col("iteration") > 0)
        .select(columns)
        .collect(engine="streaming")
    )
    made, found, number = every.filter(kind="sample"), list[pl.DataFrame](), 0
    while made.height or not found:
        found.append(made.with_columns(round=pl.lit(number, pl.Int64)))
        parents = made.select(parent_id="candidate_id")
        refined = every.filter(kind="refinement")
        made, number = refined.join(parents, on="parent_id", how="semi"), number + 1
    return pl.concat(found)


def _counted(answers: pl.DataFrame, iteration: int) -> pl.DataFrame:
    """Return the rows of one iteration."""
    every = answers.unique("prompt_id").sort("prompt_id")
    asked, clusters = every["prompt_id"].to_list(), every["cluster"].to_list()
    prompts = len(asked)
    rows = list[tuple[float | None, ...]]()
    for number in answers["round"].unique().sort():
        refined = answers.filter(round=number)["prompt_id"].n_unique() if number else 0
        so_far = set(answers.filter(pl.col("round") <= number, "passed")["prompt_id"])
        passed = [float(prompt in so_far) for prompt in asked]
        share = fmean(passed)
        within = share_interval(share, mean_error(passed, clusters), prompts) or (None, None)
        rows.append((iteration, number, prompts, refined, len(so_far), share, *within))
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _panel(rows: pl.DataFrame) -> Panel:
    """Return a line for each iteration, or of several runs for the last one of each."""
    several = are_several(rows)
    shown = rows.filter(pl.col("iteration") == pl.col("iteration").max().over("run"))
    lines = (shown if several else rows).with_columns(
        pl.col("share", "low", "high") * 100, label=pl.format("iteration {}", "iteration")
    )
    return Lines(
        series=series_by(lines, "label", "share", x="round", band=("low", "high")),
        title="Prompts with an answer that passes",
        x_label="round of refinement",
        y_label="% of prompts",
        whole_x=True,
    )
