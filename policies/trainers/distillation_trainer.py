# pyright: basic
"""Critique distillation: a policy learns to answer x as it does when it sees (x, y~, f(x, y~)).

The teacher is the policy before training, and it sees the draft y~ and the critique f of it; the
student sees x alone. Over the tokens of refinements z that the teacher drew, the training minimises

    D( pi_{t-1}(. | x, y~, f, z_<i) || pi_theta(. | x, z_<i) )

over the whole vocabulary: context distillation (Askell et al., 2021; Snell et al., 2022) whose
context is a critique. TRL's DistillationTrainer shows teacher and student the same prompt, and
draws the answers itself; here they are rows of the lake. Each token of an optimizer step has the
same weight, however the step is divided into passes.
"""

import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from peft import get_peft_model
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments
from trl.models.utils import prepare_fsdp
from trl.trainer.utils import disable_dropout_in_model

from ...stores.records import Message
from ..engines.chat import ChatTokenizer
from .adapters import computing_type, peft_config
from .base_trainer import BaseTrainer
from .job import TrainingError, TrainJob
from .next_token import METRIC
from .rows import IGNORED, chat_form, fit_turns, load_data
from .sequences import Pass, Spoken, answer_logits, padded
from .sharded_training import is_sharded, loaded_in_each_process
from .trl_trainer import common_arguments, fitted, load_model, load_trained, refuse_world

logger = logging.getLogger(__name__)

AGREEMENT, ENTROPY = "teacher/agreement", "teacher/entropy"
"""How often the student's likeliest token is the teacher's; the teacher's mean entropy, in nats."""
TEACHER, STUDENT = "teacher_", "student_"
NAMES = ("ids", "mask", "positions")


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p || q) = sum_v p_v (log p_v - log q_v) of log-probabilities (..., V), in nats."""
    return (p.exp() * (p - q)).sum(dim=-1)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(q || p): the student learns to avoid what the teacher does not say."""
    return kl(q, p)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2: at most log 2."""
    middle = torch.logaddexp(p, q) - math.log(2)
    return (kl(p, middle) + kl(q, middle)) / 2


DIVERGENCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "forward_kl": kl,
    "reverse_kl": reverse_kl,
    "jsd": jensen_shannon,
}
"""Of teacher p and student q, by the names that `training.distil.divergence` takes."""


def entropy(p: Tensor) -> Tensor:
    """Return -sum_v p_v log p_v of log-probabilities (..., V)."""
    return -(p.exp() * p).sum(dim=-1)


@dataclass
class DistillationArguments(TrainingArguments):
    """The arguments of a training, with the most tokens of a row."""

    max_length: int = 2048


def make_distillation_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build the trainer of a job of critique distillation."""
    args = DistillationArguments(
        remove_unused_columns=False,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        **common_arguments(job),
    )
    refuse_world(job, args.world_size)
    thinking = fit_turns(job, tokenizer)
    with PartialState().main_process_first():
        rows = encoded_rows(job, load_data(job, thinking))
    model: Any = load_trained(job)
    disable_dropout_in_model(model)  # The teacher may be this model, and must be deterministic.
    adapters = peft_config(job.fit, "CAUSAL_LM")
    if adapters is not None:
        model = get_peft_model(model, adapters)
        if args.gradient_checkpointing:
            model.enable_input_require_grads()
    trainer: Any = CritiqueDistillationTrainer(
        settings=job.settings,
        teacher=None if job.fit.adapts and job.reference is None else load_teacher(job),
        model=model,
        args=args,
        train_dataset=rows,
        data_collator=collated,
        processing_class=tokenizer,
    )
    return fitted(job, trainer)


def load_teacher(job: TrainJob) -> Any:
    """Load the frozen teacher, in the type in which engines compute."""
    with loaded_in_each_process():
        model: Any = load_model(job, job.reference or job.model, {"dtype": computing_type(job)})
    return model.eval().requires_grad_(requires_grad=False)


def encoded_rows(job: TrainJob, data: Dataset) -> Dataset:
    """Return the token ids of the rows that fit the length of the training.

    `prompt_ids` is the student's prompt, `input_ids` the teacher's and the answer, which has
    `answer_tokens`. An answer that is too long is cut.

    Raises:
        TrainingError: of kind `refused`, if no row is left.
    """
    chat = ChatTokenizer.of(job.model, job.template, chat_form(job))
    longest = job.settings.max_length

    def encode(row: Mapping[str, Any]) -> dict[str, Any]:
        prompt, answer = chat.parted(_conversation(row, "prompt"))
        shown, again = chat.parted(_conversation(row, "teacher_prompt"))
        room = longest - max(len(prompt), len(shown))
        learned = answer[: max(room, 0)] if answer == again else []
        return {
            "prompt_ids": prompt,
            "input_ids": [*shown, *learned],
            "answer_tokens": len(learned),
        }

    encoded = data.map(encode, remove_columns=data.column_names)
    kept = encoded.filter(lambda count: count > 0, input_columns="answer_tokens")
    if len(kept) < len(encoded):
        logger.warning(
            "%d of %d distillations are left out: with draft and critique their prompt fills "
            "training.distil.max_length=%d, or the template renders their answer in two ways",
            len(encoded) - len(kept),
            len(encoded),
            longest,
        )
    if not len(kept):
        raise TrainingError(
            "refused",
            f"no distillation is shorter than {longest} tokens with its draft and critique; raise "
            "training.distil.max_length",
        )
    return kept


def _conversation(row: Mapping[str, Any], prompt: str) -> tuple[Message, ...]:
    return tuple(Message(**turn) for turn in (*row[prompt], *row["completion"]))


def collated(rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """Return rows as two passes over the same answers, the teacher's and the student's."""
    cpu, every = torch.device("cpu"), list(range(len(rows)))
    ends = [len(row["input_ids"]) - row["answer_tokens"] for row in rows]
    shown = [tuple(row["input_ids"][:end]) for row, end in zip(rows, ends, strict=True)]
    answers = [tuple(row["input_ids"][end:]) for row, end in zip(rows, ends, strict=True)]
    asked = [tuple(row["prompt_ids"]) for row in rows]
    batch: dict[str, Tensor] = {}
    for side, prompts in ((TEACHER, shown), (STUDENT, asked)):
        both = zip(prompts, answers, strict=True)
        spoken = [Spoken(prompt=prompt, answer=answer) for prompt, answer in both]
        work = padded(spoken, every, cpu)
        batch |= {f"{side}{name}": getattr(work, name) for name in NAMES}
    labels = batch[f"{STUDENT}ids"].masked_fill(batch[f"{STUDENT}mask"] == 0, IGNORED)
    labels[:, : max(map(len, asked))] = IGNORED
    return {**batch, "labels": labels}


class CritiqueDistillationTrainer(BaseTrainer):
    """Minimises the divergence of a student from a teacher that sees more, over the same answers.

    Without a `teacher`, it is the model without its adapters.
    """

    def __init__(self, *, settings: Any, teacher: Any | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            raise TrainingError(
                "refused",
                "critique-distillation needs a second model, which DeepSpeed does not divide here: "
                "train with DDP, training.sharding=fsdp2 or LoRA",
            )
        # A step's loss is the sum over the tokens of all its passes, divided by their number.
        self.model_accepts_loss_kwargs = True
        self.divergence = DIVERGENCES[settings.divergence]
        self.temperature = settings.temperature
        self.teacher = teacher
        if teacher is not None:
            sharded = is_sharded()
            self.teacher = (
                prepare_fsdp(teacher, self.accelerator)
                if sharded
                else teacher.to(self.accelerator.device)
            )
        self.seen = dict.fromkeys((AGREEMENT, ENTROPY, "tokens"), 0.0)
        self._metrics: dict[str, dict[str, list[float]]] = {"train": {METRIC: []}}

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the base class decides
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the divergence of a pass, as its part of the mean over the step's tokens."""
        learned = inputs["labels"] != IGNORED
        with torch.no_grad(), self._teacher(model) as teacher:
            p = self._logprobs(teacher, _work(inputs, TEACHER), learned)
        q = self._logprobs(model, _work(inputs, STUDENT), learned)
        tokens = q.shape[0]
        total = self.divergence(p, q).sum()
        self._note(p, q.detach())
        if num_items_in_batch is None:
            loss = total / tokens
        else:
            # Gradients are averaged over the processes, each of which has its own tokens.
            loss = total / num_items_in_batch * self.accelerator.num_processes
        return (loss, {"logprobs": q}) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the teacher's metrics on the tokens since the last log."""
        if self.seen["tokens"]:
            logs |= {name: self.seen[name] / self.seen["tokens"] for name in (AGREEMENT, ENTROPY)}
            self.seen = dict.fromkeys(self.seen, 0.0)
        if losses := self._metrics["train"][METRIC]:
            logs[METRIC] = fmean(losses)
            losses.clear()
        super().log(logs, start_time)

    @contextmanager
    def _teacher(self, model: Any) -> Generator[Any]:
        """Yield the teacher; of a model with adapters it is the model below them."""
        if self.teacher is not None:
            yield self.teacher
            return
        below: Any = self.accelerator.unwrap_model(model)
        with below.disable_adapter():
            yield model

    def _logprobs(self, model: Any, work: Pass, learned: Tensor) -> Tensor:
        """Return the log-probabilities of all tokens at each learned place, (N, V)."""
        width = work.answers.shape[1]
        logits = answer_logits(model, work)[learned[:, -width:]]
        scaled = logits if self.temperature == 1 else logits / self.temperature
        return scaled.log_softmax(dim=-1)

    def _note(self, p: Tensor, q: Tensor) -> None:
        agreed = (p.argmax(dim=-1) == q.argmax(dim=-1)).sum()
        numbers = (agreed, entropy(p).sum(), agreed.new_tensor(len(p)))
        sums = torch.stack([number.double() for number in numbers])
        # Not `gather_for_metrics`: at an epoch's end it drops numbers, after a resume others.
        every: Any = self.accelerator.gather(sums[None])
        for name, value in zip(self.seen, every.sum(dim=0).tolist(), strict=True):
            self.seen[name] += value


def _work(inputs: Mapping[str, Tensor], side: str) -> Pass:
    """Return a side's pass of a batch; teacher and student have answers of the same width."""
    ids, mask, positions = (inputs[f"{side}{name}"] for name in NAMES)
    width = int((inputs["labels"] != IGNORED).sum(dim=1).max())
    return Pass(
        rows=list(range(len(ids))),
        ids=ids,
        mask=mask,
        positions=positions,
        queries=ids.shape[1] - width,
    )
