"""The terms of a training on one device: weights, gradients, optimizer, activations.

All weights in float32 under AdamW take 16 bytes each; in bfloat16, with what bfloat16 lacks of
float32, 14. With adapters the model is frozen: it has neither gradients nor moments, and lies there
in bfloat16 on a GPU, or in 4 bits (QLoRA, Dettmers et al., 2023, arXiv 2305.14314).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml

from ..devices import cpu_type
from ..trainers.job import MEASURED_TOGETHER, ONLINE, Method
from ..trainers.training_fit import PIECE, PLAIN, TrainingFit
from .activations import (
    AUTOCAST,
    HALF,
    Adapters,
    Precision,
    TrainedLayers,
    forward_bytes,
    logits_bytes,
    tiled_head_bytes,
)
from .activations import PLAIN as FULL
from .inference import runtime
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .stage_memory import Term, fixed

NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in blocks of 64 with a scale of a byte each, and a scale of 256 scales."""
EIGHT_BIT_MOMENT = 1 + 4 / 256
"""Bytes of one of bitsandbytes' moments, in blocks of 256 with a scale each."""
UPDATED = 20
"""Bytes a number that `RemainderAdamW` takes for those that it updates together."""


MOMENTS, GRADIENTS, WEIGHTS = 1, 2, 3
"""The stages of ZeRO from which on these are divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPasses:
    """What a method's passes hold: they differ from SFT's in what is listed.

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
    "kto": MethodPasses(),  # its pass for the KL keeps nothing and ends before the answers' begins
    "dpo": MethodPasses(sequences=2),
    "reward": MethodPasses(sequences=2),
    # The student's and the teacher's log-probabilities, the teacher's probabilities, differences,
    # two gradients. The teacher's pass: logits, those that are learned, their log-probabilities.
    "distil": MethodPasses(logits=6, measured=1, measured_logits=3),
    "ppo": _ONLINE,
    "grpo": _ONLINE,
    "rloo": _ONLINE,
    "online_dpo": replace(_ONLINE, sequences=2),
    "quark": replace(_ONLINE, logits=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How `processes` divide a training, by ZeRO's stages (Rajbhandari et al., 2020, 1910.02054).

    Stage 1 divides the optimizer's moments, 2 also the gradients, 3 also the weights. `buckets`:
    DDP keeps a second copy of the gradients. `unknown` says why there is no arithmetic.
    """

    processes: int = 1
    stage: int = 0
    buckets: bool = False
    unknown: str = ""

    def part(self, stage: int) -> float:
        """Return the part that one device holds of what is divided from a stage on."""
        return 1 / self.processes if self.stage >= stage else 1

    def gathered_bytes(self, shape: ModelShape, number: int) -> int:
        """Return what is gathered of divided weights, of `number` bytes each, and its gradients.

        A layer, the next, and the gradients of one, which are summed in float32; embedding and
        output layer with their gradients, which stay while a step lasts.
        """
        if self.stage < WEIGHTS:
            return 0
        layer, ends = shape.matrices // shape.layers, shape.parameters - shape.matrices
        return number * (2 * layer + 2 * ends) + FLOAT32 * layer


def sharding_of(file: str | None, processes: int, kind: str = "none") -> Sharding:
    """Return how a training is divided: by the user's file for accelerate, or its `kind`."""
    if file is None:
        stage = 3 if kind == "fsdp2" else 0
        return Sharding(processes=processes, stage=stage, buckets=not stage and processes > 1)
    try:
        config: Any = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return Sharding(unknown=f"{file} cannot be read ({error})")
    if not isinstance(config, dict):
        return Sharding(unknown=f"{file} is not a file of accelerate's")
    return read_sharding(cast("Mapping[str, Any]", config), processes)


def read_sharding(config: Mapping[str, Any], processes: int) -> Sharding:
    """Return what a configuration of accelerate's says."""
    kind = str(config.get("distributed_type", "NO")).upper()
    if kind in ("NO", "MULTI_GPU", "MULTI_CPU"):
        return Sharding(processes=processes, buckets=processes > 1)
    if kind == "FSDP":
        fsdp: Mapping[str, Any] = config.get("fsdp_config") or {}
        strategy = str(fsdp.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
        whole_after = fsdp.get("fsdp_reshard_after_forward", True) in (False, "false")
        stage = 2 if whole_after or strategy in ("2", "SHARD_GRAD_OP") else 3
        stage = 0 if strategy in ("3", "NO_SHARD") else stage
        offloaded = fsdp.get("fsdp_offload_params") in (True, "true")
    elif kind == "DEEPSPEED":
        deepspeed: Mapping[str, Any] = config.get("deepspeed_config") or {}
        if "deepspeed_config_file" in deepspeed:
            return Sharding(unknown="not known: the file names another, by deepspeed_config_file")
        stage = int(deepspeed.get("zero_stage", 2))
        offloads = (deepspeed.get(f"offload_{part}_device") for part in ("optimizer", "param"))
        offloaded = any(device in ("cpu", "nvme") for device in offloads)
    else:
        return Sharding(unknown=f"not known for distributed_type {kind}")
    unknown = "not known for a training that is offloaded" if offloaded else ""
    return Sharding(processes=processes, stage=stage, unknown=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training on one device, in passes of `rows` rows of at most `length` tokens a sequence.

    `accumulation` counts the passes of an optimizer step. `reference`: a second, frozen model is
    loaded, the reference or the teacher. `answer` is the most that an answer has of the length, if
    the method computes whole logits; `reward_number` the bytes of a weight of the reward model.
    """

    method: Method
    rows: int
    length: int
    sharding: Sharding
    on_gpu: bool
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


def adapters_of(fit: TrainingFit) -> Adapters:
    """Return the adapters of a training; of rank 0 if it has none."""
    lora = fit.lora
    return Adapters(rank=lora.r, targets=lora.targets, dropout=lora.dropout > 0)


def body_number(fit: TrainingFit, *, on_gpu: bool) -> int:
    """Return the bytes of a weight that is not in 4 bits; frozen ones are halved on a GPU."""
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


def state_terms(
    shape: ModelShape, fit: TrainingFit, sharding: Sharding, *, on_gpu: bool, others: int = 0
) -> list[Term]:
    """Return weights, gradients and moments of a model, and of `others` more trained numbers."""
    trained, moment, wide = others + shape.parameters, float(FLOAT32), 0
    number = body_number(fit, on_gpu=on_gpu)
    frozen = matrix = 0
    if fit.optimizer == "adamw_8bit":
        # transformers leaves an embedding its moments in float32.
        moment, wide = EIGHT_BIT_MOMENT, 0 if fit.adapts else shape.embedding
    if fit.adapts:
        trained, number = others + adapters_of(fit).parameters(shape), FLOAT32
        frozen = body_bytes(shape, fit, on_gpu=on_gpu)
        # A pass takes one matrix at a time out of its 4 bits.
        matrix = BFLOAT16 * shape.hidden * shape.inner if fit.lora.quantise == "nf4" else 0
    remainder = FLOAT32 - number
    moments = 2 * (moment * (trained - wide) + FLOAT32 * wide) + remainder * trained
    sizes = {
        "frozen weights": frozen * sharding.part(WEIGHTS) + matrix,
        "adapters" if fit.adapts else "weights": number * trained * sharding.part(WEIGHTS),
        "gradients": number * trained * sharding.part(GRADIENTS),
        "optimizer": moments * sharding.part(MOMENTS),
        "DDP buckets": number * trained if sharding.buckets else 0,
    }
    return [fixed(name, size) for name, size in sizes.items() if size]


def training_terms(
    shape: ModelShape, work: Workload, reward: ModelShape | None = None
) -> list[Term]:
    """Return what a training holds at its peak, without the sampler of an online method.

    PPO trains a value model, too, of the size of the `reward` model; with adapters it is a second
    adapter on the policy's body. The reward model, if one rewards, is whole in the first process.
    """
    fit, sharding = work.fit, work.sharding
    body = shape.as_classifier() if work.method == "reward" else shape
    value = 0
    if work.method == "ppo":
        adapter = adapters_of(fit).parameters(shape) + shape.hidden + 1
        value = adapter if fit.adapts else (reward or shape).parameters
    states = state_terms(body, fit, sharding, on_gpu=work.on_gpu, others=value)
    least, most = _pass_bytes(shape, work, states)
    second = work.method in ONLINE or (work.method == "distil" and work.reference)
    networks = 1 + second + (work.method == "ppo")
    gathered = networks * sharding.gathered_bytes(shape, work.precision.narrow)
    scoring = 0 if reward is None else work.reward_number * reward.parameters
    return [
        *states,
        fixed("reference", _reference_bytes(shape, work, states)),
        fixed("gathered weights", gathered),
        fixed("reward model", scoring),
        Term(name="activations", least_bytes=least, most_bytes=most),
        runtime(on_gpu=work.on_gpu),
    ]


def _reference_bytes(shape: ModelShape, work: Workload, states: list[Term]) -> int:
    """Return what a second, frozen model adds to the peak.

    DPO and KTO ask it before they train: it takes the room of the later gradients and moments.
    """
    if not work.reference:
        return 0
    part = work.sharding.part(WEIGHTS)
    if work.method == "distil" or work.method in ONLINE:
        return round(part * (BFLOAT16 if work.on_gpu else FLOAT32) * shape.parameters)
    loaded = part * body_bytes(shape, work.fit, on_gpu=work.on_gpu)
    return max(0, round(loaded) - _sum_of(states, "gradients", "optimizer"))


def _pass_bytes(shape: ModelShape, work: Workload, states: list[Term]) -> tuple[int, int]:
    """Return the least and the most that passes and the optimizer's update hold for a while.

    The most is the largest of them. The first pass of an optimizer step has no gradients yet: if it
    is the only one, its activations take their place.
    """
    fit, precision, passes = work.fit, work.precision, PASSES[work.method]
    casts = 0
    if precision.is_mixed and work.sharding.stage < WEIGHTS:
        casts = precision.narrow * shape.matrices
    update = 0
    if fit.weights == "bfloat16" and not fit.adapts:
        update = UPDATED * min(PIECE, shape.embedding)
    if work.method == "quark" and work.on_gpu:
        # Its AdamW is not fused.
        update = FLOAT32 * _trained(shape, fit)
    update = round(update * work.sharding.part(MOMENTS))
    rows = passes.sequences * work.rows
    tokens, head = rows * work.length, 0
    if passes.logits:
        head = logits_bytes(shape, rows=rows, answer=work.answer, copies=passes.logits)
    elif work.method != "reward":
        head = tiled_head_bytes(
            shape, precision, tokens=tokens, on_gpu=work.on_gpu, frozen=fit.adapts
        )
    layers = TrainedLayers(
        shape=shape, precision=precision, adapters=adapters_of(fit), attention=fit.attention
    )
    recomputed = fit.recompute == "always"
    most = layers.pass_bytes(rows, work.length, recomputed=recomputed, casts=casts, head=head)
    if rows := passes.measured * work.rows:
        copies = passes.measured_logits
        logits = logits_bytes(shape, rows=rows, answer=work.answer, copies=copies)
        forward = forward_bytes(shape, precision, rows=rows, length=work.length)
        most = max(most, forward + casts + logits)
    if work.accumulation == 1 and work.method not in ONLINE:
        most -= _sum_of(states, "gradients")
    return update, max(update, most)


def _trained(shape: ModelShape, fit: TrainingFit) -> int:
    return adapters_of(fit).parameters(shape) if fit.adapts else shape.parameters


def _sum_of(terms: list[Term], *names: str) -> int:
    return sum(term.most_bytes for term in terms if term.name in names)
