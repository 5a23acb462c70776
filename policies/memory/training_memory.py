"""What trainings hold on one device, as `trl_trainer`, `reward_trainer` and `online` make them."""

from dataclasses import dataclass, replace

from ..devices import cpu_type
from ..trainers.job import LARGE, MEASURED_TOGETHER, Method
from ..trainers.training_fit import PLAIN, TrainingFit
from .activations import (
    AUTOCAST,
    HALF,
    Precision,
    TrainingPass,
    chunked_head_bytes,
    forward_bytes,
    logits_bytes,
)
from .activations import PLAIN as WHOLE
from .engine_memory import CUDA_BYTES, PROCESS_BYTES, precision_of
from .shapes import BFLOAT16, FLOAT32, ModelShape
from .sharding import Sharding
from .states import adapters_of, body_bytes, body_number, published_number, states_of
from .verdicts import Holding, at_most, fixed

PAIRED: tuple[Method, ...] = ("dpo", "reward")
"""Methods whose row is two sequences: the chosen and the rejected answer."""

REFERENCED: tuple[Method, ...] = ("dpo", "kto")
"""Methods that ask a reference policy, before they train."""

LEARNED_COPIES = 4
"""float32 copies of whole logits in a backward pass: the logits, those at the temperature, the
gradient of their sum of exponentials, the sum of gradients."""

MEASURED_COPIES = 5
"""The same without gradients: two models' logits, log-probabilities, exponentials, products."""

DISTILLED_COPIES = 6
"""float32 copies of whole logits in a student's backward pass: both log-probabilities, the
teacher's probabilities, their differences, two gradients. With divergence=jsd some more."""

TAUGHT_COPIES = 3
"""The same in the teacher's pass: logits, those that are learned, their log-probabilities."""

CANARY_COPIES = 3
"""float32 copies of a row's logits in the canary: whole, of the answer, log-probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training on one device: `rows` sequences a pass, of at most `length` tokens.

    `accumulation` counts the passes of an optimizer step. `reference`: another model than the one
    that is trained is the reference, or the teacher, and stays beside it. `answer` is the most that
    an answer has of the length, where whole logits are of answers alone; `reward_number` the bytes
    of an online method's reward model's weights.
    """

    method: Method
    rows: int
    length: int
    accumulation: int
    sharding: Sharding
    on_gpu: bool
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
        return AUTOCAST if self.on_gpu or (narrow and cpu_type() == "bfloat16") else WHOLE

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
            recomputed=is_recomputed(shape, self.fit),
            casts=self.cast_bytes(shape),
            head=head,
            adapters=adapters_of(self.fit),
            attention=self.fit.attention,
        )
        return made.kept_bytes(shape)


def is_recomputed(shape: ModelShape, fit: TrainingFit) -> bool:
    """Whether activations are recomputed, by the size of the files, as the trainers ask it."""
    if fit.recompute == "auto":
        return shape.file_bytes > BFLOAT16 * LARGE
    return fit.recompute == "always"


def trl_parts(shape: ModelShape, work: Workload) -> list[Holding]:
    """Return what DPO, KTO, SFT or a reward model's training holds at its peak.

    The passes of an optimizer step leave gradients: the first pass has none yet, so with one pass
    alone its activations take the gradients' place. The reference's log-probabilities are computed
    before: a reference of its own lies beside the weights while there are no gradients and moments.
    KTO's pass for the KL keeps no activations, and is over before that of its answers begins.
    """
    rewarding = work.method == "reward"
    trained = shape.as_classifier() if rewarding else shape
    states = states_of(trained, work.fit, on_gpu=work.on_gpu)
    head = 0 if rewarding else _chunked_head(shape, work)
    passing = work.passing(shape, head=head)
    if work.accumulation == 1:
        passing = max(0, passing - states.gradient_bytes(work.sharding))
    loaded = body_bytes(shape, work.fit, on_gpu=work.on_gpu) if work.reference else 0
    later = states.gradient_bytes(work.sharding) + states.moment_bytes(work.sharding)
    update = work.sharding.part_bytes("moments", states.update)
    return [
        *states.parts(work.sharding),
        fixed("reference", max(0, work.sharding.part_bytes("weights", loaded) - later)),
        fixed("gathered weights", work.sharding.gathered_bytes(shape, work.precision.narrow)),
        Holding(name="pass", least_bytes=update, most_bytes=max(update, passing)),
        runtime(on_gpu=work.on_gpu),
    ]


def distillation_parts(shape: ModelShape, work: Workload) -> list[Holding]:
    """Return what critique distillation holds at its peak.

    The teacher lies beside the trained model all along, unless it is what lies below the adapters.
    A backward pass of the student follows the teacher's, whose log-probabilities stay: both have
    whole logits of the answers.
    """
    states = states_of(shape, work.fit, on_gpu=work.on_gpu)
    narrow = BFLOAT16 if work.on_gpu else FLOAT32
    teacher = narrow * shape.parameters if work.reference else 0
    logits = logits_bytes(shape, rows=work.rows, answer=work.answer, copies=DISTILLED_COPIES)
    gathered = work.sharding.gathered_bytes(shape, work.precision.narrow)
    update = work.sharding.part_bytes("moments", states.update)
    passing = max(work.passing(shape, head=logits), _teaching(shape, work))
    if work.accumulation == 1:
        passing = max(0, passing - states.gradient_bytes(work.sharding))
    return [
        *states.parts(work.sharding),
        fixed("teacher", work.sharding.part_bytes("weights", teacher)),
        fixed("gathered weights", gathered * (2 if work.reference else 1)),
        Holding(name="pass", least_bytes=update, most_bytes=max(update, passing)),
        runtime(on_gpu=work.on_gpu),
    ]


def _teaching(shape: ModelShape, work: Workload) -> int:
    """Return the teacher's pass, without gradients."""
    passing = forward_bytes(shape, work.precision, rows=work.rows, length=work.length)
    logits = logits_bytes(shape, rows=work.rows, answer=work.answer, copies=TAUGHT_COPIES)
    return passing + work.cast_bytes(shape) + logits


def _chunked_head(shape: ModelShape, work: Workload) -> int:
    tokens, frozen = work.rows * work.length, work.fit.adapts
    return chunked_head_bytes(
        shape, work.precision, tokens=tokens, on_gpu=work.on_gpu, frozen=frozen
    )


def online_parts(shape: ModelShape, reward: ModelShape | None, work: Workload) -> list[Holding]:
    """Return what an online method holds in a trainer's process, the sampler left out.

    The policy, for PPO also the value model (the reward model's backbone), each with gradients and
    moments; the reference (bfloat16 on a GPU); the reward model, where one rewards. With adapters
    all three are one frozen body, the policy and the value model (which then begins as the policy)
    have an adapter each, and the reference is the body without one. At a time, the larger of two: a
    backward pass of one of the two, or a measuring pass over `MEASURED_TOGETHER` times as many rows
    with whole logits. Quark's AdamW is not fused, and on a GPU holds its update once more. A row
    that online DPO learns is a pair. Of divided networks each gathers its layers, and keeps its
    ends.
    """
    states = states_of(shape, work.fit, on_gpu=work.on_gpu)
    if work.method == "ppo":
        value = shape if reward is None else reward
        states = states.and_also(
            states.trained + shape.hidden + 1 if work.fit.adapts else value.parameters
        )
    narrow = BFLOAT16 if work.on_gpu else FLOAT32
    own = work.reference or not work.fit.adapts
    frozen = narrow * shape.parameters if own else 0
    scoring = 0 if reward is None else work.reward_number * reward.parameters
    unfused = work.method == "quark" and work.on_gpu
    update = work.sharding.part_bytes("moments", FLOAT32 * states.trained) if unfused else 0
    gathered = work.sharding.gathered_bytes(shape, work.precision.narrow)
    learned = replace(work, rows=2 * work.rows) if work.method == "online_dpo" else work
    passing = max(_learning(shape, learned), _measuring(shape, work), update)
    return [
        *states.parts(work.sharding),
        fixed("reference", work.sharding.part_bytes("weights", frozen)),
        fixed("gathered weights", gathered * (3 if work.method == "ppo" else 2)),
        fixed("reward model", scoring),
        Holding(name="pass", least_bytes=update, most_bytes=passing),
        runtime(on_gpu=work.on_gpu),
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


def canary_parts(shape: ModelShape, *, length: int, on_gpu: bool) -> list[Holding]:
    """Return what the canary holds: the whole model in the type of passes, one row."""
    number = BFLOAT16 if on_gpu else FLOAT32
    passing = forward_bytes(shape, precision_of(number), rows=1, length=length)
    logits = logits_bytes(shape, rows=1, answer=length, copies=CANARY_COPIES)
    return [
        fixed("weights", number * shape.parameters),
        at_most("pass", passing + logits),
        runtime(on_gpu=on_gpu),
    ]


def runtime(*, on_gpu: bool) -> Holding:
    """Return what a process itself takes."""
    return fixed("CUDA", CUDA_BYTES) if on_gpu else fixed("process", PROCESS_BYTES)
