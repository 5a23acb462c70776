# pyright: basic
"""The trained model: saved, rounded to be published, read back, checked, and measured."""

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

from ...stores.keys import derive_seed
from ...stores.records import Message
from ..engines.canary import CANARY_ROWS, CanaryRow
from ..engines.chat_template import load_tokenizer
from ..engines.weight_files import weight_files
from .adapters import (
    CONFIG,
    computing_type,
    keep_adapter,
    merge_adapter,
    published_type,
    save_config,
    with_adapter,
)
from .job import ONLINE, TrainingError, TrainJob
from .rounding import rounded_at_random
from .rows import ANSWERS, chat_of
from .step_files import last_rollouts
from .training_fit import ADAPTER, MASTER, SURVIVAL, master_of
from .trl_trainer import load_model

TOKENIZER_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*"),
    *("vocab.*", "merges.txt", "*.model", "generation_config.json"),
)
MEASURED_ROWS = 64
"""The number of training answers by which the survival of an update is measured."""

Parts = Sequence[tuple[list[int], list[int]]]
"""The tokens of prompts, and of the answers to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The result of a finished training; an online method has its `history` in its rows."""

    steps: int
    max_steps: int
    rows: int
    metrics: dict[str, float]
    seconds: dict[str, float]
    history: list[dict[str, float]] = field(default_factory=list)


def save_trained(job: TrainJob, trainer: Any, saved: Path) -> None:
    """Save the trained weights, whole however they are divided: the adapters, or all weights."""
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        trainer.save_model(str(saved))
    else:
        # Not by the trainer's `save_model`: of shards, which checkpoints are, it writes nothing.
        plugin.set_state_dict_type("FULL_STATE_DICT")
        weights = trainer.accelerator.get_state_dict(trainer.model)
        if trainer.args.should_save:
            model: Any = trainer.accelerator.unwrap_model(trainer.model)
            model.save_pretrained(saved, state_dict=drop_tied(model, weights))
    if job.fit.adapts and trainer.is_world_process_zero():
        save_config(trainer.model, saved)


def drop_tied(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights without those that are tied to others: gathered, they are copies."""
    tied: Any = model.all_tied_weights_keys
    return {name: tensor for name, tensor in weights.items() if name not in tied}


def assemble_model(job: TrainJob, saved: Path) -> None:
    """Build the model's folder from the weights and config that the trainer saved.

    If weights are rounded to be published, the folder `MASTER` in it keeps them in float32.
    Adapters are merged into the weights, and kept in the folder `ADAPTER`. Tokenizer, template and
    generation files come from the starting model; the job's template replaces the model's.
    """
    model = job.folder("model")
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir()
    published = published_type(job)
    if (saved / CONFIG).is_file():
        _move_weights(merge_adapter(job, saved), model)
        keep_adapter(saved, job.model.name, model / ADAPTER)
    elif published == torch.float32:
        _move_weights(saved, model)
    else:
        master = model / MASTER
        master.mkdir()
        _move_weights(saved, master)
        _publish_rounded(master, model, published, job.seed)
    copy_tokenizer(job.model, model)
    if job.template is not None:
        template = load_tokenizer(job.model, job.template).chat_template
        (model / "chat_template.jinja").write_text(template, "utf-8")
    shutil.rmtree(saved)


def drop_master(job: TrainJob) -> None:
    """Remove the weights from before rounding, unless the job keeps them."""
    if not job.fit.keep_master:
        shutil.rmtree(job.folder("model") / MASTER, ignore_errors=True)


def _move_weights(source: Path, target: Path) -> None:
    for pattern in ("config.json", "*.safetensors", "*.safetensors.index.json"):
        for path in source.glob(pattern):
            path.rename(target / path.name)


def _publish_rounded(master: Path, model: Path, published: torch.dtype, seed: int) -> None:
    """Write the weights of a folder into another in the type in which they are published."""
    for file in weight_files(master):
        rounded = {
            name: rounded_at_random(tensor, published, derive_seed(seed, "publish", name))
            if tensor.is_floating_point()
            else tensor
            for name, tensor in load_file(file).items()
        }
        save_file(rounded, model / file.name, metadata={"format": "pt"})
    for index in master.glob("*.safetensors.index.json"):
        shutil.copyfile(index, model / index.name)
    config = json.loads((master / "config.json").read_text())
    config["dtype"] = str(published).removeprefix("torch.")
    (model / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy a model's tokenizer, template and generation files, unchanged."""
    for pattern in TOKENIZER_FILES:
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)


def check_weights(job: TrainJob, trained: Trained) -> None:
    """Read the saved weights back: they must be finite, and changed by training, not by rounding.

    Raises:
        TrainingError: of kind `incomplete`, `diverged` or `unchanged`.
    """
    model = job.folder("model")
    before, changed = _tensors_of(job.start), False
    for name, tensor in _finite_tensors(master_of(model)):
        if not changed and name in before:
            changed = not torch.equal(tensor, _read_tensor(before[name], name).to(tensor.dtype))
    if not changed:
        raise TrainingError("unchanged", _why_unchanged(job, trained))
    if master_of(model) != model:
        require_finite(model)


def require_finite(model: Path) -> None:
    """Read the saved weights of a policy: they must be finite.

    Raises:
        TrainingError: of kind `incomplete`, if they are missing, or `diverged`, naming one.
    """
    for _ in _finite_tensors(model):
        pass


def _finite_tensors(model: Path) -> Iterator[tuple[str, torch.Tensor]]:
    files = _tensors_of(model)
    if not files:
        raise TrainingError("incomplete", "no weights were saved")
    for name, file in files.items():
        tensor = _read_tensor(file, name)
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingError("diverged", f"the trained weights {name} are not finite")
        yield name, tensor


def _why_unchanged(job: TrainJob, trained: Trained) -> str:
    same = "the trained weights are the same as before training: "
    if trained.metrics.get("grad_norm") == 0:
        return f"{same}every gradient was 0, so the rows teach this model nothing"
    rate = job.settings.learning_rate
    return (
        f"{same}{trained.steps} steps with a learning rate of at most {rate:g} are too little to "
        f"change a weight; raise training.{job.method}.learning_rate, or train for more steps"
    )


def _tensors_of(model: Path) -> dict[str, Path]:
    """Return the file of each tensor of a model."""
    found: dict[str, Path] = {}
    for file in weight_files(model):
        with safe_open(file, framework="pt") as f:
            found |= dict.fromkeys(f.keys(), file)
    return found


def _read_tensor(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as f:
        return f.get_tensor(name)


def measure_canary(job: TrainJob, models: Sequence[Path]) -> list[list[CanaryRow]]:
    """Measure answers of the first training examples before and after, all read from the disk.

    `models` are the policies that the training made; each gets its own rows.

    Raises:
        TrainingError: of kind `diverged`, if the trained weights' numbers are not finite.
    """
    examples, parts = _measurable(job, CANARY_ROWS)
    dtype = computing_type(job)  # in which engines compute
    before = logprobs_of(_load_spread(job, job.model, dtype), parts)
    measured: list[list[CanaryRow]] = []
    for model in models:
        after = logprobs_of(_load_spread(job, model, dtype), parts)
        if not all(math.isfinite(x) for x in after):
            raise TrainingError("diverged", "the trained model's log-probabilities are not finite")
        rows = zip(examples, parts, before, after, strict=True)
        measured.append(
            [
                CanaryRow(
                    messages=example[:-1],
                    answer=example[-1].content,
                    logprob_before=old,
                    logprob_after=new,
                    tokens=len(answer),
                )
                for example, (_, answer), old, new in rows
            ]
        )
    return measured


def conversations(job: TrainJob) -> Iterator[tuple[Message, ...]]:
    """Yield the examples' prompts with their answers, in the data's order, each prompt once.

    An online method's are its last rollouts.
    """
    if job.method in ONLINE:
        yield from last_rollouts(job.output, job.data)
        return
    seen: set[tuple[Message, ...]] = set()
    answer = next(iter(ANSWERS[job.method]))
    for path in job.data:
        for batch in pq.ParquetFile(path).iter_batches(CANARY_ROWS, columns=["prompt", answer]):
            for row in batch.to_pylist():
                prompt = tuple(Message(**turn) for turn in row["prompt"])
                if prompt not in seen:
                    seen.add(prompt)
                    yield (*prompt, *(Message(**turn) for turn in row[answer]))


def _measurable(job: TrainJob, most: int) -> tuple[list[tuple[Message, ...]], Parts]:
    """Return the first conversations that fit the training's length, and their tokens."""
    chat, longest = chat_of(job), job.settings.max_length

    def fits(conversation: tuple[Message, ...]) -> bool:
        prompt, answer = chat.split_answer(conversation)
        return bool(prompt and answer) and len(prompt) + len(answer) <= longest

    found = list(islice(filter(fits, conversations(job)), most))
    return found, [chat.split_answer(conversation) for conversation in found]


def _load_spread(job: TrainJob, folder: Path, dtype: torch.dtype) -> Any:
    """Load a model in a type: whole on one GPU, or on the next ones too."""
    # Not "auto": transformers refuses that if a launcher has started the process.
    spread = {"device_map": "sequential"} if torch.cuda.is_available() else {}
    return load_model(job, folder, {"dtype": dtype, **spread})


def logprobs_of(model: Any, parts: Parts) -> list[float]:
    """Return the sum of the log-probabilities, in nats, that a model gives each answer's tokens."""
    model.eval()
    sums: list[float] = []
    with torch.inference_mode():
        for prompt, answer in parts:
            ids = torch.tensor([prompt + answer], device=model.device)
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            tokens = ids[0, len(prompt) :, None].to(logits.device)
            sums.append(float(logits.log_softmax(-1).gather(1, tokens).sum()))
    del model
    release_memory()
    return sums


def update_survival(job: TrainJob) -> dict[str, float]:
    """Return the share of a policy's update that is left in the published weights (`SURVIVAL`).

    The change in log-probability of training answers is a vector. The share is the projection of
    the published weights' change on the trained weights' change, all by float32 arithmetic:
    (published - before) . (trained - before) / |trained - before|^2. Without rounding it is 1. It
    is left out if no answer can be measured, or none has changed.
    """
    model = job.folder("model")
    if published_type(job) == torch.float32:
        return {SURVIVAL: 1.0}
    _, parts = _measurable(job, MEASURED_ROWS)

    def measured(folder: Path, adapter: Path | None = None) -> list[float]:
        whole = _load_spread(job, folder, torch.float32)
        return logprobs_of(whole if adapter is None else with_adapter(whole, adapter), parts)

    before, published = measured(job.start), measured(model)
    adapter = model / ADAPTER
    trained = measured(job.start, adapter) if adapter.is_dir() else measured(model / MASTER)
    update = [t - b for t, b in zip(trained, before, strict=True)]
    left = [p - b for p, b in zip(published, before, strict=True)]
    size = math.fsum(u * u for u in update)
    if not size:
        return {}
    return {SURVIVAL: math.fsum(u * v for u, v in zip(update, left, strict=True)) / size}


def release_memory() -> None:
    """Free device memory that nothing refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()
