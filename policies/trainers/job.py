"""A training job: everything that its weights depend on, and its work folder."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from ...configs.engines import EngineConfig, SamplingConfig, Scalar
from ...configs.methods import (
    DPOTraining,
    KTOTraining,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SFTTraining,
)
from ...configs.schema import RewardConfig
from ...configs.training import (
    GRPOTraining,
    OnlineDPOTraining,
    OnlineSettings,
    RLOOTraining,
)
from ...stores.durable import make_folder, write_file
from ...stores.keys import canonical_json
from ...stores.sealed import known_sha256
from .training_fit import PLAIN, TrainingFit, anywhere, master_of

Method = Literal["dpo", "sft", "kto", "reward", "ppo", "quark", "grpo", "rloo", "online_dpo"]
Settings = DPOTraining | SFTTraining | KTOTraining | RewardTraining | OnlineSettings

SETTINGS: Mapping[Method, type[Settings]] = {
    "dpo": DPOTraining,
    "sft": SFTTraining,
    "kto": KTOTraining,
    "reward": RewardTraining,
    "ppo": PPOTraining,
    "quark": QuarkTraining,
    "grpo": GRPOTraining,
    "rloo": RLOOTraining,
    "online_dpo": OnlineDPOTraining,
}
"""The settings of each method."""

ONLINE: frozenset[Method] = frozenset({"ppo", "quark", "grpo", "rloo", "online_dpo"})
"""Methods that sample while they train: they need rewards and an `OnlineJob`."""

MEASURED_TOGETHER = 4
"""Rows of an online method's pass without gradients, as a multiple of one with them."""

FaultKind = Literal[
    "refused", "killed", "failed", "hung", "incomplete", "diverged", "unchanged", "halted"
]
"""`halted` is not a failure: the training ended early because the parent requested it."""

RewardSource = Literal["verifier", "critic", "reward"]
"""The sources of an online method's rewards; `reward` is a reward model, or the user's function."""

BY_REWARD: Mapping[RewardSource, float] = {"reward": 1.0}
"""The reward model alone rewards answers."""


class TrainingError(RuntimeError):
    """A failed training: `kind` is the kind of failure, the message has reason and log path."""

    code = "LPF-401"

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSet:
    """D_S: people's answers, learned with the method's own loss (ChatGLM-RLHF, Eq. 6).

    `data` are files of demonstrations (`prompt`, `completion`); `weight` is the equation's beta,
    and `batch_size` counts the demonstrations of an optimizer step.
    """

    data: tuple[Path, ...]
    weight: float
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnForm:
    """The chat template's rendering of the conversations that are trained.

    `values` and `tags` are the ones with which the policy is sampled (`engines.thinking`),
    `thought` is `training.thought`. `thoughts` is a file of the answers' own thoughts
    (`candidate_id`, `reasoning`), if these are trained.
    """

    values: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    tags: tuple[str, str] | None = None
    thought: Literal["none", "own", "template"] = "none"
    thoughts: Path | None = None


TURNS = TurnForm()
"""The template unchanged, for a model that does not think."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineJob:
    """An online method's sampling, the sources of its rewards, and the names in its rows.

    The rollouts' ids depend on `identity`, step, prompt and number; every seed derives from
    `root_seed` and such an id. The rows name `policy` (M_{t-1}: a rollout's step is the number of
    its updates since), its path `model`, and the reward model `reward_id`. `engine` runs the policy
    while it samples; `reward` are the settings of the reward model; `function` is the place of the
    user's reward function, if it replaces the reward model. An answer's reward is the sum of its
    scores by `weights`: the trainer computes the score of `reward`, and requests the others from
    its parent (`step_files.ask_parent`).
    """

    iteration: int
    identity: str
    root_seed: int
    policy: str
    model: str
    reward_id: str
    sampling: SamplingConfig
    engine: EngineConfig
    reward: RewardConfig
    function: str | None = None
    weights: Mapping[RewardSource, float] = field(default_factory=lambda: dict(BY_REWARD))

    @property
    def sources(self) -> tuple[RewardSource, ...]:
        """The sources whose scores make an answer's reward."""
        return tuple(source for source, weight in self.weights.items() if weight)

    @property
    def reward_sources(self) -> tuple[RewardSource, ...]:
        """The sources whose scores the trainer requests from its parent."""
        return tuple(source for source in self.sources if source != "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Everything a training depends on, and its exclusive work folder.

    `reference` is the reference policy of DPO, KTO and the online methods; None is the model itself
    before training. `data` are the files to train on; for an online method its prompts
    (`prompt_id`, `messages`), and `reward` is the folder of its reward model. `sees_end`: a reward
    model in training reads the answers' end tokens; `bucket_width`: the width, in tokens, of its
    buckets of length; `template`: the text of a chat template that replaces the model's.
    """

    method: Method
    model: Path
    reference: Path | None
    data: tuple[Path, ...]
    output: Path
    settings: Settings
    seed: int
    processes: int = 1
    fit: TrainingFit = PLAIN
    reward: Path | None = None
    online: OnlineJob | None = None
    sees_end: bool = True
    bucket_width: int = 32
    supervised: SupervisedSet | None = None
    turns: TurnForm = TURNS
    template: str | None = None

    @property
    def accumulation(self) -> int:
        """Forward passes per process and optimizer step, so that `batch_size` holds exactly."""
        return self.settings.batch_size // (self.settings.micro_batch_size * self.processes)

    @property
    def processes_per_node(self) -> int:
        """The number of its `processes` on one machine."""
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

        They are the ones from before rounding, if there are any. Adapters are trained on the
        published weights, since they are merged into these.
        """
        return self.model if self.fit.adapts else master_of(self.model)

    @property
    def value_source(self) -> Path:
        """The folder of the model that PPO's value model begins as."""
        return self.reward or self.model

    def folder(self, name: str) -> Path:
        """Return the path of a name in the work folder: job.json, checkpoints, model …."""
        return self.output / name


@cache
def _adapter() -> TypeAdapter[TrainJob]:
    return TypeAdapter(TrainJob)


def write_job(job: TrainJob) -> str:
    """Write `job.json` into the work folder; return the job's identity."""
    text = job_json(job).encode()
    make_folder(job.output)
    write_file(job.folder("job.json"), text)
    return job_identity(text)


def job_json(job: TrainJob) -> str:
    """Return `job.json`: the job and the hash of each file it reads; equal texts are equal jobs.

    The job's devices are left out, unless its sampler's GPUs depend on them: a job that was begun
    on other devices goes on.
    """
    placed = job if job.online else replace(job, fit=anywhere(job.fit))
    # A local engine is without a key, and keys are never written to files.
    secret = {"online": {"engine": {"api_key"}}} if job.online else None
    fields: dict[str, Any] = _adapter().dump_python(placed, mode="json", exclude=secret)
    models = [p for f in job.folders for p in dict.fromkeys((f, master_of(f)))]
    inputs = [*job.files, *(p for f in models for p in sorted(f.iterdir()) if p.is_file())]
    fields["inputs"] = {str(p): known_sha256(p) for p in inputs}
    return json.dumps(fields, indent=1, sort_keys=True)


def read_job(path: Path) -> TrainJob:
    """Read a job that `write_job` wrote."""
    fields: dict[str, Any] = json.loads(path.read_bytes())
    del fields["inputs"]
    settings = SETTINGS[fields["method"]].model_validate(fields["settings"])
    return _adapter().validate_python(fields | {"settings": settings})


def job_identity(text: bytes) -> str:
    """Return the identity of the job of a `job.json`: a hash of its fields and its input files.

    The paths do not count, nor whether activations are recomputed, which depends on the machine's
    memory: another machine resumes the job from the same checkpoint.
    """
    fields: dict[str, Any] = json.loads(text)
    fields["fit"].pop("gradient_checkpointing")
    inputs: Mapping[str, str] = fields.pop("inputs")
    del fields["output"]

    def content(place: str | None) -> object:
        below = [] if place is None else [p for p in inputs if Path(p).is_relative_to(place)]
        return [[Path(p).relative_to(str(place)).as_posix(), inputs[p]] for p in sorted(below)]

    for name in ("model", "reference", "reward"):
        fields[name] = content(fields[name])
    for part in filter(None, (fields, fields["supervised"])):
        part["data"] = [content(place) for place in part["data"]]
    fields["turns"]["thoughts"] = content(fields["turns"]["thoughts"])
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()
