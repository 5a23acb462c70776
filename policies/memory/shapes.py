"""The sizes of a model, read from its folder: no library is loaded, and no weight is read."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..engines.engine import EngineError
from ..engines.weight_files import weight_files
from ..trainers.checks import header
from ..trainers.job import TrainingError

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""

CLASS_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4},
    "gemma3_text": {
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262_208,
        "sliding_window_pattern": 6,
    },
}
"""What config.json leaves out where it is the default of its class in transformers."""

TIED = ("gemma", "gemma2", "gemma3", "gemma3_text")
"""Model types whose output layer is the embedding unless config.json says otherwise."""

NORMS: Mapping[str, int] = {"gemma2": 4, "gemma3_text": 4}
"""Norms of a layer where they are not two: one before and one after attention and MLP each."""

NORMED_HEADS = ("qwen3", "qwen3_moe", "olmo2", "olmo3", "gemma3_text")
"""Model types that normalise queries and keys."""

FLOAT_NORMS = ("gemma", "gemma2", "gemma3", "gemma3_text", "olmo2", "olmo3")
"""Model types whose norms are scaled in float32, whatever the weights' type."""

OTHER_CACHES = ("kv_lora_rank", "ssm_cfg", "mamba_d_state", "linear_num_key_heads")
"""Keys of models that keep something else than keys and values of each token."""


class UnknownShapeError(Exception):
    """A model whose sizes cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes that memory depends on; `inner` is the width of a token inside the MLP.

    `file_bytes` is the size of the weights as saved. Of the `layers`, `windowed` see the last
    `window` tokens alone. `float_norms`: norms are scaled in float32. `quantised`: the files hold
    fewer bits a weight than they have elements.
    """

    parameters: int
    file_bytes: int
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    gated: bool = True
    norms: int = 2
    normed_heads: bool = False
    float_norms: bool = False
    tied: bool = False
    context: int | None = None
    window: int = 0
    windowed: int = 0
    quantised: bool = False

    @property
    def query_width(self) -> int:
        """The width of a token's queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of a token's keys, and of its values."""
        return self.kv_heads * self.head_dim

    @property
    def embedding(self) -> int:
        """How many numbers the embedding has; the output layer has as many."""
        return self.vocabulary * self.hidden

    @property
    def matrices(self) -> int:
        """How many of the parameters are neither embedding nor output layer."""
        return max(0, self.parameters - self.embedding * (1 if self.tied else 2))

    @property
    def saved_number_bytes(self) -> float:
        """Bytes of a number as the files have it."""
        return self.file_bytes / self.parameters

    def as_classifier(self) -> "ModelShape":
        """Return the shape of a reward model made of this: one number in place of the logits.

        It is saved as it is trained, in float32.
        """
        head = 0 if self.tied else self.embedding
        parameters = self.parameters - head + self.hidden
        return replace(self, parameters=parameters, file_bytes=FLOAT32 * parameters, tied=True)

    def as_saved(self, number: int) -> "ModelShape":
        """Return the shape of the same model in files of `number` bytes a weight."""
        return replace(self, file_bytes=number * self.parameters)


def shape_of(folder: Path) -> ModelShape:
    """Return the sizes of the model in a folder.

    Raises:
        UnknownShapeError: if there is none, or its config.json does not say all.
    """
    path = folder / "config.json"
    try:
        config: Any = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UnknownShapeError(f"not known until {folder} holds the model") from error
    if not isinstance(config, dict):
        raise UnknownShapeError(f"{path} is no JSON object")
    try:
        files = weight_files(folder)
    except EngineError as error:
        raise UnknownShapeError(str(error)) from error
    if not files:
        raise UnknownShapeError(f"not known until the weights are in {folder}")
    try:
        parameters = sum(math.prod(shape) for file in files for shape in _tensors(file))
    except TrainingError as error:
        raise UnknownShapeError(str(error)) from error
    shape = configured(cast("dict[str, Any]", config))
    size = sum(file.stat().st_size for file in files)
    return replace(shape, parameters=parameters, file_bytes=size)


def _tensors(file: Path) -> list[list[int]]:
    return [entry["shape"] for name, entry in header(file).items() if name != "__metadata__"]


def configured(config: Mapping[str, Any]) -> ModelShape:
    """Return the sizes that a config.json tells, its parameters counted by the architecture.

    Llama, Qwen 2 and 3, Mistral, Gemma, GLM, OLMo and others of their build, and GPT-NeoX: a layer
    has queries, keys, values and output, and an MLP of three matrices (GPT-NeoX: two).

    Raises:
        UnknownShapeError: naming the key that is missing.
    """
    whole = cast("Mapping[str, Any]", config.get("text_config") or config)
    kind = str(whole.get("model_type", config.get("model_type", "")))
    told: dict[str, Any] = {**CLASS_DEFAULTS.get(kind, {}), **whole}
    if found := next((key for key in OTHER_CACHES if key in told), None):
        raise UnknownShapeError(f"not known for models with {found} in their config.json")
    heads, hidden = _number(told, "num_attention_heads"), _number(told, "hidden_size")
    layers = _number(told, "num_hidden_layers")
    window, windowed = _windows(told, layers)
    shape = ModelShape(
        parameters=0,
        file_bytes=0,
        layers=layers,
        hidden=hidden,
        inner=_inner(told),
        heads=heads,
        kv_heads=int(told.get("num_key_value_heads") or heads),
        head_dim=int(told.get("head_dim") or hidden // heads),
        vocabulary=_number(told, "vocab_size"),
        gated=kind != "gpt_neox",
        norms=NORMS.get(kind, 2),
        normed_heads=kind in NORMED_HEADS,
        float_norms=kind in FLOAT_NORMS,
        tied=bool(told.get("tie_word_embeddings", kind in TIED)),
        context=told.get("max_position_embeddings"),
        window=window,
        windowed=windowed,
        quantised="quantization_config" in config,
    )
    parameters = _counted(shape)
    number = FLOAT32 if "32" in str(config.get("dtype", config.get("torch_dtype"))) else BFLOAT16
    return replace(shape, parameters=parameters, file_bytes=number * parameters)


def _number(told: Mapping[str, Any], key: str) -> int:
    value = told.get(key)
    if not isinstance(value, int) or value <= 0:
        raise UnknownShapeError(f"not known: the model's config.json has no {key}")
    return value


def _inner(told: Mapping[str, Any]) -> int:
    """Return the width of a token inside the MLP: of a mixture, of the experts that it visits."""
    experts = told.get("num_experts_per_tok")
    if experts:
        return int(experts) * int(told.get("moe_intermediate_size") or told["intermediate_size"])
    return _number(told, "intermediate_size")


def _windows(told: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """Return the window in tokens, and how many layers see no further."""
    window = told.get("sliding_window")
    if not window or told.get("use_sliding_window") is False:
        return 0, 0
    if types := told.get("layer_types"):
        return int(window), sum(kind == "sliding_attention" for kind in types)
    pattern = int(told.get("sliding_window_pattern") or 0)
    if told.get("model_type") == "gemma2":
        pattern = pattern or 2
    if pattern:
        return int(window), layers - layers // pattern
    if "max_window_layers" in told:
        return int(window), max(0, layers - int(told["max_window_layers"]))
    return int(window), layers


def _counted(shape: ModelShape) -> int:
    attention = shape.hidden * (2 * shape.query_width + 2 * shape.kv_width)
    mlp = (3 if shape.gated else 2) * shape.hidden * shape.inner
    layer = attention + mlp + 2 * shape.hidden
    head = shape.embedding * (1 if shape.tied else 2)
    return shape.layers * layer + head + shape.hidden
