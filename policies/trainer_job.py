"""What one training is: everything that its weights depend on, and the folder that is its own."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ..configs.methods import DPOTraining, SFTTraining
from ..stores.durable import make_folder, write_file
from ..stores.sealed import file_sha256

Method = Literal["dpo", "sft"]

CHECKPOINT_STEPS = 200
"""Optimizer steps between checkpoints: the tiny world makes none, a day's job loses minutes."""


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


def write_job(job: TrainJob) -> str:
    """Write `job.json` into the work folder; return the job's identity, the hash of that file."""
    text = job_json(job).encode()
    make_folder(job.output)
    write_file(job.folder("job.json"), text)
    return hashlib.sha256(text).hexdigest()


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
    """Read what `write_job` wrote."""
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


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or damaged."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
