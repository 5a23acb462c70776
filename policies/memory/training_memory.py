"""What trainings hold on one device, as `trl_trainer`, `reward_trainer` and `online` make them.

Weights, gradients and AdamW's moments are float32: 16 bytes a parameter in every process, and 20
under plain data parallelism, whose buckets hold the gradients once more.
"""

from dataclasses import dataclass

from ..trainers.trainer_job import LARGE, MEASURED_TOGETHER, Method
from .activations import (
    AUTOCAST,
    PLAIN,
    Precision,
    TrainingPass,
    chunked_head_bytes,
    forward_bytes,
    logits_bytes,
)
from .engine_memory import CUDA_BYTES, PROCESS_BYTES
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .sharding import Sharding
from .verdicts import Holding, at_most, fixed

PAIRED: tuple[Method, ...] = ("dpo", "reward")
"""Methods whose row is two sequences: the chosen and the rejected answer."""

LEARNED_COPIES = 4
"""float32 copies of whole logits in a backward pass: the logits, those at the temperature, the
gradient of their sum of exponentials, the sum of gradients."""

MEASURED_COPIES = 5
"""The same without gradients: two models' logits, log-probabilities, exponentials, products."""

CANARY_COPIES = 3
"""float32 copies of a row's logits in the canary: whole, of the answer, log-probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training on one device: `rows` sequences a pass, of at most `length` tokens.

    `accumulation` counts the passes of an optimizer step. `reference`: another model than the one
    that is trained is the reference, and stays beside it. An online method's `answer` is the most
    that an answer has of the length.
    """

    method: Method
    rows: int
    length: int
    accumulation: int
    sharding: Sharding
    on_gpu: bool
    reference: bool = False
    answer: int = 0

    @property
    def precision(self) -> Precision:
        """The types of a pass: under bfloat16 autocast on a GPU alone."""
        return AUTOCAST if self.on_gpu else PLAIN

    def cast_bytes(self, shape: ModelShape) -> int:
        """Return autocast's copies of the matrices; divided weights have them as they gather."""
        whole = self.precision.is_mixed and "weights" not in self.sharding.divided
        return self.precision.narrow * shape.matrices if whole else 0

    def passing(self, shape: ModelShape, *, head: int) -> int:
        """Return what a forward and a backward pass hold; `head`: what the output layer does."""
        made = TrainingPass(
            rows=self.rows,
            length=self.length,
            precision=self.precision,
            recomputed=is_recomputed(shape),
            casts=self.cast_bytes(shape),
            head=head,
        )
        return made.kept_bytes(shape)

    @property
    def runtime(self) -> Holding:
        """What the process itself takes."""
        return fixed("CUDA", CUDA_BYTES) if self.on_gpu else fixed("process", PROCESS_BYTES)


def is_recomputed(shape: ModelShape) -> bool:
    """Whether activations are recomputed, by the size of the files, as the trainers ask it."""
    return shape.file_bytes > BFLOAT16 * LARGE


def state_parts(parameters: int, sharding: Sharding) -> list[Holding]:
    """Return weights, gradients and moments on one device, and what exchanges gradients."""
    states = [
        fixed(name, sharding.state_bytes(parameters, name))
        for name in ("weights", "gradients", "moments")
    ]
    return [*states, fixed("DDP's buckets", sharding.bucket_bytes(parameters))]


def trl_parts(shape: ModelShape, work: Workload) -> list[Holding]:
    """Return what DPO, SFT or a reward model's training holds at its peak.

    The passes of an optimizer step leave gradients: the first pass has none yet, so with one pass
    alone its activations take the gradients' place. The reference's log-probabilities are computed
    before; a reference of its own stays loaded.
    """
    trained = shape.as_classifier() if work.method == "reward" else shape
    tokens = work.rows * work.length
    rewarding = work.method == "reward"
    head = 0 if rewarding else chunked_head_bytes(shape, work.precision, tokens=tokens)
    passing = work.passing(shape, head=head)
    if work.accumulation == 1:
        passing = max(0, passing - work.sharding.state_bytes(trained.parameters, "gradients"))
    reference = work.sharding.state_bytes(shape.parameters, "weights") if work.reference else 0
    return [
        *state_parts(trained.parameters, work.sharding),
        fixed("reference", reference),
        fixed("gathered weights", work.sharding.gathered_bytes(shape)),
        at_most("pass", passing),
        work.runtime,
    ]


def online_parts(shape: ModelShape, reward: ModelShape | None, work: Workload) -> list[Holding]:
    """Return what PPO or Quark holds in the trainer's process, the sampler left out.

    The policy, for PPO also the value model (the reward model's backbone), each with gradients and
    moments; the reference (bfloat16 on a GPU); the reward model as it is saved. At a time, the
    larger of three: a backward pass of one of the two; a measuring pass over `MEASURED_TOGETHER`
    times as many rows with whole logits; the weights' copy that the sampler reads. Quark's AdamW
    is not fused, and on a GPU holds its update once more.
    """
    value = shape if reward is None else reward
    trained = shape.parameters + (value.parameters if work.method == "ppo" else 0)
    narrow = BFLOAT16 if work.on_gpu else FLOAT32
    saved = 0 if reward is None else (reward.file_bytes if work.on_gpu else 4 * reward.parameters)
    update = FLOAT32 * trained if work.method == "quark" and work.on_gpu else 0
    copy = BFLOAT16 * shape.parameters if work.on_gpu else 0
    passing = max(_learning(shape, work), _measuring(shape, work), update, copy)
    return [
        *state_parts(trained, work.sharding),
        fixed("reference", narrow * shape.parameters),
        fixed("reward model", saved),
        Holding(name="pass", least_bytes=max(update, copy), most_bytes=passing),
        work.runtime,
    ]


def _learning(shape: ModelShape, work: Workload) -> int:
    """Return the backward pass of the policy: its activations and whole logits of the answers."""
    copies = LEARNED_COPIES * (2 if work.method == "quark" else 1)
    logits = logits_bytes(shape, rows=work.rows, answer=work.answer, copies=copies)
    return work.passing(shape, head=logits)


def _measuring(shape: ModelShape, work: Workload) -> int:
    """Return the pass without gradients over more rows, under policy and reference."""
    rows = MEASURED_TOGETHER * work.rows
    passing = forward_bytes(shape, work.precision, rows=rows, length=work.length)
    logits = logits_bytes(shape, rows=rows, answer=work.answer, copies=MEASURED_COPIES)
    return passing + work.cast_bytes(shape) + logits


def canary_parts(shape: ModelShape, work: Workload) -> list[Holding]:
    """Return what the canary holds: the whole model in float32, one row, on the first device."""
    passing = forward_bytes(shape, PLAIN, rows=1, length=work.length)
    logits = logits_bytes(shape, rows=1, answer=work.length, copies=CANARY_COPIES)
    return [
        fixed("weights", FLOAT32 * shape.parameters),
        at_most("pass", passing + logits),
        work.runtime,
    ]
