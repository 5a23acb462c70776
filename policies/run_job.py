# pyright: basic
"""One training job, to a finished model: the work of `train_worker`'s process.

It reads `job.json`, resumes from the newest whole checkpoint, appends every step to
`metrics.jsonl`, and writes `result.json` last, after it has read the saved weights again and found
them finite and changed. Every random number derives from the job's seed: the same job gives the
same bytes on the same CPU.
"""

import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets.config
import torch
import transformers
from accelerate.utils import broadcast_object_list
from datasets import disable_progress_bars
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ..stores.durable import write_file
from ..stores.failpoints import reach
from ..stores.sealed import file_sha256
from .engines.canary import CANARY, write_canary
from .engines.chat import fold_system
from .engines.chat_template import load_tokenizer
from .online.online_training import train_online
from .trainers.checkpoints import (
    PREFIX,
    checkpoint_step,
    describe_files,
    discard_prepared,
    keep,
    newest_whole,
    seal_prepared,
)
from .trainers.faults import halted_error
from .trainers.job import ONLINE, Method, TrainingError, TrainJob, job_identity, read_job
from .trainers.process import ENDING_S, alone
from .trainers.reward_trainer import make_reward_trainer, measured_scores
from .trainers.shm_weights import discard_memory
from .trainers.step_policies import finished_policy, published_steps, step_job
from .trainers.trained_model import (
    Trained,
    assemble_model,
    check_weights,
    drop_master,
    measure_canary,
    release_memory,
    save_trained,
    update_survival,
)
from .trainers.trl_trainer import Pulse, fit_sharding, is_sharded, make_trainer
from .trainers.work_folder import (
    CACHE,
    FAULT,
    PULSE,
    RESULT,
    TOKENS,
    Pace,
    append_row,
    final_means,
    logged_steps,
)

logger = logging.getLogger(__name__)

METHODS: Mapping[Method, Callable[[TrainJob, PreTrainedTokenizerBase], Trainer]] = {
    "dpo": make_trainer,
    "sft": make_trainer,
    "kto": make_trainer,
    "reward": make_reward_trainer,
}
"""The builder of the trainer of each method that is not `ONLINE`."""


class StepRecorder(TrainerCallback):
    """Records every step, requests and seals checkpoints, stops if a number is not finite.

    `diverged` names the number that was not finite, and its step; None if all were finite.
    `ending`: the training is to end before its last step, at the parent's request.
    """

    def __init__(self, job: TrainJob, identity: str, resumed_from: int) -> None:
        self.job = job
        self.identity = identity
        self.diverged: str | None = None
        self.ending = False
        self.pace = Pace(job.output)
        self.tokens_before = 0.0
        self.append({"event": "start", "resumed_from": resumed_from, "pid": os.getpid()})

    def append(self, row: dict[str, Any]) -> None:
        """Append one row to the metrics file."""
        if is_main():
            append_row(self.job.output, row)

    def on_train_begin(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Note the tokens trained on before a resume: TRL starts to count at 0 again."""
        self.pace.restart()
        if state.log_history:
            self.tokens_before = state.log_history[-1].get(TOKENS, 0.0)

    def on_log(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float],
        **_: Any,
    ) -> None:
        """Record a step; the summary at the end is without a loss and is skipped."""
        if "loss" not in logs:
            return
        if TOKENS in logs:
            logs[TOKENS] += self.tokens_before
            # The trainer's state, which checkpoints keep, has a copy of this row.
            state.log_history[-1][TOKENS] = logs[TOKENS]
        metrics = {k: v for k, v in logs.items() if isinstance(v, int | float)}
        row = {"step": state.global_step, "max_steps": state.max_steps, "metrics": metrics}
        self.append({"event": "step", "at": time.time(), **row})
        for name, text in (("loss", "the loss"), ("grad_norm", "the gradient's norm")):
            if self.diverged is None and not math.isfinite(metrics.get(name, 0.0)):
                self.diverged = f"{text} was not finite at step {state.global_step}"
                control.should_training_stop = True
                control.should_save = False

    def on_step_end(
        self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Request a checkpoint when one is due; after the last step the model itself is saved."""
        # The first process decides for all.
        (turn,) = broadcast_object_list([self.pace.turn() if is_main() else None])
        if state.global_step < state.max_steps and turn != "go on":
            control.should_save = True
            self.ending = turn == "end"

    def on_save(
        self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Seal the checkpoint that all processes have finished writing, then remove old ones."""
        # Not in `on_step_end`: the checkpoint keeps `control`, and a resumed training must go on.
        control.should_training_stop = control.should_training_stop or self.ending
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if is_main():
            checkpoints = self.job.folder("checkpoints")
            checkpoint = checkpoints / f"{PREFIX}{state.global_step}"
            if is_sharded():  # Then the trainer leaves its arguments out.
                write_file(checkpoint / "job.json", self.job.folder("job.json").read_bytes())
            alive = Pulse(self.job.folder(PULSE))
            keep(checkpoint, self.identity, processes=self.job.processes, alive=alive)
        self.pace.restart()


def is_main() -> bool:
    """Return whether this process is the one that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent(work: Path) -> None:
    """End this process when its standard input, a pipe from the parent, is closed."""
    while os.read(0, 4096):
        pass
    discard_memory(work)
    os.kill(os.getpid(), signal.SIGKILL)


def run(job: TrainJob, identity: str) -> None:
    """Train and save; then, in one process only, verify, measure, and write the result."""
    online = job.method in ONLINE
    trained = train_online(job, identity) if online else train_and_save(job, identity)
    if not is_main():
        return
    release_memory()
    check_weights(job, trained)
    leave_canaries(job, trained)
    reward = job.method == "reward"
    measured = measured_scores(job, trained.history) if reward else update_survival(job)
    drop_master(job)
    reach("trainer.result")
    write_result(job, identity, replace(trained, metrics=trained.metrics | measured))


def leave_canaries(job: TrainJob, trained: Trained) -> None:
    """Write the canary of each policy, by which an engine proves that it runs these weights."""
    if job.method == "reward":
        write_canary(job.output, [])
        return
    parts = [step_job(job, step) for step in published_steps(job.settings, trained.steps)]
    policies = [policy for part in parts if (policy := finished_policy(part)) is not None]
    rows = measure_canary(job, [job.folder("model"), *policies])
    for part, canary in zip((job, *parts), rows, strict=True):
        write_canary(part.output, canary)


def train_and_save(job: TrainJob, identity: str) -> Trained:
    """Train from the newest whole checkpoint, or from the start, and save the model."""
    started = time.monotonic()
    tokenizer = load_tokenizer(job.model, job.template)
    if tokenizer.chat_template is None:
        raise TrainingError("refused", f"the model {job.model} lacks a chat template")
    if fold_system(tokenizer):
        logger.info("%s: the chat template lacks a system turn: folded into the user's", job.model)
    # `train` below opens the checkpoint's pickles, so its hashes are compared first.
    checkpoint = newest_whole(job.folder("checkpoints"), identity)
    logger.info("resuming from %s" if checkpoint else "starting afresh%s", checkpoint or "")
    trainer = METHODS[job.method](job, tokenizer)
    fit_sharding(trainer)
    if is_main():
        seal_prepared(job.output, identity)
    journal = StepRecorder(job, identity, checkpoint_step(checkpoint) if checkpoint else 0)
    trainer.add_callback(journal)
    trainer.remove_callback(PrinterCallback)
    loaded = time.monotonic()
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    done = time.monotonic()
    refuse_unfinished(trainer, journal)
    saved = job.folder("saved")
    save_trained(job, trainer, saved)
    if is_main():
        assemble_model(job, saved)
        reach("trainer.model.saved")
    return Trained(
        steps=trainer.state.global_step,
        max_steps=trainer.state.max_steps,
        rows=trainer.num_examples(trainer.get_train_dataloader()),
        metrics=final_means([row for row in trainer.state.log_history if "loss" in row]),
        history=logged_steps(trainer.state.log_history),
        seconds={"load": loaded - started, "train": done - loaded},
    )


def refuse_unfinished(trainer: Trainer, journal: StepRecorder) -> None:
    """Refuse a training that diverged or stopped early: `train` returns normally in both cases."""
    state = trainer.state
    if journal.diverged is not None:
        raise TrainingError("diverged", journal.diverged)
    if journal.ending:
        raise halted_error(journal.job)
    if state.global_step < state.max_steps:
        message = f"training stopped after step {state.global_step} of {state.max_steps}"
        raise TrainingError("incomplete", message)


def write_result(job: TrainJob, identity: str, trained: Trained) -> None:
    """Write `result.json`, last of all: steps, final means, the hash of every file of the model."""
    result = {
        "identity": identity,
        "steps": trained.steps,
        "max_steps": trained.max_steps,
        "rows": trained.rows,
        "metrics": trained.metrics,
        "seconds": trained.seconds,
        "files": describe_files(job.folder("model"), Pulse(job.folder(PULSE))),
        "canary": file_sha256(job.folder(CANARY)),
        "history": trained.history,
        "published": {
            str(step): file_sha256(step_job(job, step).folder(CANARY))
            for step in published_steps(job.settings, trained.steps)
        },
    }
    write_file(job.folder(RESULT), json.dumps(result, indent=1).encode())
    discard_prepared(job.output)


def run_job(path: Path) -> int:
    """Run the job of a `job.json` in its work folder; return the process's exit code."""
    threading.Thread(target=end_with_parent, args=(path.parent,), daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    job = read_job(path)
    datasets.config.HF_DATASETS_CACHE = job.folder(CACHE)
    identity = job_identity(path.read_bytes())
    try:
        with alone(job, retry_timeout_s=ENDING_S) if is_main() else nullcontext():
            run(job, identity)
    except TrainingError as fault:
        logger.critical("%s", fault)
        message = {"kind": fault.kind, "message": str(fault)}
        write_file(job.folder(FAULT), json.dumps(message).encode())
        return 1
    return 0
