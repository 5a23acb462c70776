"""LLMBar's pairs: two outputs, and a label for the better one.

`lpfloop import dataset.json --as examples/imports/llmbar.py:rows --run llmbar`
"""

from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a comparison in AlpacaFarm's layout, with the data set's label as the vote."""
    return [
        {
            "instruction": row["input"],
            "output_1": row["output_1"],
            "output_2": row["output_2"],
            "preference": row["label"],
            "annotator": "label:label",
        }
    ]
