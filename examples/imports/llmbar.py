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


def verdicts(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the label, and a judge's verdicts in both orders, without texts.

    `lpfloop judge-check winners.csv --as examples/imports/llmbar.py:verdicts`
    """
    pair = {
        "instruction": f"{row['subset']}/{row['idx']}",
        "output_1": "output 1",
        "output_2": "output 2",
    }
    judge = f"{row['llm']} {row['strategy']}"
    return [
        {**pair, "preference": row["label"], "annotator": "label:label"},
        {**pair, "preference": row["winner_order1"], "annotator": judge, "order": "as_given"},
        {**pair, "preference": row["winner_order2"], "annotator": judge, "order": "swapped"},
    ]
