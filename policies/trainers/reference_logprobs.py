# pyright: basic
"""The reference policy's log-probabilities of DPO's and KTO's answers, computed once and kept.

Neither the rows nor the reference change while a policy is trained. So their log-probabilities are
computed before its first step, and kept in a file whose name hashes everything they depend on. A
training that begins again reads that file, and so does another training on the same rows.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute
import torch
from accelerate.utils import broadcast_object_list, gather_object, send_to_device
from datasets import Dataset, concatenate_datasets

from ...stores.durable import make_folder, write_file
from ...stores.keys import Json, digest
from .base_trainer import BaseTrainer, row_lengths, token_batches, token_columns
from .job import TrainJob
from .sharded_training import is_sharded
from .training_fit import master_of
from .work_folder import read_json

pc: Any = pyarrow.compute
FOLDER = "references"
"""The folder of these files; it lies in the same folder as the trainings' work folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReference:
    """Where a job keeps the log-probabilities, and what they depend on apart from the rows."""

    folder: Path
    identity: Json

    @classmethod
    def of(cls, job: TrainJob) -> "KeptReference":
        """Return those of a job whose `job.json` is written."""
        model = job.reference or job.model
        written: dict[str, Any] = json.loads(job.folder("job.json").read_bytes())
        inputs: dict[str, str] = written["inputs"]
        files = {Path(p).name: h for p, h in inputs.items() if Path(p).parent == master_of(model)}
        identity = {
            "files": files,
            "fit": str(asdict(job.fit)),
            "rows": job.settings.micro_batch_size,
            "length": job.settings.max_length,
            "on": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "sharded": is_sharded(),
        }
        return cls(folder=job.output.parent / FOLDER, identity=identity)

    def path(self, dataset: Dataset) -> Path:
        """Return the file for these rows, which need not exist."""
        tokens = hashlib.sha256()
        for columns in token_columns(dataset):
            for name, ids in columns.items():
                tokens.update(name.encode())
                for numbers in (pc.list_value_length(ids), pc.list_flatten(ids)):
                    tokens.update(np.asarray(numbers, dtype=np.int64).tobytes())
        return self.folder / f"{digest([self.identity, tokens.hexdigest()])}.json"


def read_kept(path: Path, rows: int) -> list[list[float]] | None:
    """Return the kept log-probabilities of `rows` rows; None if they are missing or damaged."""
    kept = read_json(path) or {}
    values: Any = kept.get("logprobs")
    whole = isinstance(values, list) and kept.get("sha256") == _seal(values)
    return values if whole and len(values) == rows else None


def keep_reference(path: Path, values: list[list[float]]) -> None:
    """Keep the log-probabilities of each row's answers."""
    make_folder(path.parent)
    write_file(path, json.dumps({"sha256": _seal(values), "logprobs": values}).encode())


def _seal(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


class ReferencedTrainer(BaseTrainer):
    """A trainer of TRL's whose reference log-probabilities are those kept here.

    `sides` are the columns that it reads them from. `by_length`: they are computed in batches of
    like length, of as many tokens as a training pass has at most; else in the order of the rows.
    """

    sides: Sequence[str]
    ref_model: Any
    compute_ref_log_probs: Any

    def __init__(self, *, kept: KeptReference, by_length: bool, **arguments: Any) -> None:
        self.kept, self.by_length = kept, by_length
        super().__init__(**arguments)
        self.ref_model = None  # Everything that it says of the rows has been computed.

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """Return the rows with the log-probabilities of their answers."""
        if self.is_deepspeed_enabled:  # DeepSpeed computes them by its own engine.
            return super()._precompute_ref_logps(dataset, name, batch_size)  # pyright: ignore[reportAttributeAccessIssue]
        path = self.kept.path(dataset)
        kept = [read_kept(path, len(dataset)) if self.accelerator.is_main_process else None]
        broadcast_object_list(kept, from_process=0)
        values = kept[0]
        if values is None:
            values = self._measured(dataset, batch_size)
            if self.accelerator.is_main_process:
                keep_reference(path, values)
        columns = {side: [row[n] for row in values] for n, side in enumerate(self.sides)}
        return concatenate_datasets([dataset, Dataset.from_dict(columns)], axis=1)

    def _measured(self, dataset: Dataset, batch_size: int) -> list[list[float]]:
        """Compute the log-probabilities, each process those of its share of the batches."""
        batches = self._batches(dataset, batch_size)
        world, place = self.accelerator.num_processes, self.accelerator.process_index
        # All make as many passes: a sharded reference is gathered by all.
        turns = -(-len(batches) // world)
        mine = [batches[(turn * world + place) % len(batches)] for turn in range(turns)]
        found: list[tuple[int, list[float]]] = []
        for batch in mine:
            rows = [dataset[row] for row in batch]
            inputs = send_to_device(self.data_collator(rows), self.accelerator.device)
            logps = self.compute_ref_log_probs(self.ref_model or self.model, inputs)
            values = torch.stack(list(logps)[: len(self.sides)], dim=1).float().tolist()
            found += zip(batch, values, strict=True)
        every: dict[int, list[float]] = dict(gather_object(found))
        return [every[row] for row in range(len(dataset))]

    def _batches(self, dataset: Dataset, batch_size: int) -> Sequence[Sequence[int]]:
        if not self.by_length:
            rows = range(len(dataset))
            return [rows[start : start + batch_size] for start in rows[::batch_size]]
        args: Any = self.args
        lengths = row_lengths(dataset, args.max_length)
        return list(token_batches(lengths, batch_size * max(lengths)))
