"""What engines and the scorer hold: weights, the cache of keys and values, a pass."""

from dataclasses import dataclass

from ..devices import cpu_type
from ..engines.transformers_engine import GROUP
from .activations import HALF, PLAIN, Precision, forward_bytes
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .verdicts import GIB, Holding, at_most, fixed

CUDA_BYTES = 1 * GIB
"""A process's context, libraries and workspace on a GPU; 0.5 to 1 GiB are usual."""

GRAPHS_BYTES = 1 * GIB
"""vLLM's CUDA graphs; a fraction of it for small models (vLLM logs what it measures)."""

PROCESS_BYTES = GIB // 2
"""An interpreter with torch and transformers on a CPU; measured: 0.4 to 0.6 GiB."""

REQUEST = "one request's cache"
BLOCK = 16
"""Tokens in a block of vLLM's cache."""

LARGE_CARD = 70 * GIB
"""From here on vLLM takes more tokens and requests at once (vllm/engine/arg_utils.py)."""

EIGHT_BITS = 1
BATCHED_TOKENS, LARGE_BATCHED_TOKENS = 8192, 16_384
SEQUENCES, LARGE_SEQUENCES = 256, 1024
LOGIT_COPIES = 3
"""float32 copies of the logits that the sampler holds: raw, scaled, probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """How an engine runs a model: bytes of a number, context in tokens, devices that it spans.

    `batched_tokens` and `sequences` are what vLLM takes at once, where they are configured;
    `eager`: without CUDA graphs.
    """

    number_bytes: float
    context: int
    tensor_parallel: int = 1
    cache_bytes: int = BFLOAT16
    eager: bool = False
    batched_tokens: int | None = None
    sequences: int | None = None

    def weight_bytes(self, shape: ModelShape) -> int:
        """Return the weights on one device; quantised ones are as large as their files."""
        size = shape.file_bytes if shape.quantised else shape.parameters * self.number_bytes
        return round(size / self.tensor_parallel)


def cache_bytes(shape: ModelShape, hosting: Hosting, *, tokens: int, ahead: int = 0) -> int:
    """Return the keys and values of one sequence on one device.

    2 x layers x heads of keys x their width x bytes a token; a head is never divided. A layer with
    a window keeps that many tokens and the `ahead` ones in flight (vllm/v1/kv_cache_interface.py,
    `SlidingWindowSpec`); tokens fill whole blocks.
    """
    heads = max(1, -(-shape.kv_heads // hosting.tensor_parallel))
    token = 2 * heads * shape.head_dim * hosting.cache_bytes
    seen = min(tokens, shape.window - 1 + ahead) if shape.window else tokens
    whole = (shape.layers - shape.windowed) * _blocks(tokens) + shape.windowed * _blocks(seen)
    return whole * token


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK) * BLOCK


def vllm_parts(shape: ModelShape, hosting: Hosting, card_bytes: int) -> list[Holding]:
    """Return what vLLM holds on a GPU at the least: one request of the whole context fits.

    The pass is the one by which vLLM measures itself when it starts: as many tokens as it batches,
    and logits of as many requests as it runs at once.
    """
    large = card_bytes >= LARGE_CARD
    tokens = hosting.batched_tokens or (LARGE_BATCHED_TOKENS if large else BATCHED_TOKENS)
    requests = hosting.sequences or (LARGE_SEQUENCES if large else SEQUENCES)
    logits = requests * shape.vocabulary * FLOAT32 * LOGIT_COPIES
    passing = _linear_pass(shape, tokens)
    request = cache_bytes(shape, hosting, tokens=hosting.context, ahead=tokens)
    return [
        fixed("weights", hosting.weight_bytes(shape)),
        fixed(REQUEST, request),
        at_most("pass", logits + passing / hosting.tensor_parallel),
        fixed("CUDA", CUDA_BYTES),
        at_most("CUDA graphs", 0 if hosting.eager else GRAPHS_BYTES),
    ]


def _linear_pass(shape: ModelShape, tokens: int) -> int:
    """Return a pass of one long row without a mask: vLLM's attention needs none."""
    per_token = forward_bytes(shape, HALF, rows=1, length=1) - HALF.narrow
    return tokens * per_token


def concurrency(shape: ModelShape, hosting: Hosting, *, share_bytes: int, card_bytes: int) -> float:
    """Return how many requests of the whole context fit into the cache at once."""
    parts = vllm_parts(shape, hosting, card_bytes)
    request = next(part.most_bytes for part in parts if part.name == REQUEST)
    left = share_bytes - sum(part.most_bytes for part in parts) + request
    return max(0.0, left / request)


def longest_context(shape: ModelShape, hosting: Hosting, *, room_bytes: int) -> int:
    """Return the longest request, in tokens, whose cache takes at most `room_bytes`."""
    token = cache_bytes(shape, hosting, tokens=BLOCK)
    return max(0, room_bytes // token) * BLOCK


def transformers_parts(
    shape: ModelShape, hosting: Hosting, *, rows: int, answer: int, on_gpu: bool
) -> list[Holding]:
    """Return what the engine of transformers holds: it draws up to `GROUP` answers side by side.

    The cache has at least the answers of `answer` tokens; at most each row fills the context. A
    layer's part of it is copied as it grows. The prompts' pass may be of whole contexts, too;
    of logits it keeps those of the last token, which are drawn from in float64 (24 bytes a word).
    """
    rows = min(rows, GROUP)
    copied = 1 + 1 / shape.layers
    cache = [
        round(rows * cache_bytes(shape, hosting, tokens=tokens) * copied)
        for tokens in (min(answer, hosting.context), hosting.context)
    ]
    prompt = max(1, hosting.context - answer)
    precision = precision_of(hosting.number_bytes)
    return [
        fixed("weights", hosting.weight_bytes(shape)),
        Holding(name="cache", least_bytes=cache[0], most_bytes=cache[1]),
        at_most("pass", forward_bytes(shape, precision, rows=rows, length=prompt)),
        fixed("logits", rows * shape.vocabulary * 24),
        fixed("CUDA" if on_gpu else "process", CUDA_BYTES if on_gpu else PROCESS_BYTES),
    ]


def scorer_parts(
    shape: ModelShape, *, number_bytes: float, rows: int, length: int, on_gpu: bool
) -> list[Holding]:
    """Return what the reward model holds when it scores `rows` conversations of `length` tokens."""
    precision = precision_of(number_bytes)
    return [
        fixed("weights", shape.parameters * number_bytes),
        at_most("pass", forward_bytes(shape, precision, rows=rows, length=length)),
        fixed("CUDA" if on_gpu else "process", CUDA_BYTES if on_gpu else PROCESS_BYTES),
    ]


def quantised_bytes(dtype: str, whole: float) -> float:
    """Return the bytes of a number in a type of vLLM's that may be of 8 bits."""
    return EIGHT_BITS if dtype.startswith(("fp8", "int8")) else whole


def number_bytes(dtype: str, shape: ModelShape, *, on_gpu: bool, halved: bool) -> float:
    """Return the bytes of a weight once loaded; `halved`: float32 files are run in bfloat16.

    "auto" is `cpu_type` on a CPU and the files' own type on a GPU, where vLLM halves float32.
    """
    if dtype == "auto" and not on_gpu:
        dtype = cpu_type()
    if dtype != "auto":
        return FLOAT32 if dtype == "float32" else BFLOAT16
    saved = shape.saved_number_bytes
    return BFLOAT16 if halved and saved > BFLOAT16 else saved


def precision_of(number: float) -> Precision:
    """Return the precision of a pass of weights of `number` bytes."""
    return HALF if number <= BFLOAT16 else PLAIN
