"""Reading UltraFeedback's published rows: annotated completions, and the binarised form.

Each annotation becomes a grade as it was given, and part of a critique on three levels. A
completion's principle is stored with its system prompt. Reference answers are external candidates
of the models `correct_answers` and `incorrect_answers`; a single correct one is the prompt's
reference, too, and several are stored with it, as the incorrect ones are.
"""

from collections.abc import Iterator
from dataclasses import replace

from ....stores.keys import row_id
from ....stores.records import Candidate, Pair, Prompt, Reward
from ....stores.schemas import Row as StoredRow
from ...data.files import Row
from ...data.principles import Principle
from ...data.prompt_rows import CORRECT, INCORRECT, LISTED, NO_ANSWER, listed_answers
from ...data.rating_scale import number
from ...data.row_fields import (
    fields_of,
    list_of,
    object_of,
    only,
    remark_of,
    score_of,
    text_or_empty,
)
from ...data.row_texts import optional_text
from .imported_grades import (
    aspect_grades,
    last_of,
    mean_rating,
    overall_grade,
    shows_ones,
)
from .imported_rows import ImportedVerdict, Maker
from .pair_forms import pairs, scores_of

MEAN = "fine-grained_score"
OVERALL = "overall_score"

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
    sound = shows_ones(item.get(OVERALL) for item in items)
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
    question = only(row, "messages" if row.get("messages") else "instruction")
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
    grades = list(aspect_grades(candidate, make.source, annotations))
    yield from grades
    mean = mean_rating(grades)
    score = item.get(OVERALL)
    if score is not None:
        known = number(item.get(MEAN)) if mean is None else mean
        overall = overall_grade(candidate, make.source, score, critique, mean=known, sound=sound)
        yield overall
        yield from _reward(candidate, OVERALL, overall.rating, make)
    yield from _reward(candidate, MEAN, score_of(item, MEAN), make)


def _binarised_rows(row: Row, make: Maker) -> Rows:
    """Read a chosen and a rejected completion whose scores are overall scores."""
    index = row.get("source_index")
    named = isinstance(index, int) and row.get("prompt_id") is None
    made = list(pairs(row.having({"prompt_id": index}) if named else row, make))
    yield from made
    candidates = {one.candidate_id: one for one in made if isinstance(one, Candidate)}
    scores = scores_of(row)
    sound = shows_ones(scores)
    for pair in (one for one in made if isinstance(one, Pair)):
        sides = candidates[pair.chosen_id], candidates[pair.rejected_id]
        for candidate, score in zip(sides, scores, strict=True):
            if score is not None:
                yield overall_grade(candidate, make.source, score, "", mean=None, sound=sound)


def _principle(item: Row) -> str | None:
    """Return the principle of a completion, with its system prompt if it has one."""
    aspect, text = remark_of(item, "principle"), remark_of(item, "custom_system_prompt")
    return str(Principle(aspect=aspect or "", text=text)) if text else aspect


def _reward(candidate: Candidate, name: str, score: float | None, make: Maker) -> list[Reward]:
    return make.reward(candidate, f"{make.source}:{name}", score)


def _verdict(name: str, value: object) -> ImportedVerdict:
    """Return one aspect's annotation."""
    last = last_of(value)
    last_object = Row() if last is None else object_of(last, f"annotations.{name}")
    reasons = [remark_of(last_object, "Rationale For Rating"), remark_of(last_object, "Rationale")]
    comment = "\n\n".join(reason for reason in reasons if reason)
    return ImportedVerdict(name=name, given=last_object.get("Rating"), comment=comment)
