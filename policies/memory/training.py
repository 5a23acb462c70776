"""The terms of a training on one device: weights, gradients, optimizer, activations.

All weights in float32 under AdamW take 16 bytes each; in bfloat16 with the remainders to float32,
14. With adapters the model is frozen: it has neither gradients nor moments, and is loaded in
bfloat16 on a GPU, or in 4 bits (QLoRA, Dettmers et al., 2023, arXiv 2305.14314).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..devices import cpu_type
from ..trainers.job import MEASURED_TOGETHER, ONLINE, Method
from ..trainers.training_fit import PIECE, PLAIN, TrainingFit
from .activations import (
    AUTOCAST,
    FULL,
    HALF,
    Precision,
    adapter_parameters,
    forward_bytes,
    logits_bytes,
    pass_bytes,
    tiled_head_bytes,
)
from .inference import runtime
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .stage_memory import Term, fixed

NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in blocks of 64 with a scale of a byte each, and a scale of 256 scales."""
EIGHT_BIT_MOMENT = 1 + 4 / 256
"""Bytes of one of bitsandbytes' moments, in blocks of 256 with a scale each."""
UPDATED = 20
"""Bytes a number that `RemainderAdamW` takes for the numbers that it updates together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPasses:
    """The tensors in a method's passes, as differences from SFT's.

    A row is `sequences` sequences. `logits` are the float32 copies of the answers' whole logits in
    a backward pass; with 0 the output layer is computed in tiles. A pass without gradients is over
    `measured` times as many rows, with `measured_logits` such copies.
    """

    sequences: int = 1
    logits: int = 0
    measured: int = 0
    measured_logits: int = 0


# Learning: logits, those at the temperature, the gradient of their sum of exponentials, the sum of
# gradients. Measuring: two models' logits, log-probabilities, exponentials, products.
_ONLINE = MethodPasses(logits=4, measured=MEASURED_TOGETHER, measured_logits=5)

PASSES: Mapping[Method, MethodPasses] = {
    "sft": MethodPasses(),
    "kto": MethodPasses(),  # its pass for the KL keeps no tensors and ends before the answers'
    "dpo": MethodPasses(sequences=2),
    "reward": MethodPasses(sequences=2),
    "ppo": _ONLINE,
    "grpo": _ONLINE,
    "rloo": _ONLINE,
    "online_dpo": replace(_ONLINE, sequences=2),
    "quark": replace(_ONLINE, logits=8),
}


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
    def precision(self) -> Precision:
        """The types of a pass: under bfloat16 autocast on a GPU, or a CPU that multiplies it."""
        if body_number(self.fit, on_gpu=self.on_gpu) == BFLOAT16:
            return HALF
        narrow = published_number(self.fit, on_gpu=False) == BFLOAT16 and self.method != "reward"
        return AUTOCAST if self.on_gpu or (narrow and cpu_type() == "bfloat16") else FULL

    @property
    def part(self) -> float:
        """The part of a divided model on one device."""
        return 1 / self.processes if self.divided else 1

    @property
    def copies_gradients(self) -> bool:
        """Whether DDP keeps a second copy of the gradients; online methods average in place."""
        return self.processes > 1 and not self.divided and self.method not in ONLINE


def body_number(fit: TrainingFit, *, on_gpu: bool) -> int:
    """Return the bytes of a weight that is not in 4 bits; frozen weights are halved on a GPU."""
    halved = on_gpu if fit.adapts else fit.weights == "bfloat16"
    return BFLOAT16 if halved else FLOAT32


def published_number(fit: TrainingFit, *, on_gpu: bool) -> int:
    """Return the bytes of a weight of the model that a training publishes."""
    halved = on_gpu if fit.publish == "auto" else fit.publish != "float32"
    return BFLOAT16 if halved else FLOAT32


def body_bytes(shape: ModelShape, fit: TrainingFit, *, on_gpu: bool) -> int:
    """Return a model's weights as a training loads them; embedding and output layer stay whole."""
    number = body_number(fit, on_gpu=on_gpu)
    if fit.lora.quantise != "nf4":
        return number * shape.parameters
    return round(NF4 * shape.matrices + number * (shape.parameters - shape.matrices))


def state_terms(shape: ModelShape, work: Workload, *, others: int = 0) -> list[Term]:
    """Return weights, gradients and moments of a model, and of `others` more trained numbers."""
    fit, part = work.fit, work.part
    trained, moment, wide = others + shape.parameters, float(FLOAT32), 0
    number = body_number(fit, on_gpu=work.on_gpu)
    frozen = matrix = 0
    if fit.optimizer == "adamw_8bit":
        # transformers leaves an embedding its moments in float32.
        moment, wide = EIGHT_BIT_MOMENT, 0 if fit.adapts else shape.embedding
    if fit.adapts:
        trained, number = others + adapter_parameters(shape, fit.lora), FLOAT32
        frozen = body_bytes(shape, fit, on_gpu=work.on_gpu)
        # A pass takes one matrix at a time out of its 4 bits.
        matrix = BFLOAT16 * shape.hidden * shape.inner if fit.lora.quantise == "nf4" else 0
    remainder = FLOAT32 - number
    moments = 2 * (moment * (trained - wide) + FLOAT32 * wide) + remainder * trained
    sizes = {
        "frozen weights": frozen * part + matrix,
        "adapters" if fit.adapts else "weights": number * trained * part,
        "gradients": number * trained * part,
        "optimizer": moments * part,
        "DDP buckets": number * trained if work.copies_gradients else 0,
    }
    return [fixed(name, size) for name, size in sizes.items() if size]


def training_terms(
    shape: ModelShape, work: Workload, reward: ModelShape | None = None
) -> list[Term]:
    """Return the peak memory of a training, without the sampler of an online method.

    PPO trains a value model, too, of the size of the `reward` model; with adapters it is a second
    adapter on the policy's body. The reward model, if one rewards, is whole in the first process.
    """
    body = shape.as_classifier() if work.method == "reward" else shape
    value = 0
    if work.method == "ppo":
        adapter = adapter_parameters(shape, work.fit.lora) + shape.hidden + 1
        value = adapter if work.fit.adapts else (reward or shape).parameters
    states = state_terms(body, work, others=value)
    least, most = _pass_bytes(shape, work, states)
    networks = 1 + (work.method in ONLINE) + (work.method == "ppo")
    scoring = 0 if reward is None else work.reward_number * reward.parameters
    return [
        *states,
        fixed("reference", _reference_bytes(shape, work, states)),
        fixed("gathered weights", networks * _gathered_bytes(shape, work)),
        fixed("reward model", scoring),
        Term(name="activations", least_bytes=least, most_bytes=most),
        runtime(on_gpu=work.on_gpu),
    ]


def _gathered_bytes(shape: ModelShape, work: Workload) -> int:
    """Return the bytes of a divided model that a pass gathers.

    A layer, the next, and the gradients of one, which are summed in float32; embedding and output
    layer with their gradients, which stay while a step lasts.
    """
    if not work.divided:
        return 0
    layer, ends = shape.matrices // shape.layers, shape.parameters - shape.matrices
    return work.precision.narrow * (2 * layer + 2 * ends) + FLOAT32 * layer


def _reference_bytes(shape: ModelShape, work: Workload, states: list[Term]) -> int:
    """Return the addition of a second, frozen model to the peak, in bytes.

    DPO and KTO use it before they train: it takes the room of the later gradients and moments.
    """
    if not work.reference:
        return 0
    if work.method in ONLINE:
        return round(work.part * (BFLOAT16 if work.on_gpu else FLOAT32) * shape.parameters)
    loaded = work.part * body_bytes(shape, work.fit, on_gpu=work.on_gpu)
    return max(0, round(loaded) - _sum_of(states, "gradients", "optimizer"))


def _pass_bytes(shape: ModelShape, work: Workload, states: list[Term]) -> tuple[int, int]:
    """Return the least and the most bytes of passes and the optimizer's update.

    The most is the largest of them. In the first pass of an optimizer step the gradients do not
    exist yet: if it is the only one, its activations take their room.
    """
    fit, precision, passes = work.fit, work.precision, PASSES[work.method]
    casts = precision.narrow * shape.matrices if precision.is_mixed and not work.divided else 0
    update = 0
    if fit.weights == "bfloat16" and not fit.adapts:
        update = round(UPDATED * min(PIECE, shape.embedding) * work.part)
    rows, head = passes.sequences * work.rows, 0
    if passes.logits:
        head = logits_bytes(shape, rows=rows, answer=work.answer, copies=passes.logits)
    elif work.method != "reward":
        tokens = rows * work.length
        head = tiled_head_bytes(
            shape, precision, tokens=tokens, on_gpu=work.on_gpu, frozen=fit.adapts
        )
    most = pass_bytes(shape, precision, fit, rows=rows, length=work.length, casts=casts, head=head)
    if rows := passes.measured * work.rows:
        copies = passes.measured_logits
        logits = logits_bytes(shape, rows=rows, answer=work.answer, copies=copies)
        forward = forward_bytes(shape, precision, rows=rows, length=work.length)
        most = max(most, forward + casts + logits)
    if work.accumulation == 1 and work.method not in ONLINE:
        most -= _sum_of(states, "gradients")
    return update, max(update, most)


def _sum_of(terms: list[Term], *names: str) -> int:
    return sum(term.most_bytes for term in terms if term.name in names)
