"""A model's identity: a digest of the files that decide its answers, independent of their folder.

Paths, times and `generation_config.json` (except its end tokens) are not part of it, nor are files
that loaders never open: pickles next to whole safetensors, Mistral's and Meta's own copies. A
folder is refused if it cannot be loaded without its own code: with pickled weights only, or an
architecture that only modules named by `auto_map` can read. That code is never run: a model that
transformers knows is loaded by transformers' classes.
"""

import json
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from ...configs.own_function import hash_of, names_function
from ...configs.schema import EngineConfig
from ...stores.hub_cache import model_name, not_cached
from ...stores.keys import digest
from ...stores.sealed import known_sha256
from ..engines.chat import stop_token_ids
from ..engines.chat_template import template_digest
from ..engines.engine import EngineError
from ..engines.scorers import function_digest
from ..engines.weight_files import INDEX, weight_files

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
DTYPES = ("dtype", "torch_dtype")
"""The keys under which config.json names the type of the saved weights, the newer one first."""
ASIDE = frozenset({"transformers_version", "_name_or_path", "use_cache", *DTYPES})
"""Fields of config.json about writing and training of a model, not its architecture."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TRAINING_STATE = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt"})
"""Pickles of a trainer, which are not weights."""
CONVERT = (
    'python -c "from transformers import AutoModelForCausalLM as m; '
    "m.from_pretrained('{folder}', dtype='auto').save_pretrained('{folder}')\""
)
"""A command that writes safetensors next to pickles; it loads the pickles as numbers only."""
TABLES = ("auto_mappings.py", "configuration_auto.py")
"""The files in which transformers lists known model types, as ("llama", "LlamaConfig")."""
INSTEAD = {"chatglm": "zai-org/glm-4-9b-chat-hf"}
"""The same family in repositories that transformers can load."""


def is_url(model: str) -> bool:
    """Whether a model is given by the URL of an endpoint."""
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
    identity = folder_digest(Path(model))
    template = template_digest(config.template)
    return identity if template is None else digest({"model": identity, "template": template})


def served_name(model: str, config: EngineConfig) -> str | None:
    """Return the name under which an endpoint serves a model; None for one that runs here.

    Raises:
        EngineError: for an endpoint that does not answer.
    """
    if config.kind != "openai" and (config.kind == "scripted" or not is_url(model)):
        return None
    from ..endpoint.endpoint import name_served

    return name_served(model, config)


def endpoint_digest(name: str) -> str:
    """Return the identity of the model that endpoints serve under a name."""
    return digest(["endpoint", name])


def scorer_digest(model: str) -> str:
    """Return the identity of a reward model: the digest of a folder, or of a user's function.

    Raises:
        EngineError: for a folder that holds no model; for a file that does not exist.
    """
    if not names_function(model):
        return model_digest(model, EngineConfig())
    sha256 = hash_of(model)
    if sha256 is None:
        raise EngineError(f"reward.model: {model}: no such file, or the module is not installed")
    return function_digest(model.rpartition(":")[2], sha256)


def folder_digest(folder: Path) -> str:
    """Return the digest of a model folder: weights, configuration, tokenizer, template, end tokens.

    Raises:
        EngineError: when the folder does not hold a model, or is not safe to load.
    """
    weights = check_folder(folder)
    others = [folder / "config.json", *(folder / name for name in TOKENIZER_FILES)]
    others.append(folder / INDEX)
    files = sorted({path for path in (*weights, *others) if path.is_file()})
    rows = [[path.name, known_sha256(path)] for path in files]
    return digest({"files": rows, "stops": list(stop_token_ids(folder))})


def same_form(one: Path, other: Path) -> bool:
    """Whether two models differ only in weights and their type, not in architecture or tokenizer.

    Raises:
        EngineError: if a config.json is not a JSON object.
    """
    alike = _architecture(one) == _architecture(other)
    return alike and stop_token_ids(one) == stop_token_ids(other) and _tokens(one) == _tokens(other)


def _architecture(folder: Path) -> dict[str, Any]:
    """Return the fields of a config.json that decide a model's computation."""
    config = read_config(folder)
    return {name: value for name, value in config.items() if name not in ASIDE}


def saved_type(folder: Path) -> str:
    """Return the type of a model's saved weights in its config.json; "" if it is missing.

    Raises:
        EngineError: if it is not a JSON object.
    """
    config = read_config(folder)
    return str(next((config[name] for name in DTYPES if name in config), ""))


def _tokens(folder: Path) -> list[bytes | None]:
    """Return the files of a model's tokenizer and template."""
    paths = (folder / name for name in TOKENIZER_FILES)
    return [path.read_bytes() if path.is_file() else None for path in paths]


def check_folder(folder: Path) -> list[Path]:
    """Return the weight files of a folder, after a check that it is complete and without code.

    Raises:
        EngineError: naming the missing or refused file.
    """
    if not folder.is_dir():
        named = model_name(str(folder))
        if named is not None:
            raise EngineError(not_cached(named))
        raise EngineError(
            f"{folder}: no such model folder; give one (`hf download NAME --local-dir DIR` makes "
            "one) or the URL of an endpoint"
        )
    config = folder / "config.json"
    if not config.is_file():
        raise EngineError(f"{folder}: not a model: {_what_else(folder)}")
    _refuse_foreign(folder, read_config(folder))
    weights = weight_files(folder)
    if not weights:
        raise EngineError(f"{folder}: {_why_without(folder)}")
    return weights


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of a model's config.json.

    Raises:
        EngineError: if it is not a JSON object.
    """
    path = folder / "config.json"
    try:
        config: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise EngineError(f"{path}: not a JSON object")
    return cast("dict[str, Any]", config)


def refuse_quantised(folder: Path) -> None:
    """Refuse a model to train from whose weights are quantised.

    Raises:
        EngineError: naming the method.
    """
    quantization = read_config(folder).get("quantization_config")
    if isinstance(quantization, dict):
        method = cast("dict[str, Any]", quantization).get("quant_method", "quantization_config")
        raise EngineError(
            f"{folder}: its weights are quantised ({method}): it can be sampled, but not trained; "
            "name the folder of the model before it was quantised"
        )


def _what_else(folder: Path) -> str:
    """Return a description of the files in a folder without config.json."""
    if (folder / "adapter_config.json").is_file():
        return (
            "it holds an adapter alone (adapter_config.json); merge it into its model "
            "(peft's `merge_and_unload`, then `save_pretrained`) and name the folder of that"
        )
    if any(folder.glob("*.gguf")):
        return "it holds GGUF files; name a folder with config.json, tokenizer and safetensors"
    return "config.json is missing"


def _why_without(folder: Path) -> str:
    """Return the reason why a folder lacks loadable weights, and the remedy."""
    pickles = sorted(
        p.name for glob in PICKLES for p in folder.glob(glob) if p.name not in TRAINING_STATE
    )
    if not pickles:
        return "not a model: *.safetensors is missing"
    return (
        f"pickled weights ({pickles[0]}) are refused; convert to safetensors: "
        f"{CONVERT.format(folder=folder)}"
    )


def _refuse_foreign(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a model that only its own repository's code can load."""
    if "auto_map" not in config or _is_known(str(config.get("model_type"))):
        return
    kind = config.get("model_type") or "an architecture that config.json does not name"
    instead = INSTEAD.get(str(kind), "a repository whose model_type transformers has a class for")
    raise EngineError(
        f"{folder}: transformers {version('transformers')} lacks a class for {kind}, and lpfloop "
        f"does not run the code that config.json names (auto_map); use {instead}"
    )


@lru_cache
def _is_known(model_type: str) -> bool:
    """Whether transformers has a class for a kind of model, without importing it.

    True if it is not installed: the loader of the model then reports that.
    """
    found = find_spec("transformers")
    if found is None or found.origin is None:
        return True
    tables = Path(found.origin).parent / "models" / "auto"
    entry = f'("{model_type}", "'
    return any(
        entry in (tables / name).read_text("utf-8") for name in TABLES if (tables / name).is_file()
    )


def check_context(folder: Path, config: EngineConfig) -> None:
    """Refuse a configured context that is longer than the model's own.

    Raises:
        EngineError: naming the setting and the most that it may be.
    """
    check_folder(folder)
    model = read_config(folder)
    own = model.get("max_position_embeddings")
    # With scaled positions a model reads further than configured; its loader knows how far.
    scaled = any(_is_scaled(model.get(name)) for name in ("rope_scaling", "rope_parameters"))
    if isinstance(own, int) and not scaled and (config.context or 0) > own:
        raise EngineError(
            f"engine.max_model_len={config.max_model_len}: {folder} reads {own} tokens at most "
            "(max_position_embeddings in its config.json); lower the setting, or leave it out"
        )


def _is_scaled(positions: object) -> bool:
    if not isinstance(positions, dict):
        return False
    scaling = cast("dict[str, Any]", positions)
    return scaling.get("rope_type", scaling.get("type", "default")) != "default"
