# pyright: basic
"""Is the judge reliable, and as much as before? Unparsed replies, agreement, drift.

A run keeps no set of anchors that is judged again and again. The nearest are answers of a later
model that equal an earlier one's, word by word: both were judged, and should be alike.
"""

from collections.abc import Sequence
from statistics import fmean

import polars as pl

from ...critics.status import WAS_READ
from ...stores.lake import RunReader
from ...stores.records import SCORED
from ..data.judged_candidates import trusted
from ..data.row_fields import HUMAN
from ..evaluation.panels import Lines, Panel
from ..lake.query.critic_scores import critic_scores
from ..lake.query.judged_by import follows
from ..lake.query.runs import is_of_loop, of_loop
from ..lake.statistics.clustered_error import mean_error
from ..lake.statistics.share_interval import NORMAL
from .report_plot import ReportPlot, names_of
from .run_rows import (
    are_several,
    by_iteration,
    none_made,
    rows_of,
    series_by,
    stacked,
    with_clusters,
)

READING = (
    "A judge is worth less where more of its replies are unread, where it agrees less with the "
    "verifier or with people, where it rates equal answers otherwise than before, or where its "
    "ratings are all the same (0 bits)."
)
JUDGES = {
    "critiques": "critic",
    "grades": "annotator",
    "preferences": "annotator",
    "claims": "judge",
    "breakdowns": "judge",
    "prompt_reviews": "judge",
}
"""The tables of judgements, and who judged."""
READ, UNREAD, AGREEMENT, ANCHOR, ENTROPY = "read", "unread", "agreement", "anchor", "entropy"
PEOPLE = "people"
EVALUATED = "evaluate:"
"""The names of the stages that draw answers to be measured, and of those that judge them."""
COLUMNS = ("iteration", "measure", "name", "value", "low", "high", "count")
DRIFT = {
    "iteration": pl.Int64,
    "measure": pl.String,
    "name": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    "count": pl.Int64,
}


def judge_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of the judge's quality, iteration by iteration."""
    rows = rows_of(runs, judge_rows)
    return ReportPlot(
        name="judge",
        title="The judge's health",
        reading=READING,
        command=f"lpfloop critic-check {names_of(runs)[0]} --by iteration",
        rows=rows,
        panels=_panels(rows) if rows.height else (),
        missing="" if rows.height else none_made(runs, "judgement by a model"),
        notes=[*_notes(rows), *_followed(runs)] if rows.height else (),
    )


def judge_rows(run: RunReader) -> pl.DataFrame:
    """Return the measures of the judge, by iteration.

    `read` and `unread`: the share of replies with the status `name`; `agreement`: with the verifier
    on the benchmark `name`, or with people; `anchor`: how much the mean rating of answers that
    equal earlier ones has changed; `entropy`: of the ratings of the aspect `name`, in bits. `count`
    is how many judgements a value is of.
    """
    found = [*(_statuses(run, table) for table in JUDGES), *_of_verifier(run), _of_people(run)]
    rows = pl.concat([*found, _anchors(run), _entropies(run)], how="diagonal_relaxed")
    empty = pl.DataFrame(schema={"low": pl.Float64, "high": pl.Float64})
    return pl.concat([rows, empty], how="diagonal_relaxed").select(COLUMNS).sort(COLUMNS[:3])


def _statuses(run: RunReader, table: str) -> pl.DataFrame:
    of_models = of_loop(run, table, columns={"iteration", "status", JUDGES[table]}).filter(
        ~trusted(JUDGES[table])
    )
    counts = of_models.group_by("iteration", "status").len().collect(engine="streaming")
    total = pl.col("len").sum().over("iteration")
    shares = counts.with_columns(value=pl.col("len") / total, count=total)
    read = pl.col("status").is_in(list(WAS_READ))
    return shares.select(
        "iteration",
        pl.when(read).then(pl.lit(READ)).otherwise(pl.lit(UNREAD)).alias("measure"),
        pl.format(f"{table}: {{}}", "status").alias("name"),
        "value",
        "count",
    )


def _of_verifier(run: RunReader) -> list[pl.DataFrame]:
    """Return how often the critic's verdict is the verifier's, by benchmark, over all tasks."""
    scores = {(score.iteration, score.benchmark): score for score in critic_scores(run)}
    rows = [
        {
            "iteration": score.iteration,
            "measure": AGREEMENT,
            "name": f"verifier, {score.benchmark}",
            "value": score.agreement,
            "count": score.n,
        }
        for score in scores.values()
    ]
    return [pl.DataFrame(rows)] if rows else []


def _of_people(run: RunReader) -> pl.DataFrame:
    """Return how often the critic's verdict equals the verdict of most people on the answer."""
    passed = pl.col("aspects").list.eval(pl.element().struct.field("rating").eq_missing(1))
    rated = (
        run.scan("critiques", columns={"iteration", "candidate_id", "critic", "status", "aspects"})
        .filter(pl.col("status") == SCORED)
        .with_columns(passed=passed.list.all())
    )
    people = (
        rated.filter(pl.col("critic").str.starts_with(HUMAN))
        .group_by("candidate_id")
        .agg(right=pl.col("passed").mean() > 0.5)  # noqa: PLR2004 -- most of them
        .collect(engine="streaming")
    )
    both = (
        rated.filter(~trusted("critic"))
        .select("iteration", "candidate_id", "passed")
        .join(people.lazy(), on="candidate_id")
        .group_by("iteration")
        .agg(value=(pl.col("passed") == pl.col("right")).mean(), count=pl.len())
    )
    return both.collect(engine="streaming").with_columns(
        measure=pl.lit(AGREEMENT), name=pl.lit(PEOPLE)
    )


def _anchors(run: RunReader) -> pl.DataFrame:
    """Return how the ratings of evaluated answers differ from earlier ratings of equal answers."""
    answers = (
        _evaluated(run, "candidates")
        .select("iteration", "prompt_id", "candidate_id", text=pl.col("text").hash())
        .collect(engine="streaming")
    )
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating")).list.mean()
    judged = (
        _evaluated(run, "critiques")
        .filter(pl.col("status") == SCORED, ~trusted("critic"))
        .select("candidate_id", rating=ratings)
        .group_by("candidate_id")
        .agg(pl.col("rating").mean())
        .collect(engine="streaming")
    )
    each = answers.join(judged, on="candidate_id").sort("iteration")
    first = each.unique(["prompt_id", "text"], keep="first", maintain_order=True)
    again = each.join(first, on=["prompt_id", "text"], suffix="_first").filter(
        pl.col("iteration") > pl.col("iteration_first")
    )
    changed = with_clusters(run, again).with_columns(
        change=pl.col("rating") - pl.col("rating_first")
    )
    rows = [_drift_of(part) for part in changed.partition_by("iteration", maintain_order=True)]
    return pl.DataFrame(rows, schema=DRIFT)


def _drift_of(again: pl.DataFrame) -> dict[str, int | float | str | None]:
    """Return how the ratings of an iteration's equal answers changed, over clusters of prompts."""
    changes = again["change"].to_list()
    mean, error = fmean(changes), mean_error(changes, again["cluster"].to_list())
    return {
        "iteration": again["iteration"][0],
        "measure": ANCHOR,
        "name": "equal answers",
        "value": mean,
        "low": None if error is None else mean - NORMAL * error,
        "high": None if error is None else mean + NORMAL * error,
        "count": len(changes),
    }


def _evaluated(run: RunReader, table: str) -> pl.LazyFrame:
    """Return the rows of a table that the loop's own evaluations made, without the many others."""
    return run.scan(table, stages=lambda stage: EVALUATED in stage and is_of_loop(stage))


def _entropies(run: RunReader) -> pl.DataFrame:
    """Return how much the ratings of each aspect differ: of critiques, and of grades."""
    critiques = (
        of_loop(run, "critiques", columns={"iteration", "critic", "status", "aspects"})
        .filter(pl.col("status") == SCORED, ~trusted("critic"))
        .select("iteration", "aspects")
        .explode("aspects")
        .select(
            "iteration",
            name=pl.col("aspects").struct.field("name"),
            rating=pl.col("aspects").struct.field("rating").cast(pl.Float64),
        )
    )
    grades = (
        of_loop(run, "grades", columns={"iteration", "annotator", "aspect", "rating"})
        .filter(~trusted("annotator"))
        .select("iteration", name=pl.format("grade: {}", "aspect"), rating="rating")
    )
    levels = (
        pl.concat([critiques, grades])
        .drop_nulls("rating")
        .group_by("iteration", "name", "rating")
        .len()
        .collect(engine="streaming")
    )
    return (
        levels.group_by("iteration", "name")
        .agg(value=pl.col("len").entropy(base=2, normalize=True), count=pl.col("len").sum())
        .with_columns(measure=pl.lit(ENTROPY))
    )


def _panels(rows: pl.DataFrame) -> list[Panel]:
    percent = rows.with_columns(percent=100 * pl.col("value"))
    unread, agreeing = percent.filter(measure=UNREAD), percent.filter(measure=AGREEMENT)
    anchors, entropies = rows.filter(measure=ANCHOR), rows.filter(measure=ENTROPY)
    panels: list[Panel] = []
    if unread.height:
        panels.append(stacked(unread, "name", "percent", title="Unread", y_label="% of replies"))
    if agreeing.height:
        panels += by_iteration(
            agreeing, "name", "percent", title="Agreement with", y_label="% of answers"
        )
    if anchors.height:
        panels.append(_drift(anchors))
    return [*panels, *_entropy(entropies)]


def _entropy(rows: pl.DataFrame) -> list[Lines]:
    """Return the panel of how much ratings differ: by aspect, or of each run over all aspects."""
    shown = rows
    if are_several(rows):
        weighted = (pl.col("value") * pl.col("count")).sum() / pl.col("count").sum()
        shown = rows.group_by("run", "iteration", name=pl.lit("all aspects")).agg(value=weighted)
    return by_iteration(shown, "name", "value", title="Entropy of ratings", y_label="bits", level=0)


def _drift(anchors: pl.DataFrame) -> Lines:
    return Lines(
        series=series_by(anchors, "run", "value", band=("low", "high")),
        title="Equal answers: change of rating",
        x_label="iteration",
        y_label="mean rating now less then",
        level=0,
        whole_x=True,
    )


def _followed(runs: Sequence[RunReader]) -> list[str]:
    """Return a note on runs whose drafts were judged by other weights in each iteration."""
    return [
        f"{name}: the drafts of an iteration are judged by the policy that gave them "
        "(recipe.judge=follows), evaluated answers by the same critic each time."
        for run, name in zip(runs, names_of(runs), strict=True)
        if follows(run)
    ]


def _notes(rows: pl.DataFrame) -> list[str]:
    """Return notes on measures that are missing, and on how many answers drift was measured."""
    notes = list[str]()
    named = set(rows.filter(measure=AGREEMENT)["name"])
    if PEOPLE not in named:
        notes.append("No person rated an answer: agreement with people is not known.")
    if not named - {PEOPLE}:
        notes.append("Nothing verifies these answers: agreement with a verifier is not known.")
    equal = rows.filter(measure=ANCHOR)
    if equal.is_empty():
        notes.append("No answer was given, and judged, twice: drift is not known.")
    for run, iteration, count in equal.select("run", "iteration", "count").iter_rows():
        notes.append(f"{run}: drift in iteration {iteration} is of {count:,} equal answers.")
    if rows.filter(measure=UNREAD).is_empty():
        notes.append("Every reply was read.")
    return notes
