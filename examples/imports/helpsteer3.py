"""HelpSteer3's rows: a conversation, two responses, and which is better, from -3 to 3.

`lpfloop import preference.jsonl --as examples/imports/helpsteer3.py:rows --run helpsteer3`
"""

from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a comparison in AlpacaFarm's layout; a number below 0 is for the first response."""
    given = float(row["overall_preference"])
    return [
        {
            "context": row["context"],
            "output_1": row["response1"],
            "output_2": row["response2"],
            "preference": 0 if given == 0 else 1 if given < 0 else 2,
            "annotator": "label:overall_preference",
            "category": row.get("domain"),
        }
    ]
