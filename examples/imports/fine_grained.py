"""Fine-Grained RLHF's feedback: four predictions, people's votes, and the errors that they marked.

`lpfloop import dev_feedback.jsonl --as examples/imports/fine_grained.py:rows --run fine-grained`
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

ASPECTS = {
    "relevance": ("Irrelevant", "Redundant", "Incoherent"),
    "factuality": ("Wrong-Grounding", "Unverifiable"),
    "completeness": ("Missing-Answer", "Missing-Major-Auxiliary", "Missing-Minor-Auxiliary"),
}
"""The types of errors by aspect; the paper trains a reward model for each aspect."""


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answers, the critique of the first, its correction, and a vote on each two."""
    passages = ["\n".join([title, " ".join(said)]) for title, *said in row["passages"]]
    asked = {
        "instruction": "\n\n".join([row["question"], *passages]),
        "reference": row.get("gold"),
    }
    texts = {f"prediction {n}": row[f"prediction {n}"] for n in range(1, 5)}
    feedback = row["feedback"]
    marked: dict[str, list[str]] = {}
    for error in (*feedback.get("errors", ()), *feedback.get("missing-info", ())):
        aspect = next(name for name, kinds in ASPECTS.items() if error["error type"] in kinds)
        marked.setdefault(aspect, []).append(_told(error, texts["prediction 1"]))
    made = [{**asked, "response": text, "model": name} for name, text in texts.items()]
    made[0] |= {
        "annotator": "feedback",
        "ratings": {aspect: -1 if aspect in marked else 1 for aspect in ASPECTS},
        "comments": {aspect: "\n".join(said) for aspect, said in marked.items()},
    }
    corrected = feedback.get("corrected-prediction") or ""
    if corrected.strip():
        made.append({**asked, "response": corrected, "model": "corrected-prediction"})
    votes = zip(combinations(texts, 2), row.get("preference") or (), strict=False)
    return made + [
        {
            **asked,
            "output_1": texts[first],
            "output_2": texts[second],
            "generator_1": first,
            "generator_2": second,
            "preference": vote,
            "annotator": "human:preference",
        }
        for (first, second), vote in votes
    ]


def _told(error: Mapping[str, Any], text: str) -> str:
    """Return the marked words, or the missing sentence of a passage."""
    kind, start, end = error["error type"], error.get("start"), error.get("end")
    if start is None or end is None:
        return f"{kind}: passage {error.get('passage_id')}, sentence {error.get('sentence_id')}"
    why = error.get("explanation")
    return f"{kind}: {text[start:end].strip()}" + (f" ({why})" if why else "")
