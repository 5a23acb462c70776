"""The sizes of a model, read from its folder without loading a library or a weight."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..engines.engine import EngineError
from ..engines.weight_files import weight_files
from ..trainers.checks import parameters
from ..trainers.job import TrainingError

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""

_GEMMA: Mapping[str, Any] = {
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {**_GEMMA, "sliding_window_pattern": 2},
    "gemma3": {"tie_word_embeddings": True},
    "gemma3_text": {**_GEMMA, "vocab_size": 262_208, "sliding_window_pattern": 6},
}
"""The defaults of transformers by model type, which config.json leaves out."""

LAYERS: Mapping[str, Mapping[str, Any]] = {
    "gemma": {"float_norms": True},
    "gemma2": {"float_norms": True, "norms": 4},
    "gemma3_text": {"float_norms": True, "norms": 4, "normed_heads": True},
    "gpt_neox": {"gated": False},
    "olmo2": {"float_norms": True, "normed_heads": True},
    "olmo3": {"float_norms": True, "normed_heads": True},
    "qwen3": {"normed_heads": True},
    "qwen3_moe": {"normed_heads": True},
}
"""By model type, the fields of `ModelShape` in which its layers differ from Llama's."""

OTHER_CACHES = ("kv_lora_rank", "ssm_cfg", "mamba_d_state", "linear_num_key_heads")
"""Keys of models with other caches than keys and values of each token."""


class UnknownShapeError(Exception):
    """A model whose sizes cannot be read; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes that memory depends on; `inner` is the width of a token inside the MLP.

    `file_bytes` is the size of the weights as saved; if `quantised`, they have fewer bits a weight
    than elements. Of the `layers`, `windowed` attend to the last `window` tokens only. A layer has
    `norms` norms, and with `normed_heads` queries and keys have norms, too; `float_norms` are
    scaled in float32. `gated`: the MLP has three matrices.
    """

    parameters: int = 0
    file_bytes: int = 0
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
        """The numbers in the embedding; the output layer has as many."""
        return self.vocabulary * self.hidden

    @property
    def matrices(self) -> int:
        """The parameters outside the embedding and the output layer."""
        return max(0, self.parameters - self.embedding * (1 if self.tied else 2))

    @property
    def saved_number_bytes(self) -> float:
        """Bytes of a number in the files."""
        return self.file_bytes / self.parameters

    def as_classifier(self) -> "ModelShape":
        """Return the shape of a reward model made of this: one number, saved in float32."""
        head = 0 if self.tied else self.embedding
        count = self.parameters - head + self.hidden
        return replace(self, parameters=count, file_bytes=FLOAT32 * count, tied=True)

    def as_saved(self, number: int) -> "ModelShape":
        """Return the shape of the same model in files of `number` bytes a weight."""
        return replace(self, file_bytes=number * self.parameters)


def shape_of(folder: Path) -> ModelShape:
    """Return the sizes of the model in a folder.

    Raises:
        UnknownShapeError: if the folder lacks a model, or its config.json is incomplete.
    """
    path = folder / "config.json"
    try:
        config: Any = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UnknownShapeError(f"not known until {folder} holds the model") from error
    if not isinstance(config, dict):
        raise UnknownShapeError(f"{path} is not a JSON object")
    try:
        files, count = weight_files(folder), parameters(folder)
    except (EngineError, TrainingError) as error:
        raise UnknownShapeError(str(error)) from error
    if not files:
        raise UnknownShapeError(f"not known until the weights are in {folder}")
    size = sum(file.stat().st_size for file in files)
    found = shape_of_config(cast("dict[str, Any]", config))
    return replace(found, parameters=count, file_bytes=size)


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the sizes in a config.json, with the parameters computed from the architecture.

    Llama, Qwen 2 and 3, Mistral, Gemma, GLM, OLMo and others of their build, and GPT-NeoX: a layer
    has queries, keys, values and output, and an MLP of three matrices (GPT-NeoX: two).

    Raises:
        UnknownShapeError: naming the key that is missing.
    """
    text = cast("Mapping[str, Any]", config.get("text_config") or config)
    kind = str(text.get("model_type", config.get("model_type", "")))
    values: dict[str, Any] = {**DEFAULTS.get(kind, {}), **text}
    if found := next((key for key in OTHER_CACHES if key in values), None):
        raise UnknownShapeError(f"not known for models with {found} in their config.json")

    def number(key: str) -> int:
        value = values.get(key)
        if not isinstance(value, int) or value <= 0:
            raise UnknownShapeError(f"not known: the model's config.json lacks {key}")
        return value

    heads, hidden, layers = map(number, ("num_attention_heads", "hidden_size", "num_hidden_layers"))
    inner, experts = number("intermediate_size"), values.get("num_experts_per_tok")
    if experts:  # a token visits some of a mixture's experts
        inner = int(experts) * int(values.get("moe_intermediate_size") or inner)
    windowed = _windowed_layers(values, layers)
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        inner=inner,
        heads=heads,
        kv_heads=int(values.get("num_key_value_heads") or heads),
        head_dim=int(values.get("head_dim") or hidden // heads),
        vocabulary=number("vocab_size"),
        tied=bool(values.get("tie_word_embeddings")),
        context=values.get("max_position_embeddings"),
        window=int(values["sliding_window"]) if windowed else 0,
        windowed=windowed,
        quantised="quantization_config" in config,
        **LAYERS.get(kind, {}),
    )
    attention = 2 * hidden * (shape.query_width + shape.kv_width)
    mlp = (3 if shape.gated else 2) * hidden * inner
    ends = shape.embedding * (1 if shape.tied else 2)
    count = layers * (attention + mlp + 2 * hidden) + ends + hidden
    is_float = "32" in str(config.get("dtype", config.get("torch_dtype")))
    return replace(shape, parameters=count, file_bytes=count * (FLOAT32 if is_float else BFLOAT16))


def _windowed_layers(values: Mapping[str, Any], layers: int) -> int:
    """Return how many layers attend to a sliding window only."""
    if not values.get("sliding_window") or values.get("use_sliding_window") is False:
        return 0
    if types := values.get("layer_types"):
        return sum(kind == "sliding_attention" for kind in types)
    if pattern := int(values.get("sliding_window_pattern") or 0):
        return layers - layers // pattern
    return max(0, layers - int(values.get("max_window_layers", 0)))
