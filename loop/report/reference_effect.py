"""How well a critic rates with the reference and without it, on the same answers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

import numpy as np
import polars as pl

from ...stores.journal_reader import JournalError
from ...stores.lake import RunReader, run_names
from ...stores.records import SCORED
from ..data.judged_candidates import trusted
from ..evaluation.panels import Intervals, Panel, PlottedValue
from ..lake.imports.answers_file import stored_answers
from ..lake.query.critic_scores import verified_answers
from ..lake.query.runs import open_run
from ..lake.statistics.bootstrap import numbered
from ..lake.statistics.roc_area import area_estimate
from .run_rows import with_clusters

DRAWS, SEED = 200, 0
WAYS = {True: "with", False: "without"}
READ = {"candidate_id", "critic", "reference_used", "aspects", "status"}
AS_NAMED = 40
"""So many letters of a run's name begin the names of the runs that critique its answers again."""


def auroc_of(own: pl.DataFrame) -> Mapping[str, float | int | None]:
    """Return the area under the ROC curve of some answers, with its interval."""
    found = area_estimate(
        own["value"].to_numpy().astype(np.float64),
        own["right"].to_numpy(),
        numbered(own["cluster"].to_list()),
        draws=DRAWS,
        seed=SEED,
    )
    return {
        "n": own.height,
        "auroc": found and 100 * found.value,
        "auroc_low": None if found is None or found.low is None else 100 * found.low,
        "auroc_high": None if found is None or found.high is None else 100 * found.high,
    }


def both_ways(run: RunReader) -> Iterator[dict[str, object]]:
    """Yield the AUROC of ratings with and without the reference, for answers judged both ways."""
    for other in _asked_again(run):
        right = verified_answers(run, None).select("candidate_id", "task", "right", "prompt_id")
        for reference, own in _ratings_of(run, other):
            known = own.join(right.unique("candidate_id"), on="candidate_id")
            known = with_clusters(run, known)
            for (task,), part in sorted(known.partition_by("task", as_dict=True).items()):
                yield {
                    "what": "reference",
                    "run": run.folder.name,
                    "task": task,
                    "reference": reference,
                    **auroc_of(part),
                }


def _asked_again(run: RunReader) -> Iterator[RunReader]:
    """Yield the runs of the lake that asked the run's critic the other way, each while open.

    Runs that cannot be read, because they are damaged or of an older lpfloop, are skipped.
    """
    lake, own = run.folder.parent.parent, run.folder.name
    wanted = {f"{own} {way} reference" for way in WAYS.values()}
    for name in sorted(run_names(lake)):
        if not name.startswith(f"critique-{own}"[:AS_NAMED]):
            continue
        with suppress(JournalError), closing(open_run(lake, name)) as other:
            answers = stored_answers(other.journal)
            if answers is not None and answers.source in wanted:
                yield other


def _ratings_of(run: RunReader, other: RunReader) -> list[tuple[bool, pl.DataFrame]]:
    """Return the mean ratings of the answers that two runs critiqued, by who saw the reference."""
    again = _mean_ratings(other).collect()
    first = _mean_ratings(run).filter(pl.col("candidate_id").is_in(again["candidate_id"].implode()))
    seen, unseen = (
        pl.concat([first.collect(), again]).filter(pl.col("reference_used") == shown)
        for shown in (True, False)
    )
    return [
        (True, seen.join(unseen, on="candidate_id", how="semi")),
        (False, unseen.join(seen, on="candidate_id", how="semi")),
    ]


def _mean_ratings(run: RunReader) -> pl.LazyFrame:
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating").cast(pl.Float64))
    return (
        run.scan("critiques", columns=READ)
        .filter(pl.col("status") == SCORED, ~trusted("critic"))
        .select("candidate_id", "reference_used", value=ratings.list.mean())
        .drop_nulls("value")
        .unique("candidate_id", keep="first", maintain_order=True)
    )


def reference_panels(ways: Sequence[Mapping[str, object]]) -> Iterator[Panel]:
    """Give the areas of each task with the reference and without it."""
    known = [row for row in ways if row["auroc"] is not None]
    if known:
        frame = pl.DataFrame(known, infer_schema_length=None).sort(
            "task", "reference", descending=[False, True]
        )
        yield Intervals(
            estimates=[
                PlottedValue(
                    label=f"{row['task']}, {WAYS[row['reference']]} ({row['n']})",
                    value=row["auroc"],
                    low=row["auroc"] if row["auroc_low"] is None else row["auroc_low"],
                    high=row["auroc"] if row["auroc_high"] is None else row["auroc_high"],
                )
                for row in frame.iter_rows(named=True)
            ],
            title="with and without the reference",
            x_label="AUROC of ratings of the same answers, %",
            level=50.0,
        )
