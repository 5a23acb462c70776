"""PandaLM's rows: two responses, the votes of three people, and verdicts of judges.

`lpfloop import pandalm.jsonl --as examples/imports/pandalm.py:rows --run pandalm`
"""

from collections.abc import Mapping
from typing import Any


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each vote, in AlpacaFarm's layout; 0 is a tie."""
    first, _, second = str(row.get("cmp_key") or "").partition("_")
    asked = {
        **{name: row.get(name) for name in ("instruction", "input")},
        "output_1": row["response1"],
        "output_2": row["response2"],
        "generator_1": first or None,
        "generator_2": second or None,
        "category": row.get("motivation_app"),
    }
    people = {f"human:{name}": row[name] for name in row if name.startswith("annotator")}
    judges = {name.removesuffix("_result"): row[name] for name in row if name.endswith("_result")}
    return [
        {
            **asked,
            "annotator": annotator,
            "preference": 0 if str(given).lower() == "tie" else given,
            "raw_completion": row.get(f"{annotator}_reason"),
        }
        for annotator, given in (people | judges).items()
    ]
