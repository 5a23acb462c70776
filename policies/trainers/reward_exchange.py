# pyright: basic
"""Scores of a trainer's answers that its parent finds, by the verifier or a critic.

The child writes a step's answers into `answers/000k` of the work folder, appends the event
`answers` to `metrics.jsonl`, and waits. Its parent reads them, scores them, and writes
`judged/000k`: for each answer a score of each source that was asked, null if there is none. Both
are complete or absent. Scores count only for exactly the answers that were scored, texts included:
a child that is started again and draws the same answers uses them, and no answer is scored twice.
Imports no model library.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pyarrow as pa
import pyarrow.parquet as pq

from ...stores.durable import remove
from ...stores.records import Candidate
from ...stores.schemas import TABLES, from_table, to_table
from ...stores.sealed import MANIFEST
from .job import RewardSource
from .step_files import publish_tables
from .work_folder import POLL_S, append_row, read_orders

ANSWER_FOLDERS, JUDGED_FOLDERS = "answers", "judged"
TABLE = "judged"
JUDGED_FOR = b"answers"
"""The hash of the answers that were judged, in the table's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer's score of each source that was asked; None if the source has none."""

    candidate_id: str
    scores: Mapping[RewardSource, float | None]


def write_answers(work: Path, step: int, answers: Sequence[Candidate]) -> None:
    """Write a step's answers for the parent; replace those of an interrupted attempt."""
    publish_tables(
        _folder(work, ANSWER_FOLDERS, step), {TABLES[Candidate]: to_table(Candidate, answers)}
    )


def read_answers(work: Path, step: int) -> list[Candidate]:
    """Return the answers of a step that the parent scores, those of a prompt together.

    Raises:
        FileNotFoundError: if the step has none, or not all of them.
    """
    folder = _folder(work, ANSWER_FOLDERS, step)
    if not _is_whole(folder):
        raise FileNotFoundError(f"{folder} does not hold a step's answers")
    return from_table(Candidate, pq.read_table(folder / f"{TABLES[Candidate]}.parquet"))


def write_judged(work: Path, step: int, judged: Sequence[JudgedAnswer]) -> None:
    """Write the scores of all of a step's answers, in any order.

    Raises:
        ValueError: if an answer is missing or there twice, or a score is not finite.
    """
    wanted = [answer.candidate_id for answer in read_answers(work, step)]
    found = {each.candidate_id: each.scores for each in judged}
    if len(judged) != len(found) or found.keys() != set(wanted):
        raise ValueError(f"step {step}: not each of its {len(wanted)} answers was judged once")
    sources: list[RewardSource] = sorted({source for scores in found.values() for source in scores})
    columns: dict[str, pa.Array] = {"candidate_id": pa.array(wanted, pa.string())}
    for source in sources:
        scores = [found[name].get(source) for name in wanted]
        if not all(score is None or math.isfinite(score) for score in scores):
            raise ValueError(f"step {step}: a score of the {source} is not finite")
        columns[source] = pa.array(scores, pa.float64())
    metadata = {JUDGED_FOR: _answers_hash(work, step)}
    table = pa.table(columns).replace_schema_metadata(metadata)
    publish_tables(_folder(work, JUDGED_FOLDERS, step), {TABLE: table})


def read_judged(
    work: Path, step: int, sources: Sequence[RewardSource]
) -> list[JudgedAnswer] | None:
    """Return the scores of a step's present answers by these sources, in the answers' order.

    None if there are none, or only those of other answers or sources.
    """
    folder = _folder(work, JUDGED_FOLDERS, step)
    if not _is_whole(folder):
        return None
    table = pq.read_table(folder / f"{TABLE}.parquet")
    scored = (table.schema.metadata or {}).get(JUDGED_FOR)
    if scored != _answers_hash(work, step) or not {*sources} <= {*table.column_names}:
        return None
    return [
        JudgedAnswer(candidate_id=row["candidate_id"], scores={s: row[s] for s in sources})
        for row in table.to_pylist()
    ]


def ask_parent(
    work: Path,
    step: int,
    answers: Sequence[Candidate],
    sources: Sequence[RewardSource],
    *,
    alive: Callable[[], None],
) -> list[JudgedAnswer] | None:
    """Ask the parent for the scores of a step's answers; return them in the answers' order.

    None if the training was asked to end before the parent answered.
    """
    write_answers(work, step, answers)
    found = read_judged(work, step, sources)
    if found is None:
        stale = _folder(work, JUDGED_FOLDERS, step)
        if stale.exists():
            remove(stale)
        append_row(work, {"event": "answers", "step": step})
    while found is None:
        if read_orders(work).end:
            return None
        alive()
        sleep(POLL_S)
        found = read_judged(work, step, sources)
    return found


def _answers_hash(work: Path, step: int) -> bytes:
    manifest = _folder(work, ANSWER_FOLDERS, step) / MANIFEST
    return hashlib.sha256(manifest.read_bytes()).hexdigest().encode()


def _folder(work: Path, kind: str, step: int) -> Path:
    return work / kind / f"{step:04d}"


def _is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()
