"""The grades of UltraFeedback's published rows, with the repair of its overall scores.

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

from ....critics.grading.grade_reply import NOT_APPLICABLE
from ....critics.grading.graded_aspects import FINE_GRAINED, LOWEST, SCALES
from ....critics.status import Status
from ....stores.keys import row_id
from ....stores.records import SCORED, FilterCount, Grade, GradedAspect, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row
from ...data.filter_counts import KEPT, filter_counts
from ...data.rating_scale import number, plain_number
from ...data.row_fields import object_of, remark_of
from .imported_rows import Known

PUBLISHED = 0
"""The attempts of an imported grade; its `text` is the published annotation, as JSON."""
DOUBTFUL, REPAIRED = "doubtful", "repaired"
SUSPECT = 10
WAS_ONE, UNSURE = 2, 4
"""The highest mean of the aspects at which a 10 was a 1, and at which it may have been."""
FILTER = "overall-score"


def aspect_grades(candidate: Known, annotator: str, annotations: Row) -> Iterator[Grade]:
    """Yield the grade of each of the four aspects that the annotations name."""
    for aspect in FINE_GRAINED:
        given = annotations.get(aspect)
        if given is not None:
            yield _aspect_grade(candidate, annotator, aspect, given)


def overall_grade(
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


def shows_ones(scores: Iterable[object]) -> bool:
    """Whether one of the overall scores of a row is a 1: then its 10s were never 1s."""
    return any(number(score) == LOWEST for score in scores)


def mean_rating(grades: Iterable[Grade]) -> float | None:
    """Return the mean of the ratings that could be read, or None."""
    ratings = [grade.rating for grade in grades if grade.rating is not None]
    return sum(ratings) / len(ratings) if ratings else None


def overall_counts(rows: Iterable[StoredRow]) -> list[FilterCount]:
    """Return filter counts of the overall scores' repair; none without such scores."""
    fates = dict[str, list[str]]()
    for row in rows:
        if isinstance(row, Grade) and row.aspect == "overall":
            fates.setdefault(_fate(row), []).append(row.candidate_id)
    return filter_counts(0, FILTER, "candidates", fates) if fates else []


def last_of(given: object) -> object:
    """Return an annotation, the last of a list, None for an empty list."""
    if not isinstance(given, list):
        return given
    entries = cast("list[object]", given)
    return entries[-1] if entries else None


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
    last = last_of(given)
    last_object = Row() if last is None else object_of(last, f"annotations.{aspect}")
    reason, other = (
        remark_of(last_object, "Rationale For Rating"),
        remark_of(last_object, "Rationale") or "",
    )
    types = last_object.get("Type")
    grade = _grade(candidate, annotator, aspect, given, last_object.get("Rating"), reason or other)
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
