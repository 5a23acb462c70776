"""Training as a child process: what a job is, how it is launched, when its result counts.

The parent (this module, no torch) writes `job.json` into the job's work folder, starts
`train_worker` by `accelerate launch` in a session of its own, follows `metrics.jsonl`, and accepts
the outcome only if `result.json`, which the child writes last, names every file of the finished
model with its hash.
Nothing in a work folder is trusted for being there: a checkpoint counts if its manifest says so and
every byte agrees, so an interrupted job either continues bit-exactly or starts again.
"""

import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ..configs.schema import DPOTraining, SFTTraining
from ..stores.durable import file_sha256

Method = Literal["dpo", "sft"]
FaultKind = Literal["refused", "killed", "failed", "incomplete", "diverged", "unchanged"]

MANIFEST = "MANIFEST.json"
CHECKPOINT_PREFIX = "checkpoint-"
CHECKPOINT_STEPS = 200
"""Optimizer steps between checkpoints: the tiny world makes none, a day's job loses minutes."""

POLL_S = 0.2
SECRETS = re.compile(r"(TOKEN|_KEY|SECRET|PASSWORD)$")
SIGNALLED = re.compile(r"<Signals\.(SIG\w+): \d+>|Signal \d+ \((SIG\w+)\) received")
EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Exit|Interrupt)\b")
LAUNCHER_TALK = re.compile(
    r"^\s|^Traceback|^subprocess\.CalledProcessError|^torch\.distributed|^[=-]{5,}|^[EWI]\d{4} "
)


class TrainingError(RuntimeError):
    """A training that gave no model: `kind` says how it failed, the message why, with the log."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Everything a training depends on, and the work folder that belongs to it alone.

    `reference` is DPO's reference policy; None is the model itself as it is before training.
    `dtype` is the type in which the weights are updated and saved: float32 keeps the small steps of
    preference training, also over iterations; on a GPU the forward passes are bfloat16 in any case.
    """

    method: Method
    model: Path
    reference: Path | None
    data: tuple[Path, ...]
    output: Path
    settings: DPOTraining | SFTTraining
    seed: int
    processes: int = 1
    accelerate_config: Path | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpoint_steps: int = CHECKPOINT_STEPS

    @property
    def accumulation(self) -> int:
        """Forward passes of a process an optimizer step, so that `batch_size` holds exactly."""
        return self.settings.batch_size // (self.settings.micro_batch_size * self.processes)

    def folder(self, name: str) -> Path:
        """Return the path of a name in the work folder: job.json, checkpoints, model …."""
        return self.output / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One optimizer step; `metrics` has TRL's names, `rewards/margins`, `logps/chosen` and more."""

    step: int
    max_steps: int
    loss: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished model: its folder, and the means of the last logged steps' metrics."""

    output: Path
    steps: int
    metrics: Mapping[str, float]
    seconds: float


def train(
    job: TrainJob, *, log: Path, on_progress: Callable[[Progress], None] | None = None
) -> TrainResult:
    """Run `job` to its end, continuing from its last whole checkpoint if it was interrupted.

    A job that has already finished in its work folder is not run again.

    Raises:
        TrainingError: if no finished model came out; the message names the cause and the log.
    """
    started = time.monotonic()
    identity = prepare(job)
    finished = read_result(job, identity)
    if finished is None:
        log.parent.mkdir(parents=True, exist_ok=True)
        offset = log.stat().st_size if log.exists() else 0
        code = run_worker(job, log, on_progress)
        fault = read_fault(job, code, log, offset)
        if fault is not None:
            raise fault
        finished = read_result(job, identity)
    if finished is None:
        raise TrainingError(
            "incomplete", f"the trainer exited without a complete model; log: {log}"
        )
    metrics: dict[str, float] = finished["metrics"]
    return TrainResult(
        output=job.folder("model"),
        steps=int(finished["steps"]),
        metrics=metrics,
        seconds=time.monotonic() - started,
    )


def prepare(job: TrainJob) -> str:
    """Check the job, write its `job.json`, clear an older attempt's fault; return its identity."""
    refuse_unfit(job)
    text = job_json(job)
    job.output.mkdir(parents=True, exist_ok=True)
    job.folder("job.json").write_text(text)
    job.folder("fault.json").unlink(missing_ok=True)
    shutil.rmtree(job.folder("cache"), ignore_errors=True)
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_unfit(job: TrainJob) -> None:
    """Refuse, before anything is loaded, what can not be trained as asked."""
    s = job.settings
    share = s.micro_batch_size * job.processes
    if s.batch_size % share:
        raise TrainingError(
            "refused",
            f"batch_size {s.batch_size} is not a multiple of processes x micro_batch_size "
            f"({job.processes} x {s.micro_batch_size} = {share})",
        )
    if (job.method == "dpo") != isinstance(s, DPOTraining):
        raise TrainingError("refused", f"{job.method} can not be trained with {type(s).__name__}")
    if not job.data:
        raise TrainingError("refused", "there is no data to train on")
    folders = [job.model, *([job.reference] if job.reference else [])]
    missing = [p for p in job.data if not p.is_file()] + [p for p in folders if not p.is_dir()]
    if missing:
        raise TrainingError("refused", f"{missing[0]} does not exist")


def job_json(job: TrainJob) -> str:
    """Return `job.json`: the job and the hash of each file it reads; equal text is an equal job."""
    folders = [job.model, *([job.reference] if job.reference else [])]
    inputs = [*job.data, *(p for f in folders for p in sorted(f.iterdir()) if p.is_file())]
    fields: dict[str, Any] = {
        "method": job.method,
        "model": str(job.model),
        "reference": str(job.reference) if job.reference else None,
        "data": [str(p) for p in job.data],
        "output": str(job.output),
        "settings": job.settings.model_dump(mode="json"),
        "seed": job.seed,
        "processes": job.processes,
        "accelerate_config": str(job.accelerate_config) if job.accelerate_config else None,
        "dtype": job.dtype,
        "checkpoint_steps": job.checkpoint_steps,
        "inputs": {str(p): file_sha256(p) for p in inputs},
    }
    return json.dumps(fields, indent=1, sort_keys=True)


def read_job(path: Path) -> TrainJob:
    """Read what `job_json` wrote."""
    fields: dict[str, Any] = json.loads(path.read_text())
    settings = DPOTraining if fields["method"] == "dpo" else SFTTraining
    config: str | None = fields["accelerate_config"]
    return TrainJob(
        method=fields["method"],
        model=Path(fields["model"]),
        reference=Path(fields["reference"]) if fields["reference"] else None,
        data=tuple(Path(p) for p in fields["data"]),
        output=Path(fields["output"]),
        settings=settings.model_validate(fields["settings"]),
        seed=fields["seed"],
        processes=fields["processes"],
        accelerate_config=Path(config) if config else None,
        dtype=fields["dtype"],
        checkpoint_steps=fields["checkpoint_steps"],
    )


def run_worker(job: TrainJob, log: Path, on_progress: Callable[[Progress], None] | None) -> int:
    """Run the child to its end, telling `on_progress` of every step; return its exit code."""
    metrics = job.folder("metrics.jsonl")
    offset = metrics.stat().st_size if metrics.exists() else 0
    with launched(job, log) as child:
        while True:
            code = child.poll()
            lines, offset = new_lines(metrics, offset)
            for row in map(parse_row, lines):
                if on_progress and row and row["event"] == "step":
                    on_progress(progress_of(row))
            if code is not None:
                return code
            time.sleep(POLL_S)


@contextmanager
def launched(job: TrainJob, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start the child in its own session, and leave no process of it behind, whatever happens here.

    Its standard input is a pipe that this process holds open: the workers end at its end, so they
    can not outlive a parent that was killed, nor a launcher that died before them.
    """
    with log.open("ab") as out:
        child = subprocess.Popen(
            launch_argv(job),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(job),
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        if child.stdin is not None:
            child.stdin.close()
        child.wait()


def launch_argv(job: TrainJob) -> list[str]:
    """Return the command: `accelerate launch`, out of reach of the user's default configuration."""
    config = job.accelerate_config
    if config is None:
        config = job.folder("accelerate.json")
        config.write_text(json.dumps(accelerate_settings(job.processes), indent=1))
    threads = max(1, len(os.sched_getaffinity(0)) // job.processes)
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)),
        *("--num_processes", str(job.processes), "--num_cpu_threads_per_process", str(threads)),
        *("--module", f"{__package__}.train_worker", str(job.folder("job.json"))),
    ]


def accelerate_settings(processes: int) -> dict[str, Any]:
    """Return the launcher's configuration for one machine and plain data parallelism."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if processes > 1 else "NO",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": processes,
        "main_process_port": 0,
        "mixed_precision": "no",
        "use_cpu": False,
    }


def child_environment(job: TrainJob) -> dict[str, str]:
    """Return the child's environment: no secrets, no network, caches in the work folder."""
    env = {name: value for name, value in os.environ.items() if not SECRETS.search(name)}
    return env | {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_CACHE": str(job.folder("cache")),
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # Spinning threads made training seven times slower on cores that others use too.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def new_lines(path: Path, offset: int) -> tuple[list[str], int]:
    """Return the whole lines of `path` after byte `offset`, and the offset after them."""
    if not path.exists():
        return [], offset
    with path.open("rb") as f:
        f.seek(offset)
        data = f.read()
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace").splitlines(), offset + end


def parse_row(line: str) -> dict[str, Any] | None:
    """Return the row of a line of `metrics.jsonl`; None for a line that a kill cut short."""
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return row


def progress_of(row: Mapping[str, Any]) -> Progress:
    """Return the step that a row of `metrics.jsonl` tells of."""
    metrics: dict[str, float] = row["metrics"]
    return Progress(
        step=row["step"], max_steps=row["max_steps"], loss=metrics["loss"], metrics=metrics
    )


def read_steps(path: Path) -> list[Progress]:
    """Return the steps in `metrics.jsonl`, once each: a resume undoes those after its point."""
    steps: list[Progress] = []
    for row in map(parse_row, new_lines(path, 0)[0]):
        if row and row["event"] == "start":
            steps = [s for s in steps if s.step <= row["resumed_from"]]
        elif row:
            steps.append(progress_of(row))
    return steps


def read_fault(job: TrainJob, code: int, log: Path, offset: int) -> TrainingError | None:
    """Return why the child failed: what it said itself, else its signal, else its exit code."""
    if code == 0:
        return None
    said = job.folder("fault.json")
    if said.exists():
        fault: dict[str, Any] = json.loads(said.read_text())
        return TrainingError(fault["kind"], f"{fault['message']}; log: {log}")
    steps = read_steps(job.folder("metrics.jsonl"))
    where = (
        f"after step {steps[-1].step} of {steps[-1].max_steps}"
        if steps
        else "before its first step"
    )
    lines, _ = new_lines(log, offset)
    name = killed_by(code, lines)
    if name:
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return TrainingError(
            "killed", f"the trainer was killed by {name}{hint} {where}; log: {log}"
        )
    last = last_meaningful(lines)
    return TrainingError(
        "failed", f"the trainer failed {where} with exit code {code}: {last}; log: {log}"
    )


def killed_by(code: int, lines: list[str]) -> str | None:
    """Return the name of the signal that ended the launcher, or the worker as the log tells it."""
    if code < 0:
        return signal.Signals(-code).name
    matches = [m for m in map(SIGNALLED.search, reversed(lines)) if m]
    return (matches[0][1] or matches[0][2]) if matches else None


def last_meaningful(lines: list[str]) -> str:
    """Return the last line of a log that tells of the child's trouble, not of its launcher's."""
    telling = [line for line in lines if line and not LAUNCHER_TALK.search(line)]
    telling = [line for line in telling if EXCEPTION.search(line)] or telling
    return telling[-1].strip()[:300] if telling else "it wrote nothing"


def read_result(job: TrainJob, identity: str) -> dict[str, Any] | None:
    """Return `result.json` if it is this job's, its steps are done and the model's files agree."""
    result = read_json(job.folder("result.json"))
    if (
        result is None
        or result.get("identity") != identity
        or result["steps"] < result["max_steps"]
    ):
        return None
    if not all(math.isfinite(v) for v in result["metrics"].values()):
        return None
    return result if agrees(job.folder("model"), result["files"]) else None


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or damaged."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def describe_files(folder: Path) -> dict[str, Any]:
    """Return size and hash of every file under `folder`, by relative name; no manifest."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    return {
        p.relative_to(folder).as_posix(): {"size": p.stat().st_size, "sha256": file_sha256(p)}
        for p in files
    }


def agrees(folder: Path, files: Mapping[str, Any]) -> bool:
    """Tell whether `folder` holds exactly the `files` described, byte for byte."""
    return bool(files) and describe_files(folder) == files


def seal_checkpoint(checkpoint: Path, identity: str) -> None:
    """Write a checkpoint's manifest, its last file: it is whole until a byte changes."""
    manifest = {"identity": identity, "files": describe_files(checkpoint)}
    (checkpoint / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def is_whole(checkpoint: Path, identity: str) -> bool:
    """Tell whether a checkpoint was sealed by the same job and is unchanged since."""
    manifest = read_json(checkpoint / MANIFEST)
    return (
        manifest is not None
        and manifest.get("identity") == identity
        and agrees(checkpoint, manifest["files"])
    )


def checkpoint_step(checkpoint: Path) -> int:
    """Return the optimizer step at which a checkpoint was made."""
    return int(checkpoint.name.removeprefix(CHECKPOINT_PREFIX))


def newest_whole(checkpoints: Path, identity: str) -> Path | None:
    """Return the newest whole checkpoint of this job; None is a fresh start."""
    found = sorted(checkpoints.glob(f"{CHECKPOINT_PREFIX}*"), key=checkpoint_step, reverse=True)
    return next((c for c in found if is_whole(c, identity)), None)
