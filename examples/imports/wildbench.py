"""WildBench: a file of tasks, then files of answers with a critique and a score from 1 to 10.

`lpfloop import tasks.jsonl scores.jsonl --as examples/imports/wildbench.py:rows --scale 1-10 --run
wildbench`
"""

from collections.abc import Mapping
from typing import Any

TASKS: dict[str, dict[str, Any]] = {}
"""The prompts of earlier files, by session."""


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompt of a task, or an answer with its critique."""
    session = row["session_id"]
    if "conversation_input" in row:
        turns = [
            {"role": turn["role"], "content": turn["content"]} for turn in row["conversation_input"]
        ]
        TASKS[session] = {"messages": turns, "family": row.get("primary_tag")}
        return [TASKS[session]]
    if session not in TASKS:
        raise ValueError(f"no earlier file holds the task of session {session}")
    feedback = dict(row.get("feedback") or {})
    score = row.get("score", feedback.pop("score", None))
    return [
        {
            **TASKS[session],
            "response": row["model_output"],
            "model": row.get("generator") or row.get("model"),
            "critic": row.get("judge"),
            "ratings": {"score": score},
            "critique": "\n\n".join(f"{name}: {said}" for name, said in feedback.items()),
        }
    ]
