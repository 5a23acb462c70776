"""The bytes that a pass keeps in layers, adapters and output layer, in addition to the weights.

Autograd's saved tensors are counted as by Korthikanti et al. (2022, arXiv 2205.05198, Section 4),
for the layers of transformers 5: RMSNorm in separate operations, scaled dot-product attention that
keeps no scores, a gated MLP. On a GPU the passes run under bfloat16 autocast: over float32 weights
the residual stream is float32 (`wide`) and the inputs of matrix products are bfloat16 (`narrow`);
over bfloat16 weights both are bfloat16. On a CPU both have the weights' type.
`benchmarks/memory.py` compares with real trainings.
"""

from dataclasses import dataclass

from ...configs.training import LoRAConfig
from ..trainers.training_fit import PLAIN, TrainingFit
from .shapes import BFLOAT16, FLOAT32, ModelShape

CPU_PIECE = 256
"""Tokens whose logits are float32 at a time on a CPU: `answer_head.PIECE`."""
CPU_PIECE_COPIES = 6
"""float32 copies of a piece's logits in `AnswerHead`'s backward pass."""
HEAD_TOKENS, HEAD_WORDS = 4096, 32_768
"""TRL's tile of the logits: `TOKEN_CHUNK_SIZE` x `_CHUNKED_LOGPROB_CHUNK_SIZE`."""


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


def precision_of(number: float) -> Precision:
    """Return the precision of a pass over weights of `number` bytes, without autocast."""
    return HALF if number <= BFLOAT16 else FULL


def adapter_parameters(shape: ModelShape, lora: LoRAConfig) -> int:
    """Return the numbers in a model's adapters: r x (inward + outward) for each adapted matrix."""
    ends = sum(inward + outward for inward, outward in _adapted(shape, lora))
    return shape.layers * lora.r * ends


def _adapted(shape: ModelShape, lora: LoRAConfig) -> list[tuple[int, int]]:
    """Return both widths of each adapted matrix of a layer; an unknown name is the largest."""
    if not lora.r:
        return []
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
    if lora.targets == "all-linear":
        return list(matrices.values())
    return [matrices.get(name, (hidden, inner)) for name in lora.targets]


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
    kept = _layer_bytes(shape, precision, fit.lora)
    layer = tokens * (kept + _attention_bytes(shape, precision, fit.attention, length))
    if fit.gradient_checkpointing == "always":
        return (layers + 2) * stream + max(casts, layer + head)
    return layers * layer + 2 * stream + casts + head


def _layer_bytes(shape: ModelShape, precision: Precision, lora: LoRAConfig) -> int:
    """Return the bytes per token that a layer keeps for the backward pass.

    Each norm keeps its input in float32 and, if its weight is trained, the normalised input.
    The inputs of the matrices of queries, keys and values, and of the MLP, are kept once, or
    once for each matrix that casts them: under autocast, and before float32 adapters. Attention
    keeps queries, keys and values (repeated to as many heads) and its result, which an adapter
    casts once more. The MLP keeps gate, its activation, up and product. An adapter keeps the
    values between its two matrices, and with dropout a mask, of a byte a number on a GPU.
    """
    narrow, adapted = precision.narrow, _adapted(shape, lora)
    scaled = FLOAT32 if shape.float_norms else precision.wide
    normed = shape.norms * shape.hidden
    if shape.normed_heads:
        normed += shape.query_width + shape.kv_width
    norms = normed * (FLOAT32 + (0 if adapted else scaled))
    casts = bool(adapted) and narrow < FLOAT32
    inputs = (5 if shape.gated else 4) if precision.is_mixed or casts else 2
    attention = (5 if casts else 4) * shape.query_width
    mlp = (4 if shape.gated else 2) * shape.inner
    masked = sum(inward for inward, _ in adapted) if lora.dropout else 0
    adapters = len(adapted) * lora.r * narrow + masked * (1 if narrow < FLOAT32 else FLOAT32)
    return norms + narrow * (inputs * shape.hidden + attention + mlp) + adapters


def _attention_bytes(shape: ModelShape, precision: Precision, attention: str, length: int) -> int:
    """Return the bytes per token that a layer's attention keeps, without its inputs and its result.

    FlashAttention keeps nothing, eager attention the probabilities of each head, in float32 and
    as they meet the values, other implementations the mask, as numbers.
    """
    narrow = precision.narrow
    if attention.startswith("flash"):
        return 0
    if attention != "eager":
        return length * narrow
    return length * shape.heads * (FLOAT32 + (narrow if narrow < FLOAT32 else 0))


def forward_bytes(
    shape: ModelShape, precision: Precision, *, rows: int, length: int, masked: bool = True
) -> int:
    """Return the bytes of a pass without gradients: one layer at a time, and the attention mask.

    A layer is the stream, its norm, the queries, keys and values, and gate, up and product of the
    MLP.
    """
    widest = max((3 if shape.gated else 2) * shape.inner, 4 * shape.query_width)
    token = precision.narrow * widest + 3 * precision.wide * shape.hidden
    mask = length * precision.narrow if masked else 0
    return rows * length * (token + mask)


def tiled_head_bytes(
    shape: ModelShape, precision: Precision, *, tokens: int, on_gpu: bool, frozen: bool = False
) -> int:
    """Return the bytes of TRL's fused output layer in its backward pass.

    The gradients of the layer, unless it is frozen, and of the hidden states, in float32
    (trl/kernels/chunked_logprob.py), and one tile of logits. On a CPU `AnswerHead` keeps the
    logits and their gradients, and copies of a piece of them.
    """
    layer = 0 if frozen else shape.embedding
    states = FLOAT32 * (layer + 2 * tokens * shape.hidden)
    if on_gpu:
        tile = min(tokens, HEAD_TOKENS) * min(HEAD_WORDS, shape.vocabulary)
        return states + tile * precision.narrow
    piece = min(tokens, CPU_PIECE) * CPU_PIECE_COPIES * FLOAT32
    return states + shape.vocabulary * (2 * precision.narrow * tokens + piece)


def logits_bytes(shape: ModelShape, *, rows: int, answer: int, copies: int) -> int:
    """Return the bytes of the whole logits of answers, `copies` times in float32."""
    return rows * (answer + 1) * shape.vocabulary * FLOAT32 * copies
