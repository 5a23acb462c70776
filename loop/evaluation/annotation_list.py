# pyright: basic
"""People's judgements of a run by hand, as rows: in the run, or still in the ledger."""

import polars as pl

from ...stores.annotation_ledger import entries
from ...stores.frames import frame_rows
from ...stores.lake import RunReader
from ...stores.records import Critique, Preference
from ..data.row_fields import HUMAN
from ..lake.annotations.bring_in import said_rows, waiting
from ..lake.query.critic_scores import verified_answers
from .annotator_quality import (
    AnnotatorDay,
    PeopleAgreement,
    Said,
    annotator_days,
    people_agreement,
)

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
DAY = {
    "annotator": pl.String,
    "day": pl.String,
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
    stored = [_told(row, IN_RUN) for row in hand_rows(run)]
    left = [e for e in entries(run.folder) if e.undone or e.unit is None]
    ledger = [
        _told(row, UNDONE if entry.undone else WAITING)
        for entry in left
        for row in said_rows([entry])
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


def all_said(run: RunReader) -> list[Said]:
    """Return people's ratings and votes, including those not yet in the run."""
    return [*hand_rows(run), *said_rows(waiting(run.folder))]


def quality_rows(run: RunReader) -> tuple[pl.LazyFrame, list[str]]:
    """Return how well people judge by day, and how far they agree, as text.

    The verifier's verdicts are read from the run.
    """
    days, agreed = quality(run)
    rows = pl.LazyFrame([day.as_json() for day in days], schema=DAY)
    return rows, [f"{kind}: {found.sentence}" for kind, found in agreed.items()]


def quality(run: RunReader) -> tuple[list[AnnotatorDay], dict[str, PeopleAgreement]]:
    """Return how well people judge by day, and how far they agree: on ratings, and on pairs."""
    said = all_said(run)
    told = verified_answers(run, None).select("candidate_id", "right").iter_rows()
    kinds = {"ratings": Critique, "pairs": Preference}
    agreed = {
        kind: people_agreement(row for row in said if isinstance(row, of))
        for kind, of in kinds.items()
        if any(isinstance(row, of) for row in said)
    }
    return annotator_days(said, dict(told)), agreed


def _told(row: Said, state: str) -> dict[str, object]:
    if isinstance(row, Critique):
        said = ", ".join(f"{a.name} {a.rating}" for a in row.aspects if a.rating is not None)
        about = {"first_id": row.candidate_id, "second_id": None, "annotator": row.critic}
    else:
        said = row.preferred or ""
        about = {"first_id": row.first_id, "second_id": row.second_id, "annotator": row.annotator}
    return {
        "judged_at": row.judged_at,
        "said": said,
        "comment": row.text,
        "seconds": row.judged_seconds,
        "state": state,
        "prompt_id": row.prompt_id,
        **about,
    }
