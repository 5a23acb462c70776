"""MT-bench: questions of several turns, models' answers to them, and votes of people and judges.

`lpfloop import question.jsonl model_answer/*.jsonl votes.jsonl --as
examples/imports/mt_bench.py:rows --run mt-bench`: the votes contain no texts, so name the files
with texts first. Each model continues from its own earlier answers, so a prompt is the list of the
user's messages up to a turn.
"""

from collections.abc import Mapping
from typing import Any

QUESTIONS: dict[Any, Mapping[str, Any]] = {}
ANSWERS: dict[tuple[Any, str, int], str] = {}
"""Answers from earlier files, by question, model and turn."""
VOTES = {"model_a": 1, "model_b": 2}


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompts of a question, the answers of a model, or a vote."""
    question = row["question_id"]
    if "turns" in row:
        QUESTIONS[question] = row
        return [_asked(question, turn) for turn in range(1, len(row["turns"]) + 1)]
    if "choices" in row:
        texts = row["choices"][0]["turns"]
        for turn, text in enumerate(texts, start=1):
            ANSWERS[question, row["model_id"], turn] = text
        return [
            {**_asked(question, turn), "response": text, "model": row["model_id"]}
            for turn, text in enumerate(texts, start=1)
        ]
    judge, turn = row["judge"], row["turn"]
    person = judge.startswith(("author_", "expert_"))
    asked = _asked(question, turn)
    return [
        {
            **asked,
            "context": asked.pop("messages"),
            "output_1": ANSWERS[question, row["model_a"], turn],
            "output_2": ANSWERS[question, row["model_b"], turn],
            "generator_1": row["model_a"],
            "generator_2": row["model_b"],
            "preference": VOTES.get(row["winner"], 0),
            "annotator": f"human:{judge}" if person else judge,
        }
    ]


def votes(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a vote without texts, for `lpfloop judge-check`: the models' names stand for them.

    `lpfloop judge-check question.jsonl votes.jsonl --as examples/imports/mt_bench.py:votes --by
    category`
    """
    question = row["question_id"]
    if "turns" in row:
        QUESTIONS[question] = row
        return []
    return [
        {
            "instruction": f"question {question}",
            "category": QUESTIONS.get(question, {}).get("category"),
            "output_1": f"{row['model_a']}, turn {row['turn']}",
            "output_2": f"{row['model_b']}, turn {row['turn']}",
            "generator_1": row["model_a"],
            "generator_2": row["model_b"],
            "preference": VOTES.get(row["winner"], 0),
            "annotator": row["judge"],
        }
    ]


def _asked(question: Any, turn: int) -> dict[str, Any]:
    """Return the user's messages up to a turn, and that turn's reference."""
    row = QUESTIONS[question]
    references: list[str] = row.get("reference") or []
    return {
        "messages": [{"role": "user", "content": said} for said in row["turns"][:turn]],
        "reference": (references[turn - 1] or None) if turn <= len(references) else None,
        "family": row.get("category"),
        "cluster": f"question {question}",
    }
