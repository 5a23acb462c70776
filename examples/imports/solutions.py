"""Solutions of problems that are labelled right or wrong: GSM8K's, and Qwen2.5-Math's samples.

`lpfloop import model_solutions.jsonl --as examples/imports/solutions.py:rows --run solutions`
"""

from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a problem with all its solutions, each with its label."""
    if "code" in row:
        given: list[Any] = row.get("pred_score") or []
        scores: list[Any] = [one[0] if isinstance(one, list) else one for one in given]
        return [
            {
                "question": row["question"],
                "answer": row["gt"],
                "family": row.get("level") or row.get("subject"),
                "model": row.get("model"),
                "responses": row["code"],
                "labels": row["score"],
                **({"scores": scores} if scores else {}),
            }
        ]
    systems = {name: row[name] for name in row if isinstance(row[name], dict)}
    return [
        {
            "question": row["question"],
            "answer": row["ground_truth"],
            "candidates": [
                {"response": one["solution"], "is_correct": one["is_correct"], "model": name}
                for name, one in systems.items()
            ],
        }
    ]
