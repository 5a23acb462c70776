"""What a forward and a backward pass keep beside the weights, in bytes.

The count of what autograd keeps follows Korthikanti et al. (2022, arXiv 2205.05198, Section 4),
for the layers of transformers 5: RMSNorm in separate operations, scaled dot-product attention that
keeps no scores, a gated MLP. On a GPU the passes run under bfloat16 autocast: over float32
weights the residual stream is float32 (`wide`), what goes through a matrix is bfloat16
(`narrow`); over bfloat16 weights both are bfloat16. On a CPU both are as the weights.
`benchmarks/memory.py` compares with real trainings.
"""

from dataclasses import dataclass

from .adapter_sizes import NO_ADAPTERS, Adapters
from .shapes import BFLOAT16, FLOAT32, ModelShape

EAGER = "eager"
PIECE = 256
"""Tokens whose logits are float32 at a time on a CPU: `answer_head.PIECE`."""
HEAD_TOKENS, HEAD_TILE = 4096, 32_768
"""TRL's tile of the logits: `TOKEN_CHUNK_SIZE` tokens x `_CHUNKED_LOGPROB_CHUNK_SIZE` words."""
PIECE_COPIES = 6
"""float32 copies of a piece's logits in `AnswerHead`'s backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of a number in the residual stream, and of one inside a matrix product."""

    wide: int
    narrow: int

    @property
    def is_mixed(self) -> bool:
        """Whether matrices are cast: autocast keeps the copy of each while a pass lasts."""
        return self.narrow < self.wide


AUTOCAST = Precision(wide=FLOAT32, narrow=BFLOAT16)
PLAIN = Precision(wide=FLOAT32, narrow=FLOAT32)
HALF = Precision(wide=BFLOAT16, narrow=BFLOAT16)


def layer_bytes(shape: ModelShape, precision: Precision, adapters: Adapters = NO_ADAPTERS) -> int:
    """Return what a layer keeps of a token for the backward pass.

    Each norm keeps its input in float32 and, where its weight is trained, the normalised input.
    What enters the matrices of queries, keys and values, and of the MLP, is kept once, or once a
    matrix where each casts it anew: under autocast, and before float32 adapters. Attention keeps
    queries, keys and values (repeated to as many heads), and its result, which the last matrix
    reads as it lies; an adapter beside that casts it. MLP: gate, its activation, up, product.
    """
    narrow = precision.narrow
    scaled = FLOAT32 if shape.float_norms else precision.wide
    norm = FLOAT32 + (0 if adapters.rank else scaled)
    norms = norm * shape.norms * shape.hidden
    if shape.normed_heads:
        norms += norm * (shape.query_width + shape.kv_width)
    adapted = adapters.rank > 0 and narrow < FLOAT32
    entering = (5 if shape.gated else 4) if precision.is_mixed or adapted else 2
    attention = (5 if adapted else 4) * narrow * shape.query_width
    mlp = (4 if shape.gated else 2) * narrow * shape.inner
    beside = adapters.kept_bytes(shape, narrow)
    return norms + entering * narrow * shape.hidden + attention + mlp + beside


def attention_bytes(shape: ModelShape, precision: Precision, *, length: int, kind: str) -> int:
    """Return what a layer's attention keeps of a token beside queries, keys, values and result.

    By transformers' own choice the mask, as numbers; eager: the probabilities, in float32 and as
    they meet the values; FlashAttention keeps neither.
    """
    if kind.startswith("flash"):
        return 0
    if kind != EAGER:
        return length * precision.narrow
    numbers = FLOAT32 + (precision.narrow if precision.narrow < FLOAT32 else 0)
    return length * shape.heads * numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPass:
    """A forward and a backward pass over `rows` sequences of `length` tokens.

    `recomputed`: each layer's activations are computed again in the backward pass (gradient
    checkpointing). `casts` are the bytes of the matrices' narrow copies, which autocast keeps until
    the forward pass ends; `head` what the output layer holds when the backward pass begins;
    `attention` is `training.attention`.
    """

    rows: int
    length: int
    precision: Precision
    recomputed: bool
    casts: int = 0
    head: int = 0
    adapters: Adapters = NO_ADAPTERS
    attention: str = "auto"

    def kept_bytes(self, shape: ModelShape) -> int:
        """Return what the pass holds at its peak beside weights, gradients and moments.

        Recomputed, each layer's input is kept, and either the casts or, in the backward pass, all
        of one layer.
        """
        tokens, precision = self.rows * self.length, self.precision
        stream = tokens * precision.wide * shape.hidden
        scores = attention_bytes(shape, precision, length=self.length, kind=self.attention)
        layer = tokens * (layer_bytes(shape, precision, self.adapters) + scores)
        if self.recomputed:
            return (shape.layers + 2) * stream + max(self.casts, layer + self.head)
        return shape.layers * layer + 2 * stream + self.casts + self.head


def forward_bytes(shape: ModelShape, precision: Precision, *, rows: int, length: int) -> int:
    """Return what a pass without gradients holds: one layer at a time, and the mask.

    The stream, its norm, the queries, keys and values, and gate, up and product of the MLP.
    """
    widest = max((3 if shape.gated else 2) * shape.inner, 4 * shape.query_width)
    token = precision.narrow * widest + 3 * precision.wide * shape.hidden
    return rows * length * token + rows * length * length * precision.narrow


def chunked_head_bytes(
    shape: ModelShape, precision: Precision, *, tokens: int, on_gpu: bool, frozen: bool = False
) -> int:
    """Return what TRL's fused output layer holds in its backward pass.

    The layer's gradient, unless it is frozen, and that of the hidden states, in float32
    (trl/kernels/chunked_logprob.py), and one tile of logits. On a CPU `AnswerHead` keeps the
    logits and their gradients, and copies of a piece of them.
    """
    layer = 0 if frozen else shape.embedding
    states = FLOAT32 * (layer + 2 * tokens * shape.hidden)
    if on_gpu:
        tile = min(tokens, HEAD_TOKENS) * min(HEAD_TILE, shape.vocabulary)
        return states + tile * precision.narrow
    piece = min(tokens, PIECE) * PIECE_COPIES * FLOAT32
    return states + shape.vocabulary * (2 * precision.narrow * tokens + piece)


def logits_bytes(shape: ModelShape, *, rows: int, answer: int, copies: int) -> int:
    """Return what whole logits of the answers' tokens take, `copies` times in float32."""
    return rows * (answer + 1) * shape.vocabulary * FLOAT32 * copies
