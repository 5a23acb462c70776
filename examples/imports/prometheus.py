"""Prometheus's rows: a judge's prompt that contains all parts, with several scores and feedback.

`lpfloop import vicuna_eval.jsonl --as examples/imports/prometheus.py:rows --scale 1-5 --run
prometheus`
"""

import re
from collections.abc import Mapping
from typing import Any

ASKED, ANSWERED = "The instruction to evaluate", "Response to evaluate"
REFERENCE, RUBRIC = "Reference Answer (Score 5)", "Score Rubrics"
SECTION = re.compile(
    rf"^###(Task Description|{ASKED}|{ANSWERED}|{re.escape(REFERENCE)}|{RUBRIC}|Feedback): *$",
    re.MULTILINE,
)


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answer once for each score; the rubric's criterion is the aspect."""
    _, *found = SECTION.split(row["instruction"])
    parts = {name: text.strip() for name, text in zip(found[::2], found[1::2], strict=True)}
    rubric = parts[RUBRIC]
    criterion = rubric.partition("\n")[0].strip("[] ")
    return [
        {
            "prompt": parts[ASKED],
            "reference": parts.get(REFERENCE) or None,
            "category": row.get("category"),
            "response": parts[ANSWERED],
            "model": row.get("response_source"),
            "critic": "gpt4",
            "ratings": {criterion: score},
            "comments": {criterion: feedback},
            "critique": rubric,
        }
        for score, feedback in zip(row["gpt4_score"], row["gpt4_feedback"], strict=True)
    ]
