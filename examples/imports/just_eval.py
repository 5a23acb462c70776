"""Just-Eval's rows: an output, and a judge's scores and reasons, perhaps in its raw reply alone.

`lpfloop import judged.jsonl --as examples/imports/just_eval.py:rows --scale 1-5 --run just-eval`
"""

import json
from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answer with its ratings; an unreadable reply becomes a critique."""
    safety = row.get("safety")
    scores = row.get("scores") or ({"safety": safety} if safety else None) or _read(row)
    return [
        {
            "prompt": row["instruction"],
            "response": row["output"],
            "model": row.get("generator") or row.get("model"),
            "critic": row.get("evaluator"),
            "ratings": {name: said.get("score") for name, said in scores.items()},
            "comments": {name: said.get("reason") or "" for name, said in scores.items()},
            "critique": "" if scores else row.get("raw_judgment"),
        }
    ]


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        said = json.loads(row.get("raw_judgment") or "")
    except ValueError:
        return {}
    return said if all(isinstance(one, dict) and "score" in one for one in said.values()) else {}
