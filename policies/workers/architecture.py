"""Whether the installed transformers has classes of its own for a model, told without importing it.

A repository may name code of its own (`auto_map` in config.json), which is never run: a model that
transformers knows is loaded by transformers' classes, as if it named none. Others are refused.
"""

from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..engines.engine import EngineError

TABLES = ("auto_mappings.py", "configuration_auto.py")
"""Where transformers lists the kinds of models that it knows, as ("llama", "LlamaConfig")."""
INSTEAD = {"chatglm": "zai-org/glm-4-9b-chat-hf"}
"""The same family in repositories that transformers can load."""


def refuse_foreign(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a model that only its own repository's code can load.

    Raises:
        EngineError: naming the architecture, and what can be loaded in its place.
    """
    if "auto_map" not in config or is_known(str(config.get("model_type"))):
        return
    kind = config.get("model_type") or "an architecture that config.json does not name"
    instead = INSTEAD.get(str(kind), "a repository whose model_type transformers has a class for")
    raise EngineError(
        f"{folder}: transformers {version('transformers')} has no class for {kind}, and the code "
        f"that config.json names (auto_map) is not run; use {instead}"
    )


@lru_cache
def is_known(model_type: str) -> bool:
    """Whether transformers has a configuration class for a kind of model.

    True where it is not installed: whatever is to load the model then says so.
    """
    found = find_spec("transformers")
    if found is None or found.origin is None:
        return True
    tables = Path(found.origin).parent / "models" / "auto"
    entry = f'("{model_type}", "'
    return any(
        entry in (tables / name).read_text("utf-8") for name in TABLES if (tables / name).is_file()
    )
