"""What a training keeps of weights, gradients and moments, by how it fits on its devices.

All weights in float32 under AdamW take 16 bytes each, in bfloat16 and its remainder 14. With
adapters the model is frozen: it has neither gradients nor moments, and lies there in bfloat16 on a
GPU, or in 4 bits (QLoRA, Dettmers et al., 2023, arXiv 2305.14314).
"""

from dataclasses import dataclass, replace

from ..trainers.training_fit import PIECE, PLAIN, TrainingFit
from .adapter_sizes import Adapters
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .sharding import Sharding
from .verdicts import Holding, fixed

NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in blocks of 64 with a scale of a byte each, and a scale of 256 scales."""

EIGHT_BIT_MOMENT = 1 + 4 / 256
"""Bytes of one of bitsandbytes' moments, in blocks of 256 with a scale each."""

UPDATED = 20
"""Bytes a number that `RemainderAdamW` takes for those that it updates together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStates:
    """Bytes of a frozen model, and the `trained` numbers of `number` bytes, as their gradients.

    `moment` are the bytes of one of AdamW's two moments, float32 of `wide` numbers all the same;
    `remainder` those of what bfloat16 lacks of float32. `largest` are the bytes of the largest
    matrix that a pass takes out of its 4 bits, `update` those that a step takes for a while.
    """

    trained: int
    number: int = FLOAT32
    moment: float = FLOAT32
    wide: int = 0
    remainder: int = 0
    frozen: int = 0
    largest: int = 0
    update: int = 0

    def gradient_bytes(self, sharding: Sharding) -> int:
        """Return the gradients on one device."""
        return sharding.part_bytes("gradients", self.number * self.trained)

    def moment_bytes(self, sharding: Sharding) -> int:
        """Return both moments, and what the optimizer keeps beside them, on one device."""
        moments = 2 * (self.moment * (self.trained - self.wide) + FLOAT32 * self.wide)
        return sharding.part_bytes("moments", moments + self.remainder * self.trained)

    def parts(self, sharding: Sharding) -> list[Holding]:
        """Return what lies on one device, and what exchanges gradients."""
        weights = "adapters" if self.frozen else "weights"
        sizes = {
            "frozen weights": sharding.part_bytes("weights", self.frozen),
            weights: sharding.part_bytes("weights", self.number * self.trained),
            "gradients": self.gradient_bytes(sharding),
            "moments": self.moment_bytes(sharding),
            "DDP's buckets": sharding.bucket_bytes(self.number * self.trained),
            "a matrix out of its 4 bits": self.largest,
        }
        return [fixed(name, size) for name, size in sizes.items() if size]

    def and_also(self, others: int) -> "TrainedStates":
        """Return the states with more numbers that are trained."""
        return replace(self, trained=self.trained + others)


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


def states_of(shape: ModelShape, fit: TrainingFit = PLAIN, *, on_gpu: bool) -> TrainedStates:
    """Return what a training of a model keeps."""
    moment = EIGHT_BIT_MOMENT if fit.optimizer == "adamw_8bit" else FLOAT32
    if fit.weights == "bfloat16" and not fit.adapts:
        return TrainedStates(
            trained=shape.parameters,
            number=BFLOAT16,
            remainder=BFLOAT16,
            update=UPDATED * min(PIECE, shape.embedding),
        )
    if not fit.adapts:
        # transformers leaves an embedding its moments in float32.
        wide = shape.embedding if moment < FLOAT32 else 0
        return TrainedStates(trained=shape.parameters, moment=moment, wide=wide)
    quantised = fit.lora.quantise == "nf4"
    return TrainedStates(
        trained=adapters_of(fit).parameters(shape),
        moment=moment,
        frozen=body_bytes(shape, fit, on_gpu=on_gpu),
        largest=BFLOAT16 * shape.hidden * shape.inner if quantised else 0,
    )
