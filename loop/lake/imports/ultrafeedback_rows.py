"""Reading UltraFeedback's published rows: annotated completions, and the binarised form.

Each annotation becomes a grade as it was given, and part of a critique on three levels. A
completion's principle is stored with its system prompt. Reference answers are external candidates
of the models `correct_answers` and `incorrect_answers`; a single correct one is the prompt's
reference, too, and several are stored with it, as the incorrect ones are.

A published overall score of 10 may have been a 1: scores of at most 1 were taken for fractions and
multiplied by ten (OpenBMB/UltraFeedback, issue 8). The data set's own repair uses the mean of the
completion's four aspects: up to 2, the score is a 1; up to 4, it is undecidable, so the score is
`doubtful` and None; above, it is a 10. Without any aspect it is `doubtful`, too.

A sound score stays a 10 even if it would be `doubtful`. Scores are sound if the data set's own
repair, which asked again about such scores and left a `fine-grained_score`, covered them; and if
the same row has a score of 1, as every 1 of an affected row had become a 10.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from ....critics.grading.grade_reply import FINE_GRAINED, LOWEST, NOT_APPLICABLE, SCALES
from ....critics.status import Status
from ....stores.keys import row_id
from ....stores.records import (
    SCORED,
    Candidate,
    FilterCount,
    Grade,
    GradedAspect,
    Pair,
    Prompt,
    storable,
)
from ....stores.schemas import Row as StoredRow
from ...data.file_row import list_of, optional_text
from ...data.files import Row
from ...data.filter_counts import KEPT, filter_counts
from ...data.principles import Principle
from ...data.prompt_rows import CORRECT, INCORRECT, LISTED, NO_ANSWER, TEXT_FIELDS, listed_answers
from ...data.rating_scale import number, plain_number
from ...data.row_fields import (
    fields_of,
    object_of,
    remark_of,
    score_of,
    text_or_empty,
)
from .imported_rows import ImportedVerdict, Known, Maker
from .pair_forms import pairs, scores_of

MEAN = "fine-grained_score"
OVERALL = "overall_score"

PUBLISHED = 0
"""The attempts of an imported grade; its `text` is the published annotation, as JSON."""
DOUBTFUL, REPAIRED = "doubtful", "repaired"
SUSPECT = 10
WAS_ONE, UNSURE = 2, 4
"""The highest mean of the aspects at which a 10 was a 1, and at which it may have been."""
FILTER = "overall-score"

Rows = Iterator[StoredRow]


def ultrafeedback(row: Row, make: Maker) -> Rows:
    """Read an instruction with annotated completions, or a row of the binarised form."""
    if "chosen" in row:
        yield from _binarised_rows(row, make)
        return
    prompt = prompt_of(row, make)
    yield prompt
    items = [
        object_of(entry, f"completions[{place}]")
        for place, entry in enumerate(list_of(row, "completions"), start=1)
    ]
    sound = _shows_ones(item.get(OVERALL) for item in items)
    for place, item in enumerate(items, start=1):
        yield from _completion(prompt, item, place, make, sound=sound or MEAN in item)
    for name in LISTED:
        answers = [answer for answer in list_of(row, name) if answer != NO_ANSWER]
        if name == CORRECT and answers == [prompt.reference]:
            continue
        for answer in answers:
            yield make.candidate(prompt, text_or_empty(answer, name), name)


def prompt_of(row: Row, make: Maker) -> Prompt:
    """Return the prompt; the same instruction of two sources is two prompts."""
    field = "messages" if row.get("messages") else "instruction"
    question = row.without(name for name in TEXT_FIELDS if name != field)
    right = [answer for answer in list_of(row, CORRECT) if answer != NO_ANSWER]
    if "reference" not in question:
        question = question.having({"reference": right[0] if len(right) == 1 else None})
    prompt = replace(
        make.prompt(question),
        correct_answers=tuple(map(str, right)) if len(right) > 1 else None,
        incorrect_answers=listed_answers(row, INCORRECT),
    )
    source = optional_text(row, "source")
    if source is None:
        return prompt
    if row.get("prompt_id") is not None:
        return replace(prompt, source=source)
    return replace(prompt, source=source, prompt_id=row_id("prompt", [source, prompt.prompt_id]))


def _completion(prompt: Prompt, item: Row, place: int, make: Maker, *, sound: bool) -> Rows:
    """Read a completion: its text, how it was made, its annotations and its scores."""
    text = text_or_empty(item.get("response"), f"completions[{place}].response")
    candidate = make.candidate(prompt, text, optional_text(item, "model"), _principle(item))
    yield candidate
    annotations = fields_of(item, "annotations")
    verdicts = [_verdict(name, value) for name, value in annotations.items()]
    critique = remark_of(item, "critique") or ""
    if verdicts or critique:
        yield make.critique(candidate, make.source, verdicts, critique)
    grades = [
        _aspect_grade(candidate, make.source, aspect, annotations[aspect])
        for aspect in FINE_GRAINED
        if aspect in annotations
    ]
    yield from grades
    ratings = [grade.rating for grade in grades if grade.rating is not None]
    mean = sum(ratings) / len(ratings) if ratings else None
    score = item.get(OVERALL)
    if score is not None:
        known = number(item.get(MEAN)) if mean is None else mean
        overall = _overall_grade(candidate, make.source, score, critique, mean=known, sound=sound)
        yield overall
        yield from make.reward(candidate, OVERALL, overall.rating)
    yield from make.reward(candidate, MEAN, score_of(item, MEAN))


def _binarised_rows(row: Row, make: Maker) -> Rows:
    """Read a chosen and a rejected completion whose scores are overall scores."""
    index = row.get("source_index")
    named = isinstance(index, int) and row.get("prompt_id") is None
    made = list(pairs(row.having({"prompt_id": index}) if named else row, make))
    yield from made
    candidates = {one.candidate_id: one for one in made if isinstance(one, Candidate)}
    scores = scores_of(row)
    sound = _shows_ones(scores)
    for pair in (one for one in made if isinstance(one, Pair)):
        sides = candidates[pair.chosen_id], candidates[pair.rejected_id]
        for candidate, score in zip(sides, scores, strict=True):
            if score is not None:
                yield _overall_grade(candidate, make.source, score, "", mean=None, sound=sound)


def _principle(item: Row) -> str | None:
    """Return the principle of a completion, with its system prompt if it has one."""
    aspect, text = remark_of(item, "principle"), remark_of(item, "custom_system_prompt")
    return str(Principle(aspect=aspect or "", text=text)) if text else aspect


def _verdict(name: str, value: object) -> ImportedVerdict:
    """Return one aspect's annotation."""
    last = _last_of(name, value)
    reasons = [remark_of(last, "Rationale For Rating"), remark_of(last, "Rationale")]
    comment = "\n\n".join(reason for reason in reasons if reason)
    return ImportedVerdict(name=name, given=last.get("Rating"), comment=comment)


def _overall_grade(
    candidate: Known,
    annotator: str,
    given: object,
    critique: str,
    *,
    mean: float | None,
    sound: bool,
) -> Grade:
    """Return the grade of an overall score, repaired if a 10 was a 1.

    `mean` is the mean of the candidate's aspects; the scores of its row are `sound` if none of
    them was multiplied.
    """
    grade = _grade(candidate, annotator, "overall", given, given, critique)
    if grade.rating != SUSPECT:
        return grade
    if mean is not None and mean <= WAS_ONE:
        return replace(grade, rating=float(LOWEST))
    if sound or (mean is not None and mean > UNSURE):
        return grade
    return replace(grade, rating=None, status=DOUBTFUL)


def _shows_ones(scores: Iterable[object]) -> bool:
    """Whether one of the overall scores of a row is a 1: then its 10s were never 1s."""
    return any(number(score) == LOWEST for score in scores)


def overall_counts(rows: Iterable[StoredRow]) -> list[FilterCount]:
    """Return filter counts of the overall scores' repair; none without such scores."""
    fates = dict[str, list[str]]()
    for row in rows:
        if isinstance(row, Grade) and row.aspect == "overall":
            fates.setdefault(_fate(row), []).append(row.candidate_id)
    return filter_counts(0, FILTER, "candidates", fates) if fates else []


def _last_of(name: str, given: object) -> Row:
    """Return an annotation of an aspect, the last of a list; a row without fields for none."""
    if isinstance(given, list):
        given = next(reversed(cast("list[object]", given)), None)
    return Row() if given is None else object_of(given, f"annotations.{name}")


def published_form(grade: Grade) -> object:
    """Return a grade in its published form, an overall score after the repair."""
    given = json.loads(grade.text)
    if grade.status == DOUBTFUL:
        return None
    if grade.aspect == "overall" and _fate(grade) == REPAIRED:
        return type(given)(LOWEST)
    return given


def _fate(grade: Grade) -> str:
    if grade.status != SCORED:
        return grade.status
    return KEPT if grade.rating == number(json.loads(grade.text)) else REPAIRED


def _aspect_grade(candidate: Known, annotator: str, aspect: GradedAspect, given: object) -> Grade:
    """Read an annotation of one aspect."""
    last = _last_of(aspect, given)
    reason, other = remark_of(last, "Rationale For Rating"), remark_of(last, "Rationale") or ""
    types = last.get("Type")
    grade = _grade(candidate, annotator, aspect, given, last.get("Rating"), reason or other)
    return replace(
        grade,
        types=tuple(map(str, cast("list[object]", types))) if isinstance(types, list) else (),
        type_rationale="" if reason is None else other,
    )


def _read(aspect: GradedAspect, given: object) -> tuple[float | None, str]:
    """Return a rating and `scored`, or None and the reason."""
    if isinstance(given, str) and given.strip().lower() in NOT_APPLICABLE:
        return None, Status.NOT_APPLICABLE
    value = number(given)
    if value is None:
        return None, Status.MISSING if given in (None, "") else Status.MALFORMED
    if not LOWEST <= value <= SCALES[aspect].best:
        return None, Status.OUT_OF_RANGE
    return value, SCORED


def _grade(
    candidate: Known,
    annotator: str,
    aspect: GradedAspect,
    given: object,
    rating: object,
    rationale: str,
) -> Grade:
    """Return the grade of a published annotation, with its rating if it can be parsed."""
    value, status = _read(aspect, rating)
    text = storable(json.dumps(given, ensure_ascii=False, default=plain_number))
    inputs = [candidate.candidate_id, annotator, aspect, text, rationale]
    return Grade(
        grade_id=row_id("grade", inputs),
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=candidate.iteration,
        annotator=annotator,
        aspect=aspect,
        rating=value,
        rationale=rationale,
        types=(),
        type_rationale="",
        reference_used=False,
        order=0,
        status=status,
        attempts=PUBLISHED,
        text=text,
    )
