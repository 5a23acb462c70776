"""TruthfulQA's questions with their correct and incorrect answers, as its CSV or the hub has them.

`lpfloop import TruthfulQA.csv --as examples/imports/truthfulqa.py:rows --run truthfulqa`
"""

from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each answer with its label, and a vote for the best answer; it is the reference."""
    given = {name.lower().replace(" ", "_"): value for name, value in row.items()}
    best, worst = given["best_answer"], given.get("best_incorrect_answer") or ""
    right, wrong = (_listed(given[f"{kind}_answers"]) for kind in ("correct", "incorrect"))
    asked = {
        "instruction": given["question"],
        "reference": best,
        "category": given.get("category"),
        "correct_answers": right,
        "incorrect_answers": wrong,
    }
    sides = (
        ("correct_answers", [*right, best], True),
        ("incorrect_answers", [*wrong, worst], False),
    )
    made = [
        {**asked, "response": text, "model": model, "correct": truth}
        for model, texts, truth in sides
        for text in dict.fromkeys(text.strip() for text in texts)
        if text
    ]
    vote = {
        "output_1": best.strip(),
        "output_2": worst.strip(),
        "generator_1": "correct_answers",
        "generator_2": "incorrect_answers",
        "preference": 1,
        "annotator": "label:best_answer",
    }
    return [*made, {**asked, **vote}] if worst else made


def _listed(answers: Any) -> list[str]:
    texts = answers.split(";") if isinstance(answers, str) else answers
    return [text.strip() for text in texts if text.strip()]
