"""The terms of models that only run forward: engines, the scorer and the canary."""

from dataclasses import dataclass

from ...configs.engines import EngineConfig, VLLMConfig
from ..devices import cpu_type
from ..engines.transformers_engine import GROUP
from .activations import HALF, forward_bytes, logits_bytes, precision_of
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .stage_memory import GIB, Term, at_most, fixed

CUDA_BYTES = 1 * GIB
"""A process's context, libraries and workspace on a GPU; 0.5 to 1 GiB are usual."""
GRAPHS_BYTES = 1 * GIB
"""vLLM's CUDA graphs; small models take a fraction of it (vLLM logs its measurement)."""
PROCESS_BYTES = GIB // 2
"""An interpreter with torch and transformers on a CPU; measured: 0.4 to 0.6 GiB."""

KV_CACHE = "KV cache"
BLOCK = 16
"""Tokens in a block of vLLM's cache."""
LARGE_CARD = 70 * GIB
"""From this size on vLLM batches more tokens and requests (vllm/engine/arg_utils.py)."""
BATCHED_TOKENS, LARGE_BATCHED_TOKENS = 8192, 16_384
SEQUENCES, LARGE_SEQUENCES = 256, 1024
SAMPLER_COPIES = 3
"""float32 copies of the logits in vLLM's sampler: raw, scaled, probabilities."""
DRAWN_BYTES = 24
"""Bytes for each word of the vocabulary when transformers draws a token, in float64."""
CANARY_COPIES = 3
"""float32 copies of a row's logits in the canary: whole, of the answer, log-probabilities."""
DEFAULT_CONTEXT = 2048
"""The context of a model whose config.json lacks one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """How an engine runs a model: bytes of a weight, context in tokens, GPUs that it spans.

    `cache_bytes` are the bytes of a number in the KV cache. `batched_tokens` and `sequences` are
    vLLM's limits if configured; `eager`: without CUDA graphs.
    """

    weight_bytes: float
    context: int
    tensor_parallel: int = 1
    cache_bytes: int = BFLOAT16
    eager: bool = False
    batched_tokens: int | None = None
    sequences: int | None = None

    def weights(self, shape: ModelShape) -> int:
        """Return the bytes of the weights on one device; quantised ones are as in their files."""
        size = shape.file_bytes if shape.quantised else shape.parameters * self.weight_bytes
        return round(size / self.tensor_parallel)

    def cache(self, shape: ModelShape, tokens: int, *, ahead: int = 0) -> int:
        """Return the bytes of one sequence's keys and values on one device.

        2 x layers x KV heads x head width x bytes a token; a head is never divided. A layer with a
        sliding window keeps that many tokens and the `ahead` ones in flight
        (vllm/v1/kv_cache_interface.py, `SlidingWindowSpec`). Tokens fill whole blocks.
        """
        heads = max(1, -(-shape.kv_heads // self.tensor_parallel))
        seen = min(tokens, shape.window - 1 + ahead) if shape.window else tokens
        whole, near = (-(-count // BLOCK) * BLOCK for count in (tokens, seen))
        cached = (shape.layers - shape.windowed) * whole + shape.windowed * near
        return cached * 2 * heads * shape.head_dim * self.cache_bytes


def inference_of(
    shape: ModelShape, engine: EngineConfig, *, by_vllm: bool, on_gpu: bool
) -> Inference:
    """Return the settings with which an engine runs a model.

    With `max_model_len=auto` vLLM takes the longest context that fits: a usual one must fit.
    """
    vllm = engine.vllm if by_vllm else VLLMConfig()
    number = number_bytes(engine.dtype, shape, on_gpu=on_gpu, halved=by_vllm)
    own = shape.context or DEFAULT_CONTEXT
    fitted = min(own, DEFAULT_CONTEXT) if engine.max_model_len == "auto" else own
    return Inference(
        weight_bytes=_eight_bits(vllm.quantization or "", number),
        context=engine.context or fitted,
        tensor_parallel=engine.tensor_parallel if on_gpu else 1,
        cache_bytes=round(_eight_bits(vllm.kv_cache_dtype, number)),
        eager=bool(vllm.enforce_eager),
        batched_tokens=vllm.max_num_batched_tokens,
        sequences=vllm.max_num_seqs,
    )


def number_bytes(dtype: str, shape: ModelShape, *, on_gpu: bool, halved: bool = False) -> float:
    """Return the bytes of a loaded weight; `halved`: float32 files are run in bfloat16.

    "auto" is `cpu_type` on a CPU, and the files' own type on a GPU.
    """
    if dtype == "auto" and not on_gpu:
        dtype = cpu_type()
    if dtype != "auto":
        return FLOAT32 if dtype == "float32" else BFLOAT16
    return min(BFLOAT16, shape.saved_number_bytes) if halved else shape.saved_number_bytes


def _eight_bits(dtype: str, otherwise: float) -> float:
    return 1 if dtype.startswith(("fp8", "int8")) else otherwise


def vllm_terms(shape: ModelShape, inference: Inference, card_bytes: int) -> list[Term]:
    """Return vLLM's least needs on a GPU: the cache for one request's whole context.

    The activations are computed for the pass by which vLLM measures itself when it starts: with
    all tokens of a batch, and logits of as many requests as it runs at once. Its attention is
    without a mask.
    """
    large = card_bytes >= LARGE_CARD
    tokens = inference.batched_tokens or (LARGE_BATCHED_TOKENS if large else BATCHED_TOKENS)
    requests = inference.sequences or (LARGE_SEQUENCES if large else SEQUENCES)
    logits = requests * shape.vocabulary * FLOAT32 * SAMPLER_COPIES
    passing = forward_bytes(shape, HALF, rows=1, length=tokens, masked=False)
    return [
        fixed("weights", inference.weights(shape)),
        fixed(KV_CACHE, inference.cache(shape, inference.context, ahead=tokens)),
        at_most("activations", logits + passing / inference.tensor_parallel),
        fixed("CUDA", CUDA_BYTES),
        at_most("CUDA graphs", 0 if inference.eager else GRAPHS_BYTES),
    ]


def transformers_terms(
    shape: ModelShape, inference: Inference, *, rows: int, answer: int, on_gpu: bool
) -> list[Term]:
    """Return the needs of the engine of transformers: it draws up to `GROUP` answers at once.

    The cache has at least the answers of `answer` tokens, at most a whole context for each row;
    a layer's part of it is copied when it grows. The prompts' pass keeps the last token's logits.
    """
    rows = min(rows, GROUP)
    least, most = (
        round(rows * inference.cache(shape, tokens) * (1 + 1 / shape.layers))
        for tokens in (min(answer, inference.context), inference.context)
    )
    length, precision = max(1, inference.context - answer), precision_of(inference.weight_bytes)
    return [
        fixed("weights", inference.weights(shape)),
        Term(name=KV_CACHE, least_bytes=least, most_bytes=most),
        at_most("activations", forward_bytes(shape, precision, rows=rows, length=length)),
        fixed("logits", rows * shape.vocabulary * DRAWN_BYTES),
        runtime(on_gpu=on_gpu),
    ]


def scorer_terms(
    shape: ModelShape, number: float, *, rows: int, length: int, on_gpu: bool, logits: int = 0
) -> list[Term]:
    """Return the needs of a model of `number` bytes a weight to read `rows` texts at once."""
    passing = forward_bytes(shape, precision_of(number), rows=rows, length=length)
    return [
        fixed("weights", shape.parameters * number),
        at_most("activations", passing + logits),
        runtime(on_gpu=on_gpu),
    ]


def canary_terms(shape: ModelShape, *, length: int, on_gpu: bool) -> list[Term]:
    """Return the needs of the canary: the whole model in the type of its passes, one row."""
    number = BFLOAT16 if on_gpu else FLOAT32
    logits = logits_bytes(shape, rows=1, answer=length, copies=CANARY_COPIES)
    return scorer_terms(shape, number, rows=1, length=length, on_gpu=on_gpu, logits=logits)


def runtime(*, on_gpu: bool) -> Term:
    """Return the needs of a process without a model."""
    return fixed("CUDA", CUDA_BYTES) if on_gpu else fixed("process", PROCESS_BYTES)
