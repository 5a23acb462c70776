# pyright: basic
"""UltraFeedback's schema: an instruction, and completions with their ratings and rationales."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ...stores.records import Message, Prompt
from ..imports.scale import SCALES, number
from .grouping import Group, Judged

SCALE = SCALES["1-5"]
NOT_RATED = "N/A"
GIVEN = re.compile(r"\n\n\[as given, on ([^:\n]+): (\{.*\})\]\Z")
"""The note that an import leaves where the levels do not give the ratings back."""

Record = Mapping[str, Any]


def ultrafeedback(group: Group) -> Record:
    """Return a prompt with its candidates as UltraFeedback has it."""
    turns = [Message(role=m["role"], content=m["content"]) for m in group.prompt["messages"]]
    prompt = Prompt(**{**group.prompt, "messages": tuple(turns), "checks": ()})
    row: dict[str, Any] = {"source": prompt.source, "instruction": prompt.instruction}
    if [turn.role for turn in turns] != ["user"]:
        row["messages"] = group.prompt["messages"]
    return {
        **row,
        "models": [judged.candidate["model"] for judged in group.candidates],
        "completions": [_completion(judged) for judged in group.candidates],
        "correct_answers": [prompt.reference] if prompt.reference else ["None"],
        "incorrect_answers": ["None"],
        "prompt_id": prompt.prompt_id,
        "task": prompt.task,
    }


def _completion(judged: Judged) -> Record:
    candidate, critique = judged.candidate, judged.critique
    text, given = _as_given(critique["text"] if critique else "")
    aspects = critique["aspects"] if critique else []
    annotations = {
        aspect["name"]: {
            "Rating": _rating(aspect["rating"], given.get(aspect["name"])),
            "Rationale": aspect["comment"],
        }
        for aspect in aspects
    }
    ratings = [r for a in annotations.values() if (r := number(a["Rating"])) is not None]
    return {
        "annotations": annotations,
        "custom_system_prompt": "",
        "model": candidate["model"],
        "principle": candidate["principle"],
        "response": candidate["text"],
        "critique": text,
        "overall_score": judged.rewards[-1]["score"] if judged.rewards else None,
        "fine-grained_score": sum(ratings) / len(ratings) if ratings else None,
        "candidate_id": candidate["candidate_id"],
        "kind": candidate["kind"],
    }


def _as_given(text: str) -> tuple[str, Record]:
    """Take the note of an import off a critique, where it was on UltraFeedback's scale."""
    found = GIVEN.search(text)
    if found is None or found[1] != SCALE.name:
        return text, {}
    return text[: found.start()], json.loads(found[2])


def _rating(level: int | None, given: object) -> str:
    if given is not None:
        return f"{given:g}" if isinstance(given, int | float) else str(given)
    return NOT_RATED if level is None else f"{SCALE.value(level):g}"
