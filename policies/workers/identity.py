"""A model's identity: a digest of the files that decide what it says, wherever they lie.

Paths, times and `generation_config.json` (except its end tokens) are not part of it. A folder is
refused if loading it could run code: pickled weights, or modules named by `auto_map`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, cast

from ...configs.own_function import hash_of, names_function
from ...configs.schema import EngineConfig
from ...stores.hub_cache import model_name, not_cached
from ...stores.keys import digest
from ..engines.chat import stop_token_ids
from ..engines.engine import EngineError
from ..engines.own_scorer import function_digest
from ..engines.thinking import check_form

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TRAINING_STATE = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt"})
"""Pickles that a trainer leaves beside the weights; loaders of models do not open them."""


def is_url(model: str) -> bool:
    """Whether a model is named by the URL of an endpoint."""
    return model.startswith(("http://", "https://"))


def model_digest(model: str, config: EngineConfig) -> str:
    """Return the identity of a model, for keys: hex for a folder, the served name for an endpoint.

    Raises:
        EngineError: for a folder without a model, or one that is not safe to load; for an endpoint
            that does not answer.
    """
    if config.kind == "scripted":
        return digest(["scripted", config.script])
    name = served_name(model, config)
    if name is not None:
        return endpoint_digest(name)
    check_context(Path(model), config)
    check_form(Path(model), config)
    return folder_digest(Path(model))


def served_name(model: str, config: EngineConfig) -> str | None:
    """Return the name under which an endpoint serves a model; None for one that runs here.

    Raises:
        EngineError: for an endpoint that does not answer.
    """
    if config.kind != "openai" and (config.kind == "scripted" or not is_url(model)):
        return None
    from ..endpoint.endpoint import addresses, api_key, probe

    return config.model_name or probe(addresses(model, config)[0], api_key(config))


def endpoint_digest(name: str) -> str:
    """Return the identity of the model that endpoints serve under a name."""
    return digest(["endpoint", name])


def scorer_digest(model: str) -> str:
    """Return the identity of a reward model: a folder's, or that of the user's own function.

    Raises:
        EngineError: for a folder that holds no model; for a file that is not there.
    """
    if not names_function(model):
        return model_digest(model, EngineConfig())
    sha256 = hash_of(model)
    if sha256 is None:
        raise EngineError(
            f"reward.model: {model}: there is no such file, or no such module is installed"
        )
    return function_digest(model.rpartition(":")[2], sha256)


def folder_digest(folder: Path) -> str:
    """Return the digest of a model folder: weights, configuration, tokenizer, template, end tokens.

    Raises:
        EngineError: when the folder does not hold a model, or is not safe to load.
    """
    weights = check_folder(folder)
    others = [folder / "config.json", *(folder / name for name in TOKENIZER_FILES)]
    others += sorted(folder.glob("*.safetensors.index.json"))
    files = sorted({path for path in (*weights, *others) if path.is_file()})
    rows = [[path.name, _sha256(path)] for path in files]
    return digest({"files": rows, "stops": list(stop_token_ids(folder))})


def check_folder(folder: Path) -> list[Path]:
    """Return the weight files of a folder, once it is known to be complete and free of code.

    Raises:
        EngineError: naming what is missing or refused.
    """
    if not folder.is_dir():
        named = model_name(str(folder))
        if named is not None:
            raise EngineError(f"{not_cached(named)}; a folder of that name is not here either")
        raise EngineError(
            f"{folder}: no such model folder; give one (`hf download NAME --local-dir DIR` makes "
            "one) or the URL of an endpoint"
        )
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise EngineError(f"{folder}: not a model: config.json is missing")
    try:
        config: Any = json.loads(config_path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{config_path}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise EngineError(f"{config_path}: not a JSON object")
    if "auto_map" in cast("dict[str, Any]", config):
        raise EngineError(f"{folder}: config.json names code to run (auto_map), which is refused")
    pickles = sorted(
        p.name for glob in PICKLES for p in folder.glob(glob) if p.name not in TRAINING_STATE
    )
    if pickles:
        raise EngineError(
            f"{folder}: pickled weights ({pickles[0]}) are refused; convert to safetensors"
        )
    weights = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not weights:
        raise EngineError(f"{folder}: not a model: *.safetensors is missing")
    _check_index(folder)
    return weights


def check_context(folder: Path, config: EngineConfig) -> None:
    """Refuse a configured context that is longer than the model's own.

    Raises:
        EngineError: naming the setting and the most that it may be.
    """
    check_folder(folder)
    model: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    own = model.get("max_position_embeddings")
    # With scaled positions a model reads further than it says; its loader knows how far.
    scaled = any(_is_scaled(model.get(name)) for name in ("rope_scaling", "rope_parameters"))
    if isinstance(own, int) and not scaled and (config.context or 0) > own:
        raise EngineError(
            f"engine.max_model_len={config.max_model_len}: {folder} reads {own} tokens at most "
            "(max_position_embeddings in its config.json); lower the setting, or leave it out"
        )


def _is_scaled(positions: object) -> bool:
    if not isinstance(positions, dict):
        return False
    told = cast("dict[str, Any]", positions)
    return told.get("rope_type", told.get("type", "default")) != "default"


def _check_index(folder: Path) -> None:
    """Refuse a sharded model with a missing shard."""
    for index in folder.glob("*.safetensors.index.json"):
        try:
            named = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise EngineError(f"{index}: not an index of weights ({error})") from error
        missing = sorted(name for name in named if not (folder / str(name)).is_file())
        if missing:
            raise EngineError(f"{folder}: an incomplete model: {missing[0]} is missing")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
