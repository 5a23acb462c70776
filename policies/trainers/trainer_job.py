"""A training job: everything that its weights depend on, and its own work folder."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ...configs.distillation import DistillationTraining
from ...configs.engines import Scalar
from ...configs.group_methods import (
    GRPOTraining,
    OnlineDPOTraining,
    OnlineSettings,
    RLOOTraining,
)
from ...configs.methods import (
    DPOTraining,
    KTOTraining,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SFTTraining,
)
from ...stores.durable import make_folder, write_file
from ...stores.keys import canonical_json
from ...stores.sealed import known_sha256
from .online_job import OnlineJob, online_fields, read_online
from .training_fit import PLAIN, TrainingFit, anywhere, fit_fields, master_of, read_fit

Method = Literal[
    "dpo", "sft", "kto", "distil", "reward", "ppo", "quark", "grpo", "rloo", "online_dpo"
]
Settings = (
    DPOTraining | SFTTraining | KTOTraining | DistillationTraining | RewardTraining | OnlineSettings
)

SETTINGS: Mapping[Method, type[Settings]] = {
    "dpo": DPOTraining,
    "sft": SFTTraining,
    "distil": DistillationTraining,
    "kto": KTOTraining,
    "reward": RewardTraining,
    "ppo": PPOTraining,
    "quark": QuarkTraining,
    "grpo": GRPOTraining,
    "rloo": RLOOTraining,
    "online_dpo": OnlineDPOTraining,
}
"""The settings of each method."""

GROUPED: frozenset[Method] = frozenset({"grpo", "rloo", "online_dpo"})
"""Online methods that compare the answers to a prompt with one another."""

ONLINE: frozenset[Method] = frozenset({"ppo", "quark", *GROUPED})
"""Methods that sample while they train: they need somebody's rewards and an `OnlineJob`."""

LARGE = 500_000_000
"""From this many parameters on, activations are recomputed; below, memory suffices."""

MEASURED_TOGETHER = 4
"""Rows of an online method's pass without gradients, as a multiple of one with them."""

BUCKET_WIDTH = 32
"""The default width, in tokens, of the buckets by which length bias is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSet:
    """D_S: people's answers, learned beside the method's own loss (ChatGLM-RLHF, Eq. 6).

    `data` are files of demonstrations (`prompt`, `completion`); `weight` is the equation's beta,
    and `batch_size` counts the demonstrations of an optimizer step.
    """

    data: tuple[Path, ...]
    weight: float
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnForm:
    """How conversations become what is trained: by which values of the template, with what thought.

    `values` and `tags` are those with which the policy is sampled (`engines.thinking`), `thought`
    is `training.thought`. `thoughts` is a file of the thoughts that are trained (`candidate_id`,
    `reasoning`), where they are the answers' own.
    """

    values: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    tags: tuple[str, str] | None = None
    thought: Literal["none", "own", "template"] = "none"
    thoughts: Path | None = None


TURNS = TurnForm()
"""The template as it is, for a model that does not think."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Everything a training depends on, and the work folder that belongs to it alone.

    `reference` is the reference policy of DPO, KTO and the online methods, and the teacher of
    distillation; None is the model itself before training. `data` are the files to train on; for
    an online method its prompts (`prompt_id`, `messages`), and `reward` is the folder of its reward
    model. `fit` says how it fits on its devices. `sees_end`: a reward model in training reads the
    answers' end tokens; `bucket_width`: the width, in tokens, of its buckets of length;
    `supervised`: what a policy learns besides; `turns`: how a policy's conversations are rendered;
    `template`: the text of the chat template, where it is not the model's own.
    """

    method: Method
    model: Path
    reference: Path | None
    data: tuple[Path, ...]
    output: Path
    settings: Settings
    seed: int
    processes: int = 1
    accelerate_config: Path | None = None
    fit: TrainingFit = PLAIN
    reward: Path | None = None
    online: OnlineJob | None = None
    sees_end: bool = True
    bucket_width: int = BUCKET_WIDTH
    supervised: SupervisedSet | None = None
    turns: TurnForm = TURNS
    template: str | None = None

    @property
    def accumulation(self) -> int:
        """Forward passes per process and optimizer step, so that `batch_size` holds exactly."""
        return self.settings.batch_size // (self.settings.micro_batch_size * self.processes)

    @property
    def processes_per_node(self) -> int:
        """How many of its `processes` one machine runs."""
        return self.processes // self.fit.nodes

    @property
    def files(self) -> tuple[Path, ...]:
        """The data files that the training reads."""
        supervised = () if self.supervised is None else self.supervised.data
        thoughts = () if self.turns.thoughts is None else (self.turns.thoughts,)
        return (*self.data, *supervised, *thoughts)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The models that the training reads."""
        return tuple(f for f in (self.model, self.reference, self.reward) if f is not None)

    @property
    def start(self) -> Path:
        """The folder of the weights that the training begins with.

        They are the ones from before rounding, if there are any. Adapters are trained over the
        published weights, since they are merged into these.
        """
        return self.model if self.fit.adapts else master_of(self.model)

    @property
    def value_source(self) -> Path:
        """The folder that PPO's value model begins as: the reward model's, or the policy's."""
        return self.reward or self.model

    def folder(self, name: str) -> Path:
        """Return the path of a name in the work folder: job.json, checkpoints, model …."""
        return self.output / name


def write_job(job: TrainJob) -> str:
    """Write `job.json` into the work folder; return the job's identity."""
    text = job_json(job).encode()
    make_folder(job.output)
    write_file(job.folder("job.json"), text)
    return job_identity(text)


def job_identity(text: bytes) -> str:
    """Return the identity of the job of a `job.json`: a hash of what it says and reads.

    Where that lies does not count: on another machine the job goes on from the same checkpoint.
    """
    fields: dict[str, Any] = json.loads(text)
    inputs: Mapping[str, str] = fields.pop("inputs")
    del fields["output"]

    def read(place: str | None) -> object:
        below = [] if place is None else [p for p in inputs if Path(p).is_relative_to(place)]
        return [[Path(p).relative_to(str(place)).as_posix(), inputs[p]] for p in sorted(below)]

    for name in ("model", "reference", "reward"):
        fields[name] = read(fields[name])
    for part in (fields, fields.get("supervised", {})):
        part["data"] = [read(place) for place in part.get("data", ())]
    if "turns" in fields:
        fields["turns"]["thoughts"] = read(fields["turns"]["thoughts"])
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()


def job_json(job: TrainJob) -> str:
    """Return `job.json`: the job and the hash of each file it reads; equal texts are equal jobs."""
    places = [p for f in job.folders for p in dict.fromkeys((f, master_of(f)))]
    inputs = [*job.files, *(p for f in places for p in sorted(f.iterdir()) if p.is_file())]
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
        "dtype": job.fit.weights,
        "reward": str(job.reward) if job.reward else None,
        "online": online_fields(job.online) if job.online else None,
        "sees_end": job.sees_end,
        "inputs": {str(p): known_sha256(p) for p in inputs},
    }
    # Not where it runs: elsewhere it goes on. An online method finds its sampler's GPUs by that.
    fit = job.fit if job.online else anywhere(job.fit)
    if fit != PLAIN:
        fields["fit"] = fit_fields(fit)
    if job.template is not None:
        fields["template"] = job.template
    if job.method == "reward":
        fields["bucket_width"] = job.bucket_width
    if job.supervised is not None:
        supervised = job.supervised
        fields["supervised"] = {
            "data": [str(p) for p in supervised.data],
            "weight": supervised.weight,
            "batch_size": supervised.batch_size,
        }
    if job.turns != TURNS:
        turns = job.turns
        fields["turns"] = {
            "values": dict(turns.values),
            "tags": turns.tags,
            "thought": turns.thought,
            "thoughts": str(turns.thoughts) if turns.thoughts else None,
        }
    return json.dumps(fields, indent=1, sort_keys=True)


def read_job(path: Path) -> TrainJob:
    """Read what `write_job` wrote."""
    fields: dict[str, Any] = json.loads(path.read_text())
    method: Method = fields["method"]
    config: str | None = fields["accelerate_config"]
    return TrainJob(
        method=method,
        model=Path(fields["model"]),
        reference=Path(fields["reference"]) if fields["reference"] else None,
        data=tuple(Path(p) for p in fields["data"]),
        output=Path(fields["output"]),
        settings=SETTINGS[method].model_validate(fields["settings"]),
        seed=fields["seed"],
        processes=fields["processes"],
        accelerate_config=Path(config) if config else None,
        fit=read_fit(fields.get("fit", {})),
        reward=Path(fields["reward"]) if fields["reward"] else None,
        online=read_online(fields["online"]) if fields["online"] else None,
        sees_end=fields["sees_end"],
        bucket_width=fields.get("bucket_width", BUCKET_WIDTH),
        supervised=_read_supervised(fields.get("supervised")),
        turns=_read_turns(fields["turns"]) if "turns" in fields else TURNS,
        template=fields.get("template"),
    )


def _read_turns(fields: dict[str, Any]) -> TurnForm:
    tags: list[str] | None = fields["tags"]
    thoughts: str | None = fields["thoughts"]
    return TurnForm(
        values=fields["values"],
        tags=None if tags is None else (tags[0], tags[1]),
        thought=fields["thought"],
        thoughts=Path(thoughts) if thoughts else None,
    )


def _read_supervised(fields: dict[str, Any] | None) -> SupervisedSet | None:
    if fields is None:
        return None
    return SupervisedSet(
        data=tuple(Path(p) for p in fields["data"]),
        weight=fields["weight"],
        batch_size=fields["batch_size"],
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or damaged."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
