# pyright: basic
"""The trained model: saved, read back, checked, and measured on its canary."""

import gc
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from ...stores.records import Message
from ..engines.canary import CANARY_ROWS, CanaryRow
from ..engines.chat import ChatTokenizer
from ..engines.chat_template import load_tokenizer
from ..engines.weight_files import weight_files
from .adapters import (
    CONFIG,
    computing_type,
    keep_adapter,
    merged,
    save_config,
    trained_config,
)
from .remainder_adamw import join_weights
from .sharded_training import save_whole
from .step_files import last_rollouts
from .trained_turns import chat_of
from .trainer_faults import TrainingError
from .trainer_job import ONLINE, TrainJob
from .training_fit import ADAPTER, KEPT, TrainingFit
from .trl_trainer import load_model

TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*")
TOKENIZER_FILES += ("vocab.*", "merges.txt", "*.model", "generation_config.json")
LEAST_KEPT = 0.1
"""A smaller share is no training."""

ANSWER = {"dpo": "chosen", "sft": "completion", "distil": "completion", "kto": "completion"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a finished training reports; an online method leaves its `history` in its rows."""

    steps: int
    max_steps: int
    rows: int
    metrics: dict[str, float]
    seconds: dict[str, float]
    history: list[dict[str, float]] = field(default_factory=list)


def assemble_model(job: TrainJob, saved: Path) -> dict[str, float]:
    """Build the model's folder from the weights and config that the trainer saved.

    Adapters are merged into the weights, and kept beside them; what is returned says how much of
    them rounding left (`KEPT`). Tokenizer, template and generation
    files are copied unchanged from the starting model, but for a template that was named in its
    place.
    """
    model = job.folder("model")
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir()
    adapted = (saved / CONFIG).is_file()
    whole, told = merge_adapter(job, saved) if adapted else (saved, {})
    publish_in_type(whole, published_type(job.fit))
    for pattern in ("config.json", "*.safetensors", "*.safetensors.index.json"):
        for path in whole.glob(pattern):
            path.rename(model / path.name)
    if adapted:
        keep_adapter(saved, job.model.name, model / ADAPTER)
    copy_tokenizer(job.model, model)
    if job.template is not None:
        template = load_tokenizer(job.model, job.template).chat_template
        (model / "chat_template.jinja").write_text(template, "utf-8")
    shutil.rmtree(saved)
    return told


def published_type(fit: TrainingFit) -> torch.dtype:
    """Return the type of the published weights."""
    if fit.publish == "auto":
        return computing_type() if fit.adapts else torch.float32
    return getattr(torch, fit.publish)


def save_trained(job: TrainJob, trainer: Any, saved: Path) -> None:
    """Save what was trained: the adapters, or all weights with the bits that they were kept in."""
    if job.fit.weights == "bfloat16":
        join_weights(trainer.model)
    save_whole(trainer, saved)
    if job.fit.adapts and trainer.is_world_process_zero():
        save_config(trainer.model, saved)


def merge_adapter(job: TrainJob, saved: Path) -> tuple[Path, dict[str, float]]:
    """Merge the adapters that were saved into the model they were trained on.

    Return its folder, and how much of them rounding left.
    """
    kind = AutoModelForSequenceClassification if job.method == "reward" else AutoModelForCausalLM
    arguments = {"dtype": "auto", "config": trained_config(saved), "trust_remote_code": False}
    base = kind.from_pretrained(job.model, local_files_only=True, use_safetensors=True, **arguments)
    whole = saved / "merged"
    model, kept = merged(base, saved, published_type(job.fit))
    model.save_pretrained(whole)
    return whole, {KEPT: kept}


def publish_in_type(saved: Path, published: torch.dtype) -> None:
    """Give saved weights the type in which they are published."""
    for file in weight_files(saved):
        tensors = load_file(file)
        if any(t.is_floating_point() and t.dtype != published for t in tensors.values()):
            cast = {n: t.to(published) if t.is_floating_point() else t for n, t in tensors.items()}
            save_file(cast, file, metadata={"format": "pt"})
    config = json.loads((saved / "config.json").read_text())
    name = str(published).removeprefix("torch.")
    if config.get("dtype") != name:
        (saved / "config.json").write_text(json.dumps(config | {"dtype": name}, indent=2) + "\n")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy a model's tokenizer, template and generation files, unchanged."""
    for pattern in TOKENIZER_FILES:
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)


def check_weights(job: TrainJob, trained: Trained) -> None:
    """Read the saved weights back: they must be finite and changed by training."""
    before, changed = tensors_of(job.model), False
    for name, tensor in finite_tensors(job.folder("model")):
        if not changed and name in before:
            changed = not torch.equal(tensor, read_tensor(before[name], name).to(tensor.dtype))
    if not changed or trained.metrics.get(KEPT, 1.0) < LEAST_KEPT:
        raise TrainingError("unchanged", why_unchanged(job, trained))


def require_finite(model: Path) -> None:
    """Read the saved weights of a policy on the way back: they must be finite.

    Raises:
        TrainingError: naming the first that are not, or when there are none.
    """
    for _ in finite_tensors(model):
        pass


def finite_tensors(model: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a saved model's weights, all of them finite.

    Raises:
        TrainingError: naming the first that are not, or when there are none.
    """
    files = tensors_of(model)
    if not files:
        raise TrainingError("incomplete", "no weights were saved")
    for name, file in files.items():
        tensor = read_tensor(file, name)
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingError("diverged", f"the trained weights {name} are not finite")
        yield name, tensor


def why_unchanged(job: TrainJob, trained: Trained) -> str:
    """Say why a training changed no weight, by the last steps' numbers."""
    same = "the trained weights are the same as before training: "
    if trained.metrics.get("grad_norm") == 0:
        return f"{same}every gradient was 0, so the rows teach this model nothing"
    rate = job.settings.learning_rate
    kind = str(published_type(job.fit)).removeprefix("torch.")
    left = f" ({trained.metrics[KEPT]:.0%} of it is left)" if trained.metrics.get(KEPT) else ""
    finer = ", or publish in float32 (training.publish)" if kind == "bfloat16" else ""
    return (
        f"{same}{trained.steps} steps with a learning rate of at most {rate:g} are too little to "
        f"change a weight in {kind}{left}; raise training.{job.method}.learning_rate, train for "
        f"more steps{finer}"
    )


def tensors_of(model: Path) -> dict[str, Path]:
    """Return the file of each tensor of a model."""
    found: dict[str, Path] = {}
    for file in weight_files(model):
        with safe_open(file, framework="pt") as f:
            found |= dict.fromkeys(f.keys(), file)
    return found


def read_tensor(file: Path, name: str) -> torch.Tensor:
    """Return one tensor of a safetensors file."""
    with safe_open(file, framework="pt") as f:
        return f.get_tensor(name)


def measure_canary(job: TrainJob, models: Sequence[Path]) -> list[list[CanaryRow]]:
    """Measure answers of the first training examples before and after, all read from the disk.

    `models` are what training made of the job's model; each has rows of its own.

    Raises:
        TrainingError: when the trained weights' numbers are not finite.
    """
    tokenizer = chat_of(job)
    longest = job.settings.max_length
    found = (c for c in conversations(job) if measurable(tokenizer, c, longest))
    examples = list(islice(found, CANARY_ROWS))
    parts = [tokenizer.parted(c) for c in examples]
    # With ZeRO-3 models are loaded in shards, over processes that have ended by now.
    unset_hf_deepspeed_config()
    before = answer_logprobs(job, job.model, parts)
    return [_canary_rows(examples, parts, before, answer_logprobs(job, m, parts)) for m in models]


def _canary_rows(
    examples: Sequence[tuple[Message, ...]],
    parts: Sequence[tuple[list[int], list[int]]],
    before: Sequence[float],
    after: Sequence[float],
) -> list[CanaryRow]:
    if not all(math.isfinite(x) for x in after):
        raise TrainingError("diverged", "the trained model's log-probabilities are not finite")
    return [
        CanaryRow(
            messages=example[:-1],
            answer=example[-1].content,
            logprob_before=old,
            logprob_after=new,
            tokens=len(answer),
        )
        for example, (_, answer), old, new in zip(examples, parts, before, after, strict=True)
    ]


def conversations(job: TrainJob) -> Iterator[tuple[Message, ...]]:
    """Yield the examples' prompts with their answers, in the data's order, each prompt once.

    An online method's are its last rollouts.
    """
    if job.method in ONLINE:
        yield from last_rollouts(job.output, job.data)
        return
    seen: set[tuple[Message, ...]] = set()
    for path in job.data:
        columns = ["prompt", ANSWER[job.method]]
        for batch in pq.ParquetFile(path).iter_batches(CANARY_ROWS, columns=columns):
            for row in batch.to_pylist():
                prompt = tuple(Message(**turn) for turn in row["prompt"])
                if prompt not in seen:
                    seen.add(prompt)
                    yield (*prompt, *(Message(**turn) for turn in row[columns[1]]))


def measurable(
    tokenizer: ChatTokenizer, conversation: tuple[Message, ...], max_length: int
) -> bool:
    """Return whether a conversation fits the training's length and its answer has tokens."""
    prompt, answer = tokenizer.parted(conversation)
    return bool(prompt and answer) and len(prompt) + len(answer) <= max_length


def answer_logprobs(
    job: TrainJob, folder: Path, parts: list[tuple[list[int], list[int]]]
) -> list[float]:
    """Return the sum of the log-probabilities, in nats, that a model gives each answer's tokens.

    The model is in the type in which engines compute: whole on one GPU, or on the next ones too.
    """
    # Not "auto": transformers refuses that where a launcher has started the process.
    spread = {"device_map": "sequential"} if torch.cuda.is_available() else {}
    model: Any = load_model(job, folder, {"dtype": computing_type(), **spread})
    model.eval()
    sums: list[float] = []
    with torch.inference_mode():
        for prompt, answer in parts:
            ids = torch.tensor([prompt + answer], device=model.device)
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            asked = ids[0, len(prompt) :, None].to(logits.device)
            sums.append(float(logits.log_softmax(-1).gather(1, asked).sum()))
    del model
    release_memory()
    return sums


def release_memory() -> None:
    """Free device memory that nothing refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()
