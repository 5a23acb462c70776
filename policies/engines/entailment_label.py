"""Which output of a classifier says that one text follows from another: its label `entailment`."""

import json
from pathlib import Path
from typing import Any

from .engine import EngineError

ENTAILMENT = "entailment"


def entailment_label(folder: Path) -> int:
    """Return the number of a classifier's label `entailment`, found in its configuration.

    Raises:
        EngineError: if the folder has no readable configuration, or this no such label.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        labels = {int(n): str(name) for n, name in dict(config.get("id2label") or {}).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise EngineError(f"{folder / 'config.json'}: no model's configuration: {error}") from error
    found = [number for number, name in labels.items() if name.casefold() == ENTAILMENT]
    if len(found) != 1 or len(labels) < 2:  # noqa: PLR2004 -- one label compares nothing
        names = ", ".join(labels.values()) or "none"
        raise EngineError(
            f"{folder}: a model of natural language inference has a label '{ENTAILMENT}' in the "
            f"id2label of its config.json; the labels there are {names}"
        )
    return found[0]
