# pyright: basic
"""The child of `training.train`, run by `accelerate launch`: one job, by TRL, to a verified model.

It reads `job.json`, resumes from the newest whole checkpoint, appends every step to
`metrics.jsonl`, and writes `result.json` last, after it has read the saved weights again and found
them finite and changed. Every random number derives from the job's seed: the same job gives the
same bytes on the same CPU.
"""

import hashlib
import json
import logging
import math
import os
import shutil
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset, disable_progress_bars
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from ..configs.schema import DPOTraining
from .training import (
    CHECKPOINT_PREFIX,
    FaultKind,
    TrainJob,
    checkpoint_step,
    describe_files,
    is_whole,
    newest_whole,
    read_job,
    read_steps,
    seal_checkpoint,
)

logger = logging.getLogger(__name__)

COLUMNS = {"dpo": ("prompt", "chosen", "rejected"), "sft": ("prompt", "completion")}
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*")
TOKENIZER_FILES += ("vocab.*", "merges.txt", "*.model", "generation_config.json")
TAIL = 10
"""Logged steps whose mean a result reports: one step of a few dozen pairs is noise."""

LARGE = 500_000_000
"""Parameters from which activations are recomputed: below, memory is not what runs out."""


class FaultError(Exception):
    """A reason not to give a result, in one sentence for the user."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Journal(TrainerCallback):
    """Writes every step down, asks for checkpoints and seals them, stops at a loss of NaN."""

    def __init__(self, job: TrainJob, identity: str, resumed_from: int) -> None:
        self.job = job
        self.identity = identity
        self.diverged_at: int | None = None
        self.append({"event": "start", "resumed_from": resumed_from, "pid": os.getpid()})

    def append(self, row: dict[str, Any]) -> None:
        """Append one row to the metrics file; the empty line closes one that a kill has cut."""
        if is_main():
            with self.job.folder("metrics.jsonl").open("a") as f:
                f.write(f"\n{json.dumps(row)}\n")

    def on_log(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float],
        **_: Any,
    ) -> None:
        """Record a step; the summary at the end has no loss of its own and is left out."""
        if "loss" not in logs:
            return
        metrics = {k: v for k, v in logs.items() if isinstance(v, int | float)}
        row = {"step": state.global_step, "max_steps": state.max_steps, "metrics": metrics}
        self.append({"event": "step", **row})
        if not math.isfinite(logs["loss"]):
            self.diverged_at = state.global_step
            control.should_training_stop = True

    def on_step_end(
        self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask for a checkpoint at the interval; the last step needs none, the model follows it."""
        if (
            state.global_step % self.job.checkpoint_steps == 0
            and state.global_step < state.max_steps
        ):
            control.should_save = True

    def on_save(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Seal the checkpoint that all processes have finished writing."""
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if is_main():
            folder = f"{CHECKPOINT_PREFIX}{state.global_step}"
            seal_checkpoint(self.job.folder("checkpoints") / folder, self.identity)


def is_main() -> bool:
    """Tell whether this is the process that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent() -> None:
    """End this process when its standard input, a pipe of the parent's, ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def run(job: TrainJob, identity: str) -> None:
    """Train, save, verify, and write the result."""
    started = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(job.model, local_files_only=True)
    if tokenizer.chat_template is None:
        raise FaultError("refused", f"the model {job.model} has no chat template")
    checkpoint = starting_point(job, identity)
    step = checkpoint_step(checkpoint) if checkpoint else 0
    trainer = make_trainer(job, tokenizer)
    journal = Journal(job, identity, step)
    trainer.add_callback(journal)
    trainer.remove_callback(PrinterCallback)
    loaded = time.monotonic()
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trained = time.monotonic()
    refuse_unfinished(trainer, journal)
    save_model(trainer, job)
    if is_main():
        check_weights(job)
        seconds = {"load": loaded - started, "train": trained - loaded}
        write_result(job, identity, trainer, seconds)


def starting_point(job: TrainJob, identity: str) -> Path | None:
    """Return the checkpoint to resume from; remove those that must not be."""
    checkpoints = job.folder("checkpoints")
    chosen = newest_whole(checkpoints, identity)
    if is_main():
        for other in checkpoints.glob(f"{CHECKPOINT_PREFIX}*"):
            if other != chosen and not is_whole(other, identity):
                logger.warning("removing %s: not a whole checkpoint of this job", other)
                shutil.rmtree(other)
    logger.info("resuming from %s" if chosen else "starting afresh%s", chosen or "")
    return chosen


def make_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build TRL's trainer of the job's method."""
    # The arguments come first: with ZeRO-3 their existence changes how models are loaded.
    s = job.settings
    if isinstance(s, DPOTraining):
        args = dpo_arguments(job, s)
        refuse_world(job, args)
        reference = other_reference(job)
        return DPOTrainer(
            model=load_model(job, job.model),
            ref_model=load_model(job, reference) if reference else None,
            args=args,
            train_dataset=load_data(job),
            processing_class=tokenizer,
        )
    args = sft_arguments(job)
    refuse_world(job, args)
    model = load_model(job, job.model)
    return SFTTrainer(
        model=model, args=args, train_dataset=load_data(job), processing_class=tokenizer
    )


def other_reference(job: TrainJob) -> Path | None:
    """Return DPO's reference if it is another model than the one that is trained."""
    same = job.reference is None or job.reference.resolve() == job.model.resolve()
    return None if same else job.reference


def common_arguments(job: TrainJob) -> dict[str, Any]:
    """Return the training arguments that both methods share."""
    s = job.settings
    cuda = torch.cuda.is_available()
    # Transformers' "constant" ignores the warm-up.
    constant = "constant_with_warmup" if s.warmup_ratio else "constant"
    seed = job.seed % 2**32
    return {
        "output_dir": str(job.folder("checkpoints")),
        "seed": seed,
        "data_seed": seed,
        "per_device_train_batch_size": s.micro_batch_size,
        "gradient_accumulation_steps": job.accumulation,
        "num_train_epochs": s.epochs,
        "learning_rate": s.learning_rate,
        "lr_scheduler_type": constant if s.scheduler == "constant" else s.scheduler,
        "warmup_steps": s.warmup_ratio,  # below 1 it is a share of all steps
        "max_length": s.max_length,
        "use_cpu": not cuda,
        "bf16": cuda,
        "gradient_checkpointing": weight_bytes(job.model) > 2 * LARGE,
        "dataloader_pin_memory": cuda,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # the journal asks for checkpoints
        "save_total_limit": 2,
        "report_to": "none",
        "disable_tqdm": True,
    }


def dpo_arguments(job: TrainJob, s: DPOTraining) -> DPOConfig:
    """Return DPO's arguments; the reference's log-probabilities are computed before training."""
    mixed = s.sft_weight > 0
    return DPOConfig(
        beta=s.beta,
        loss_type=["sigmoid", "sft"] if mixed else ["sigmoid"],
        loss_weights=[1.0, s.sft_weight] if mixed else None,
        precompute_ref_log_probs=True,
        **common_arguments(job),
    )


def sft_arguments(job: TrainJob) -> SFTConfig:
    """Return SFT's arguments; the loss is on the completion only."""
    return SFTConfig(completion_only_loss=True, packing=False, **common_arguments(job))


def refuse_world(job: TrainJob, args: TrainingArguments) -> None:
    """Refuse another number of processes than the job's: the batch size would silently change."""
    if args.world_size != job.processes:
        message = (
            f"the job asks for {job.processes} processes, the launcher started {args.world_size}"
        )
        raise FaultError("refused", message)


def weight_bytes(model: Path) -> int:
    """Return the size of a model's weight files."""
    return sum(p.stat().st_size for p in model.glob("*.safetensors"))


def load_model(job: TrainJob, path: Path) -> PreTrainedModel:
    """Load a model in the type in which it is trained; never code, never pickles."""
    return AutoModelForCausalLM.from_pretrained(
        path, dtype=job.dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )


def load_data(job: TrainJob) -> Dataset:
    """Return the rows of the parts in the job's order, with the columns that TRL trains on only."""
    data = Dataset.from_parquet(
        [str(p) for p in job.data],
        columns=list(COLUMNS[job.method]),
        cache_dir=str(job.folder("cache")),
    )
    if not len(data):
        raise FaultError("refused", "there is no row to train on")
    return data


def refuse_unfinished(trainer: Trainer, journal: Journal) -> None:
    """Refuse a training that diverged or stopped early: `train` returns normally in both cases."""
    state = trainer.state
    if journal.diverged_at is not None:
        raise FaultError("diverged", f"the loss was no finite number at step {journal.diverged_at}")
    if state.global_step < state.max_steps:
        message = f"training stopped after step {state.global_step} of {state.max_steps}"
        raise FaultError("incomplete", message)


def save_model(trainer: Trainer, job: TrainJob) -> None:
    """Save weights and config; tokenizer, template and generation files are copied unchanged."""
    saved, model = job.folder("saved"), job.folder("model")
    trainer.save_model(str(saved))
    if not is_main():
        return
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir()
    for pattern in ("config.json", "*.safetensors", "*.safetensors.index.json"):
        for path in saved.glob(pattern):
            path.rename(model / path.name)
    for pattern in TOKENIZER_FILES:
        for path in job.model.glob(pattern):
            shutil.copyfile(path, model / path.name)
    shutil.rmtree(saved)


def check_weights(job: TrainJob) -> None:
    """Read the saved weights again: they must be finite, and not those that training began with."""
    before, after = tensors_of(job.model), tensors_of(job.folder("model"))
    changed = False
    for name, file in after.items():
        tensor = read_tensor(file, name)
        if not bool(torch.isfinite(tensor).all()):
            raise FaultError("diverged", f"the trained weights {name} are not finite")
        if not changed and name in before:
            changed = not torch.equal(tensor, read_tensor(before[name], name).to(tensor.dtype))
    if not after:
        raise FaultError("incomplete", "no weights were saved")
    if not changed:
        raise FaultError("unchanged", "the trained weights are the same as before training")


def tensors_of(model: Path) -> dict[str, Path]:
    """Return the file of each tensor of a model."""
    found: dict[str, Path] = {}
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as f:
            found |= dict.fromkeys(f.keys(), file)
    return found


def read_tensor(file: Path, name: str) -> torch.Tensor:
    """Return one tensor of a safetensors file."""
    with safe_open(file, framework="pt") as f:
        return f.get_tensor(name)


def write_result(job: TrainJob, identity: str, trainer: Trainer, seconds: dict[str, float]) -> None:
    """Write `result.json`, last of all: steps, final means, the hash of every file of the model."""
    tail = read_steps(job.folder("metrics.jsonl"))[-TAIL:]
    names = sorted(set.intersection(*(set(s.metrics) for s in tail)))
    files = describe_files(job.folder("model"))
    result = {
        "identity": identity,
        "steps": trainer.state.global_step,
        "max_steps": trainer.state.max_steps,
        "rows": trainer.num_examples(trainer.get_train_dataloader()),
        "metrics": {n: statistics.fmean(s.metrics[n] for s in tail) for n in names},
        "seconds": seconds,
        "files": files,
    }
    job.folder("result.json").write_text(json.dumps(result, indent=1))
    shutil.rmtree(job.folder("cache"), ignore_errors=True)


def main(path: str) -> int:
    """Run the job of a `job.json`; return the exit code."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    job = read_job(Path(path))
    try:
        run(job, hashlib.sha256(Path(path).read_bytes()).hexdigest())
    except FaultError as fault:
        logger.critical("%s", fault)
        message = {"kind": fault.kind, "message": str(fault)}
        job.folder("fault.json").write_text(json.dumps(message))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
