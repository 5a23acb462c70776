# pyright: basic
"""UltraFeedback's schema: an instruction, and completions with their ratings and rationales.

A grade is written as it was read, an imported one as it was published. Without grades, a critique's
ratings are used, their three levels as 1, 3 and 5. A prompt with external answers only is written
as published; any other row also names its prompt and candidates.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ....configs.secrecy import row_without_keys
from ....critics.grading.grade_reply import BY_NAME as GRADED
from ....critics.status import Status
from ....stores.lake import RunReader
from ....stores.records import Grade, Message, Prompt
from ...data.file_row import as_row
from ...data.judged_candidates import critique_place
from ...data.prompt_rows import CORRECT, INCORRECT, LISTED, NO_ANSWER
from ...data.rating_scale import SCALES, number
from ..imports.imported_rows import Maker
from ..imports.ultrafeedback_rows import MEAN, PUBLISHED, prompt_of, published_form

SCALE = SCALES["1-5"]
NOT_RATED = "N/A"
GIVEN = re.compile(r"\n\n\[as given, on ([^:\n]+): (\{.*\})\]\Z")
"""The note that an import adds if the levels lose the ratings."""

CANDIDATES_AT_ONCE = 20_000

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with all its judgments, oldest first."""

    candidate: Record
    critiques: Sequence[Record]
    rewards: Sequence[Record]
    grades: Sequence[Record] = ()

    @property
    def critique(self) -> Record | None:
        """The critique that represents all: the critic's, or else a person's."""
        ordered = sorted(self.critiques, key=lambda c: critique_place(c["critic"], c["sample"]))
        return ordered[-1] if ordered else None


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its candidates."""

    prompt: Record
    candidates: Sequence[Judged]


def groups(run: RunReader, iteration: int | None) -> Iterator[Group]:
    """Yield every prompt that has candidates, in the run's order, by batches of prompts."""
    order = (
        run.scan("candidates", iteration=iteration)
        .group_by("prompt_id", maintain_order=True)
        .len()
        .collect()
        .with_columns(batch=pl.col("len").cum_sum() // CANDIDATES_AT_ONCE)
    )
    for batch in order.partition_by("batch", maintain_order=True):
        ids = batch.select("prompt_id")
        prompts = {row["prompt_id"]: row for row in _rows(run, "prompts", None, ids)}
        critiques, rewards, grades = (
            _by(_rows(run, table, iteration, ids), "candidate_id")
            for table in ("critiques", "rewards", "grades")
        )
        candidates = _by(_rows(run, "candidates", iteration, ids), "prompt_id")
        for prompt_id in ids["prompt_id"]:
            own = ((one, one["candidate_id"]) for one in candidates[prompt_id])
            judged = [Judged(one, critiques[i], rewards[i], grades[i]) for one, i in own]
            yield Group(prompts[prompt_id], judged)


def _rows(run: RunReader, table: str, iteration: int | None, ids: pl.DataFrame) -> Sequence[Record]:
    frame = run.scan(table, iteration=iteration)
    found = frame.join(ids.lazy(), on="prompt_id", how="semi", maintain_order="left").collect()
    return row_without_keys(found.to_dicts())


def _by(rows: Sequence[Record], name: str) -> Mapping[str, list[Record]]:
    found = defaultdict[str, list[Record]](list)
    for row in rows:
        found[row[name]].append(row)
    return found


def ultrafeedback(group: Group) -> Record:
    """Return a prompt with its candidates as a row of UltraFeedback."""
    turns = [Message(role=m["role"], content=m["content"]) for m in group.prompt["messages"]]
    prompt = Prompt(**{**group.prompt, "messages": tuple(turns), "checks": ()})
    references = [judged.candidate for judged in group.candidates if _is_reference(judged)]
    completions = [judged for judged in group.candidates if not _is_reference(judged)]
    row: dict[str, Any] = {"source": prompt.source, "instruction": prompt.instruction}
    if [turn.role for turn in turns] != ["user"]:
        row["messages"] = group.prompt["messages"]
    right = _texts(references, CORRECT) or ([prompt.reference] if prompt.reference else [])
    row |= {
        "models": [judged.candidate["model"] for judged in completions],
        "completions": [_completion(judged) for judged in completions],
        CORRECT: right or [NO_ANSWER],
        INCORRECT: _texts(references, INCORRECT) or [NO_ANSWER],
    }
    if _came_so(row, prompt, completions):
        return row
    own = [
        {"candidate_id": judged.candidate["candidate_id"], "kind": judged.candidate["kind"]}
        for judged in completions
    ]
    with_ids = [{**one, **ids} for one, ids in zip(row["completions"], own, strict=True)]
    return {**row, "completions": with_ids, "prompt_id": prompt.prompt_id, "task": prompt.task}


def _is_reference(judged: Judged) -> bool:
    return judged.candidate["kind"] == "external" and judged.candidate["model"] in LISTED


def _texts(references: Sequence[Record], name: str) -> list[str]:
    return [candidate["text"] for candidate in references if candidate["model"] == name]


def _came_so(row: Record, prompt: Prompt, completions: Sequence[Judged]) -> bool:
    """Whether all was imported, and importing the row again would give the same prompt."""
    if any(judged.candidate["kind"] != "external" for judged in completions):
        return False
    make = Maker(source=prompt.source, scale=SCALE, task=None)
    return prompt_of(as_row(row), make).prompt_id == prompt.prompt_id


def _completion(judged: Judged) -> Record:
    candidate, critique = judged.candidate, judged.critique
    # Verdicts of held-out judges, which have a separate form, are not annotations.
    grades = {row["aspect"]: _grade(row) for row in judged.grades if row["aspect"] in GRADED}
    overall = grades.pop("overall", None)
    text, given = _as_given(critique["text"] if critique else "")
    if not critique and overall:
        text = overall.rationale
    annotations = {
        aspect["name"]: {
            "Rating": _rating(aspect["rating"], given.get(aspect["name"])),
            "Rationale": aspect["comment"],
        }
        for aspect in (critique["aspects"] if critique else [])
    }
    annotations |= {name: _annotation(grade) for name, grade in grades.items()}
    scores = [r for r in judged.rewards if not r["reward_model"].endswith(f":{MEAN}")]
    aspect, system = _principle(candidate["principle"])
    return {
        "annotations": annotations,
        "custom_system_prompt": system,
        "model": candidate["model"],
        "principle": aspect,
        "response": candidate["text"],
        "critique": text,
        "overall_score": _overall(overall) if overall else scores[-1]["score"] if scores else None,
        MEAN: _mean(judged, annotations),
    }


def _grade(row: Record) -> Grade:
    return Grade(**{**row, "types": tuple(row["types"])})


def _annotation(grade: Grade) -> object:
    """Return a grade in the published form of its aspect."""
    if grade.attempts == PUBLISHED:
        return published_form(grade)
    rating = None if grade.rating is None else f"{grade.rating:g}"
    if grade.status == Status.NOT_APPLICABLE:
        rating = NOT_RATED
    if not GRADED[grade.aspect].types:
        return {"Rating": rating, "Rationale": grade.rationale}
    return {
        "Type": list(grade.types),
        "Rationale": grade.type_rationale,
        "Rating": rating,
        "Rationale For Rating": grade.rationale,
    }


def _overall(grade: Grade) -> object:
    return published_form(grade) if grade.attempts == PUBLISHED else grade.rating


def _mean(judged: Judged, annotations: Mapping[str, Any]) -> float | None:
    """Return the fine-grained score as it was published, or the mean of the ratings."""
    given = [r["score"] for r in judged.rewards if r["reward_model"].endswith(f":{MEAN}")]
    if given:
        return given[-1]
    last = (one[-1] if isinstance(one, list) and one else one for one in annotations.values())
    ratings = [r for value in last if (r := number(dict(value).get("Rating"))) is not None]
    return sum(ratings) / len(ratings) if ratings else None


def _principle(stored: str | None) -> tuple[str | None, str]:
    """Return the name of a principle and its system prompt, empty if only a name is stored."""
    name, _, text = (stored or "").partition(": ")
    return name or None, text


def _as_given(text: str) -> tuple[str, Record]:
    """Split an import's note off a critique, if it is on UltraFeedback's scale."""
    found = GIVEN.search(text)
    if found is None or found[1] != SCALE.name:
        return text, {}
    return text[: found.start()], json.loads(found[2])


def _rating(level: int | None, given: object) -> str:
    if given is not None:
        return f"{given:g}" if isinstance(given, int | float) else str(given)
    return NOT_RATED if level is None else f"{SCALE.value(level):g}"
