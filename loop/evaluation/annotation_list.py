# pyright: basic
"""People's judgements of a run by hand, as rows: in the run, or still in the ledger."""

import polars as pl

from ...stores.annotation_ledger import entries
from ...stores.frames import frame_rows
from ...stores.lake import RunReader
from ...stores.records import Critique, Preference
from ..data.judged_candidates import HUMAN
from ..lake.annotations.bring_in import judgment_rows, waiting
from ..lake.query.critic_scores import verified_answers
from .annotator_quality import Said, annotator_quality, people_agreement

IN_RUN, WAITING, UNDONE = "in the run", "waiting", "taken back"
ROW = {
    "judged_at": pl.String,
    "annotator": pl.String,
    "said": pl.String,
    "comment": pl.String,
    "seconds": pl.Float64,
    "state": pl.String,
    "prompt_id": pl.String,
    "first_id": pl.String,
    "second_id": pl.String,
}
QUALITY = {
    "annotator": pl.String,
    "judged": pl.Int64,
    "seconds": pl.Float64,
    "shared": pl.Int64,
    "others": pl.Float64,
    "kappa": pl.Float64,
    "verified": pl.Int64,
    "verifier": pl.Float64,
}


def annotation_rows(run: RunReader) -> pl.LazyFrame:
    """Return people's judgements, the oldest first; judgements not yet in the run come last."""
    stored = [_document(row, IN_RUN) for row in hand_rows(run)]
    left = [e for e in entries(run.folder) if e.undone or e.unit is None]
    ledger = [
        _document(row, UNDONE if entry.undone else WAITING)
        for entry in left
        for row in judgment_rows([entry])
    ]
    rows = sorted(stored, key=lambda row: str(row["judged_at"] or "")) + ledger
    return pl.LazyFrame(rows, schema=ROW)


def hand_rows(run: RunReader) -> list[Said]:
    """Return the ratings and votes of people that are in the run, in the order of arrival.

    Judgements by hand and imported ones are treated alike.
    """
    critiques = run.scan("critiques").filter(pl.col("critic").str.starts_with(HUMAN)).collect()
    votes = run.scan("preferences").filter(
        pl.col("annotator").str.starts_with(HUMAN) & ~pl.col("flipped")
    )
    return [*frame_rows(Critique, critiques), *frame_rows(Preference, votes.collect())]


def quality_rows(run: RunReader) -> tuple[pl.LazyFrame, list[str]]:
    """Return how well people judge, and how far they agree, as text.

    The verifier's verdicts are read from the run; judgements that are not yet in the run count.
    """
    judgments = [*hand_rows(run), *judgment_rows(waiting(run.folder))]
    right = verified_answers(run, None).select("candidate_id", "right").iter_rows()
    rows = pl.LazyFrame(annotator_quality(judgments, dict(right)), schema=QUALITY)
    kinds = {
        "ratings": [row for row in judgments if isinstance(row, Critique)],
        "pairs": [row for row in judgments if isinstance(row, Preference)],
    }
    return rows, [f"{kind}: {people_agreement(of).sentence}" for kind, of in kinds.items() if of]


def _document(row: Said, state: str) -> dict[str, object]:
    if isinstance(row, Critique):
        ratings = ", ".join(f"{a.name} {a.rating}" for a in row.aspects if a.rating is not None)
        about = {"first_id": row.candidate_id, "second_id": None, "annotator": row.critic}
    else:
        ratings = row.preferred or ""
        about = {"first_id": row.first_id, "second_id": row.second_id, "annotator": row.annotator}
    return {
        "judged_at": row.judged_at,
        "said": ratings,
        "comment": row.text,
        "seconds": row.judged_seconds,
        "state": state,
        "prompt_id": row.prompt_id,
        **about,
    }
