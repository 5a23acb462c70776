"""The bytes that an engine, a scorer or a training needs of a device, as a list of terms.

A pass keeps tensors for the backward pass as counted by Korthikanti et al. (2022, arXiv 2205.05198,
Section 4), for the layers of transformers 5: RMSNorm in separate operations, scaled dot-product
attention that keeps no scores, a gated MLP. Under bfloat16 autocast over float32 weights the
residual stream is float32 (`wide`) and the inputs of matrix products are bfloat16 (`narrow`).

All weights in float32 under AdamW take 16 bytes each. Below adapters the model has neither
gradients nor moments, and is loaded in bfloat16 on a GPU, or in 4 bits (QLoRA, Dettmers et al.,
2023, arXiv 2305.14314). `benchmarks/memory.py` compares with real trainings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...configs.engines import EngineConfig, VLLMConfig
from ...configs.training import LoRAConfig
from ..devices import cpu_type
from ..engines.transformers_engine import GROUP
from ..trainers.job import MEASURED_TOGETHER, ONLINE, Method
from ..trainers.training_fit import PLAIN, TrainingFit
from .shapes import BFLOAT16, FLOAT32, ModelShape

GIB = 2**30
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
DEFAULT_CONTEXT = 2048
"""The context of a model whose config.json lacks one."""

SAMPLER_COPIES, CANARY_COPIES = 3, 3
"""float32 copies of logits in vLLM's sampler (raw, scaled, probabilities) and in the canary."""
DRAWN_BYTES = 24
"""Bytes for each word of the vocabulary when transformers draws a token, in float64."""
CPU_PIECE, CPU_PIECE_COPIES = 256, 6
"""`answer_head.PIECE`, and the float32 copies of its logits in `AnswerHead`'s backward pass."""
HEAD_TOKENS, HEAD_WORDS = 4096, 32_768
"""TRL's tile of the logits: `TOKEN_CHUNK_SIZE` x `_CHUNKED_LOGPROB_CHUNK_SIZE`."""

NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in blocks of 64 with a scale of a byte each, and a scale of 256 scales."""
EIGHT_BIT_MOMENT = 1 + 4 / 256
"""Bytes of one of bitsandbytes' moments, in blocks of 256 with a scale each."""

MEASURED_COPIES = 5
"""float32 copies of logits while an online method measures: two models' logits, log-probabilities,
exponentials, products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes that a stage needs at its peak: for any texts, and for the longest that may come."""

    name: str
    least_bytes: int
    most_bytes: int


def fixed_term(name: str, size: float) -> Term:
    """Return a term that does not depend on the texts."""
    return Term(name=name, least_bytes=round(size), most_bytes=round(size))


def at_most(name: str, size: float) -> Term:
    """Return a term that reaches its size only for the longest texts."""
    return Term(name=name, least_bytes=0, most_bytes=round(size))


def sum_terms(name: str, terms: Sequence[Term]) -> Term:
    """Return one term for the sum of several."""
    least = sum(term.least_bytes for term in terms)
    return Term(name=name, least_bytes=least, most_bytes=sum(term.most_bytes for term in terms))


def runtime(*, on_gpu: bool) -> Term:
    """Return the needs of a process without a model."""
    return fixed_term("CUDA", CUDA_BYTES) if on_gpu else fixed_term("process", PROCESS_BYTES)


# Passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of a number in the residual stream, and of one inside a matrix product."""

    wide: int
    narrow: int

    @property
    def is_mixed(self) -> bool:
        """Whether matrices are cast: autocast keeps the copy of each during a pass."""
        return self.narrow < self.wide


AUTOCAST = Precision(wide=FLOAT32, narrow=BFLOAT16)
FULL = Precision(wide=FLOAT32, narrow=FLOAT32)
HALF = Precision(wide=BFLOAT16, narrow=BFLOAT16)


def adapter_parameters(shape: ModelShape, lora: LoRAConfig) -> int:
    """Return the numbers in a model's adapters: r x (inward + outward) for each adapted matrix."""
    ends = sum(inward + outward for inward, outward in _adapted_matrices(shape, lora))
    return shape.layers * lora.r * ends


def _adapted_matrices(shape: ModelShape, lora: LoRAConfig) -> list[tuple[int, int]]:
    """Return both widths of each adapted matrix of a layer; an unknown name is the largest."""
    hidden, inner = shape.hidden, shape.inner
    matrices = {
        "q_proj": (hidden, shape.query_width),
        "k_proj": (hidden, shape.kv_width),
        "v_proj": (hidden, shape.kv_width),
        "o_proj": (shape.query_width, hidden),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
        **({"gate_proj": (hidden, inner)} if shape.gated else {}),
    }
    if not lora.r:
        return []
    names = matrices if lora.targets == "all-linear" else lora.targets
    return [matrices.get(name, (hidden, inner)) for name in names]


def pass_bytes(
    shape: ModelShape,
    precision: Precision,
    fit: TrainingFit = PLAIN,
    *,
    rows: int,
    length: int,
    casts: int = 0,
    head: int = 0,
) -> int:
    """Return the peak bytes of a forward and a backward pass over `rows` sequences.

    `casts` are the bytes of the matrices' narrow copies, which autocast keeps until the forward
    pass ends, `head` the output layer's bytes at the beginning of the backward pass. If
    activations are recomputed, only each layer's input is kept, and either the casts or, in the
    backward pass, all of one layer.
    """
    tokens, layers = rows * length, shape.layers
    stream = tokens * precision.wide * shape.hidden
    layer = tokens * _kept_bytes(shape, precision, fit, length)
    if fit.gradient_checkpointing == "always":
        return (layers + 2) * stream + max(casts, layer + head)
    return layers * layer + 2 * stream + casts + head


def _kept_bytes(shape: ModelShape, precision: Precision, fit: TrainingFit, length: int) -> int:
    """Return the bytes per token that a layer keeps for the backward pass.

    Each norm keeps its input in float32 and, if its weight is trained, the normalised input.
    The inputs of the matrices of queries, keys and values, and of the MLP, are kept once, or
    once for each matrix that casts them: under autocast, and before float32 adapters. Attention
    keeps queries, keys and values (repeated to as many heads) and its result, which an adapter
    casts once more; FlashAttention keeps nothing else, eager attention the probabilities of each
    head, others the mask. The MLP keeps gate, its activation, up and product. An adapter keeps the
    values between its two matrices, and with dropout a mask, of a byte a number on a GPU.
    """
    narrow, adapted = precision.narrow, _adapted_matrices(shape, fit.lora)
    scaled = FLOAT32 if shape.float_norms else precision.wide
    normed = shape.norms * shape.hidden
    if shape.normed_heads:
        normed += shape.query_width + shape.kv_width
    norms = normed * (FLOAT32 + (0 if adapted else scaled))
    casts = bool(adapted) and narrow < FLOAT32
    inputs = (5 if shape.gated else 4) if precision.is_mixed or casts else 2
    attention = (5 if casts else 4) * shape.query_width
    mlp = (4 if shape.gated else 2) * shape.inner
    masked = sum(inward for inward, _ in adapted) if fit.lora.dropout else 0
    adapters = len(adapted) * fit.lora.r * narrow + masked * (1 if narrow < FLOAT32 else FLOAT32)
    scores = length * narrow
    if fit.attention == "eager":
        scores = length * shape.heads * (FLOAT32 + (narrow if narrow < FLOAT32 else 0))
    elif fit.attention.startswith("flash"):
        scores = 0
    return norms + narrow * (inputs * shape.hidden + attention + mlp) + adapters + scores


def forward_bytes(
    shape: ModelShape, precision: Precision, *, rows: int, length: int, masked: bool = True
) -> int:
    """Return the bytes of a pass without gradients: one layer at a time, and the attention mask.

    A layer is the stream, its norm, the queries, keys and values, and gate, up and product of the
    MLP.
    """
    widest = max((3 if shape.gated else 2) * shape.inner, 4 * shape.query_width)
    token = precision.narrow * widest + 3 * precision.wide * shape.hidden
    return rows * length * (token + (length * precision.narrow if masked else 0))


# Models that only run forward


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
    weight, cached = (
        1 if (dtype or "").startswith(("fp8", "int8")) else number
        for dtype in (vllm.quantization, vllm.kv_cache_dtype)
    )
    return Inference(
        weight_bytes=weight,
        context=engine.context or fitted,
        tensor_parallel=engine.tensor_parallel if on_gpu else 1,
        cache_bytes=round(cached),
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
        fixed_term("weights", inference.weights(shape)),
        fixed_term(KV_CACHE, inference.cache(shape, inference.context, ahead=tokens)),
        at_most("activations", logits + passing / inference.tensor_parallel),
        fixed_term("CUDA", CUDA_BYTES),
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
    precision = HALF if inference.weight_bytes <= BFLOAT16 else FULL
    passing = forward_bytes(shape, precision, rows=rows, length=max(1, inference.context - answer))
    return [
        fixed_term("weights", inference.weights(shape)),
        Term(name=KV_CACHE, least_bytes=least, most_bytes=most),
        at_most("activations", passing),
        fixed_term("logits", rows * shape.vocabulary * DRAWN_BYTES),
        runtime(on_gpu=on_gpu),
    ]


def scorer_terms(
    shape: ModelShape, number: float, *, rows: int, length: int, on_gpu: bool, logits: int = 0
) -> list[Term]:
    """Return the needs of a model of `number` bytes a weight to read `rows` texts at once."""
    precision = HALF if number <= BFLOAT16 else FULL
    return [
        fixed_term("weights", shape.parameters * number),
        at_most("activations", forward_bytes(shape, precision, rows=rows, length=length) + logits),
        runtime(on_gpu=on_gpu),
    ]


def canary_terms(shape: ModelShape, *, length: int, on_gpu: bool) -> list[Term]:
    """Return the needs of the canary: the whole model in the type of its passes, one row."""
    number = BFLOAT16 if on_gpu else FLOAT32
    logits = (length + 1) * shape.vocabulary * FLOAT32 * CANARY_COPIES
    return scorer_terms(shape, number, rows=1, length=length, on_gpu=on_gpu, logits=logits)


# Trainings


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training on one device, in passes of `rows` rows of at most `length` tokens a sequence.

    `accumulation` counts the passes of an optimizer step. `divided`: FSDP2 gives each of the
    `processes` its part of weights, gradients and moments. `reference`: a second, frozen model is
    loaded as the reference. `answer` is the most that an answer has of the length, if the method
    computes whole logits; `reward_number` the bytes of a weight of the reward model.
    """

    method: Method
    rows: int
    length: int
    on_gpu: bool
    processes: int = 1
    divided: bool = False
    accumulation: int = 1
    fit: TrainingFit = PLAIN
    reference: bool = False
    answer: int = 0
    reward_number: float = FLOAT32

    @property
    def number(self) -> int:
        """Bytes of a weight that is not in 4 bits; frozen weights are halved on a GPU."""
        return BFLOAT16 if self.fit.adapts and self.on_gpu else FLOAT32

    @property
    def precision(self) -> Precision:
        """The types of a pass: under bfloat16 autocast on a GPU, or a CPU that multiplies it."""
        if self.number == BFLOAT16:
            return HALF
        narrow = published_number(self.fit, on_gpu=False) == BFLOAT16 and self.method != "reward"
        return AUTOCAST if self.on_gpu or (narrow and cpu_type() == "bfloat16") else FULL

    @property
    def part(self) -> float:
        """The part of a divided model on one device."""
        return 1 / self.processes if self.divided else 1

    @property
    def sequences(self) -> int:
        """The sequences of a pass: pairs have two a row."""
        return self.rows * (2 if self.method in ("dpo", "reward", "online_dpo") else 1)


def published_number(fit: TrainingFit, *, on_gpu: bool) -> int:
    """Return the bytes of a weight of the model that a training publishes."""
    halved = on_gpu if fit.publish == "auto" else fit.publish != "float32"
    return BFLOAT16 if halved else FLOAT32


def state_terms(shape: ModelShape, work: Workload, *, others: int = 0) -> list[Term]:
    """Return weights, gradients and moments of a model, and of `others` more trained numbers."""
    fit, part = work.fit, work.part
    trained, moment, wide = others + shape.parameters, float(FLOAT32), 0
    frozen = 0.0
    if fit.optimizer == "adamw_8bit":
        # transformers leaves an embedding its moments in float32.
        moment, wide = EIGHT_BIT_MOMENT, 0 if fit.adapts else shape.embedding
    if fit.adapts:
        trained = others + adapter_parameters(shape, fit.lora)
        frozen = _loaded_bytes(shape, work) * part
        if fit.lora.quantise == "nf4":  # a pass takes one matrix at a time out of its 4 bits
            frozen += BFLOAT16 * shape.hidden * shape.inner
    moments = 2 * (moment * (trained - wide) + FLOAT32 * wide)
    # DDP keeps a second copy of the gradients; online methods average them in place.
    copied = work.processes > 1 and not work.divided and work.method not in ONLINE
    sizes = {
        "frozen weights": frozen,
        "adapters" if fit.adapts else "weights": FLOAT32 * trained * part,
        "gradients": FLOAT32 * trained * part,
        "optimizer": moments * part,
        "DDP buckets": FLOAT32 * trained if copied else 0,
    }
    return [fixed_term(name, size) for name, size in sizes.items() if size]


def _loaded_bytes(shape: ModelShape, work: Workload) -> int:
    """Return a model's weights as a training loads them; in 4 bits, its ends stay whole."""
    if work.fit.lora.quantise != "nf4":
        return work.number * shape.parameters
    return round(NF4 * shape.matrices + work.number * (shape.parameters - shape.matrices))


def training_terms(
    shape: ModelShape, work: Workload, reward: ModelShape | None = None
) -> list[Term]:
    """Return the peak memory of a training, without the sampler of an online method.

    PPO trains a value model, too, of the size of the `reward` model; with adapters it is a second
    adapter on the policy's body. The reward model, if one rewards, is whole in the first process.
    A divided model is gathered a layer and the next at a time, with the gradients of one in
    float32; embedding and output layer with their gradients stay while a step lasts.
    """
    body = shape.as_classifier() if work.method == "reward" else shape
    value = 0
    if work.method == "ppo":
        adapter = adapter_parameters(shape, work.fit.lora) + shape.hidden + 1
        value = adapter if work.fit.adapts else (reward or shape).parameters
    states = state_terms(body, work, others=value)
    gathered = 0
    if work.divided:
        layer, ends = shape.matrices // shape.layers, shape.parameters - shape.matrices
        networks = 1 + (work.method in ONLINE) + (work.method == "ppo")
        gathered = networks * (work.precision.narrow * 2 * (layer + ends) + FLOAT32 * layer)
    return [
        *states,
        fixed_term("reference", _reference_bytes(shape, work, states)),
        fixed_term("gathered weights", gathered),
        fixed_term("reward model", work.reward_number * reward.parameters if reward else 0),
        at_most("activations", _pass_peak(shape, work, states)),
        runtime(on_gpu=work.on_gpu),
    ]


def _reference_bytes(shape: ModelShape, work: Workload, states: list[Term]) -> int:
    """Return the addition of a second, frozen model to the peak, in bytes.

    DPO and KTO use it before they train: it takes the room of the later gradients and moments.
    """
    if not work.reference:
        return 0
    if work.method in ONLINE:
        return round(work.part * (BFLOAT16 if work.on_gpu else FLOAT32) * shape.parameters)
    loaded = round(work.part * _loaded_bytes(shape, work))
    return max(0, loaded - _sum_of(states, "gradients", "optimizer"))


def _pass_peak(shape: ModelShape, work: Workload, states: list[Term]) -> int:
    """Return the most bytes that passes take.

    In the first pass of an optimizer step the gradients do not
    exist yet: if it is the only one, its activations take their room. An online method keeps whole
    logits of the answers: those at the temperature, the gradient of their sum of exponentials, the
    sum of gradients. It measures several times as many rows without gradients.
    """
    fit, precision, length = work.fit, work.precision, work.length
    casts = precision.narrow * shape.matrices if precision.is_mixed and not work.divided else 0
    logits = (work.answer + 1) * shape.vocabulary * FLOAT32
    measuring = head = 0
    if work.method in ONLINE:
        head = work.sequences * logits * (8 if work.method == "quark" else 4)
        rows = MEASURED_TOGETHER * work.rows
        forward = forward_bytes(shape, precision, rows=rows, length=length)
        measuring = forward + casts + rows * logits * MEASURED_COPIES
    elif work.method != "reward":
        head = _tiled_head_bytes(shape, work)
    most = pass_bytes(
        shape, precision, fit, rows=work.sequences, length=length, casts=casts, head=head
    )
    most = max(most, measuring)
    if work.accumulation == 1 and work.method not in ONLINE:
        most -= _sum_of(states, "gradients")
    return most


def _tiled_head_bytes(shape: ModelShape, work: Workload) -> int:
    """Return the bytes of TRL's fused output layer in its backward pass.

    The gradients of the layer, unless it is frozen, and of the hidden states, in float32
    (trl/kernels/chunked_logprob.py), and one tile of logits. On a CPU `AnswerHead` keeps the
    logits and their gradients, and copies of a piece of them.
    """
    tokens, narrow = work.sequences * work.length, work.precision.narrow
    layer = 0 if work.fit.adapts else shape.embedding
    states = FLOAT32 * (layer + 2 * tokens * shape.hidden)
    if work.on_gpu:
        return states + min(tokens, HEAD_TOKENS) * min(HEAD_WORDS, shape.vocabulary) * narrow
    piece = min(tokens, CPU_PIECE) * CPU_PIECE_COPIES * FLOAT32
    return states + shape.vocabulary * (2 * narrow * tokens + piece)


def _sum_of(terms: list[Term], *names: str) -> int:
    return sum(term.most_bytes for term in terms if term.name in names)
