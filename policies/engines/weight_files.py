"""The weights among the files of a model's folder: the files that every loader here reads.

A repository may hold other copies (pickles, Mistral's consolidated file). lpfloop opens none of
them, so they count neither for a model's identity nor for its size.
"""

import json
from pathlib import Path

from .engine import EngineError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a model's weights, sorted; empty if the folder has no safetensors.

    Raises:
        EngineError: if shards are missing, or there are files that engines would take for more of
            the model's weights.
    """
    if (folder / INDEX).is_file():
        return _shards(folder)
    found = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not found:
        return []
    if not (folder / SINGLE).is_file():
        raise EngineError(f"{folder}: an incomplete model: {SINGLE} or {INDEX} is missing")
    others = [path.name for path in found if path.name != SINGLE]
    if others:
        raise EngineError(
            f"{folder}: engines would load {others[0]} and {SINGLE} as one model; move {others[0]} "
            "elsewhere"
        )
    return found


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    try:
        names = sorted({str(n) for n in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EngineError(f"{index}: not an index of weights ({error})") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise EngineError(f"{folder}: an incomplete model: {missing[0]} is missing")
    return [folder / name for name in names]
