"""Running a study's arms under its seeds: each is a run of the lake like any other.

After a stop, the same call continues; finished runs are not repeated, nor is an arm that an earlier
study has run.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ...configs.load import (
    ConfigSource,
    Override,
    load_config,
    overrides_given,
    parse_set,
    resolve_config,
)
from ...configs.schema import ConfigError, RunConfig
from ...stores.journal_reader import JOURNAL
from ...stores.keys import canonical_json
from ...stores.lake import CHECKPOINTS, REWARD_MODELS, run_folder
from ..daemon.job import Job
from ..daemon.planning import dry_plan
from ..daemon.suite import made_model
from ..lake.query.runs import open_run
from ..run.stop import AlarmStopError, NothingToTrainOn, Regressed
from .study import PREFIX, Evidence, Study, StudyArm, final_end

TINY = "tiny"
DONE = "done: "
EVERY_ARM = (
    "verdict.on_regression=continue",
    "alarms.on_alarm=continue",
)
"""Of all arms: a study has each model, be it worse or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """Which study to run, under which seeds, where; `overrides` are the user's."""

    study: Study
    seeds: tuple[int, ...]
    lake: Path
    config: ConfigSource | None = None
    overrides: tuple[str | Override, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_tiny(self) -> bool:
        """Whether the study runs in the tiny world."""
        return self.config in (None, TINY)

    @property
    def evidence(self) -> Evidence:
        """The runs of the study; with other models than the tiny world's they have other names."""
        stem = Path(str(self.config)).stem if isinstance(self.config, str) else "own"
        prefix = PREFIX if self.is_tiny else f"{stem}-{PREFIX}"
        return Evidence(lake=self.lake, seeds=self.seeds, prefix=prefix)


def run_study(
    request: StudyRequest, turn: Callable[[Job], None], note: Callable[[str], None]
) -> list[str]:
    """Run or resume every arm under every seed; return a sentence on each run that ended early.

    `turn` works on a job to its end; an error of it ends the study, which the same call continues.
    An arm with nothing to train on has M_0 as its last policy, and is counted with it.

    Raises:
        ConfigError: if an arm cannot be run: all arms are checked before any request is sent.
    """
    require_runnable(request)
    for arm in request.study.arms:
        arm.write_files(request.lake)
    remarks = list[str]()
    for number, seed in enumerate(request.seeds, 1):
        for place, arm in enumerate(request.study.arms, 1):
            job = _job(request, arm, seed)
            note(
                f"{job.name}: arm {place} of {len(request.study.arms)}, seed {number} of "
                f"{len(request.seeds)}"
            )
            if _is_done(job):
                continue
            try:
                turn(job)
            except NothingToTrainOn as reason:
                remarks.append(f"{job.name} had nothing to train on: {reason}")
            except (Regressed, AlarmStopError) as end:
                remarks.append(f"{job.name} ended early: {end}")
    return remarks


def require_runnable(request: StudyRequest) -> None:
    """Refuse a study of which an arm cannot be run.

    Raises:
        ConfigError: naming the arm.
    """
    study, seed = request.study, request.seeds[0]
    if study.tiny_only and not request.is_tiny:
        raise ConfigError(
            f"study {study.name} runs in the tiny world alone: {study.tiny_only}; leave out "
            "--config, --prompts, --policy and --critic"
        )
    for arm in study.arms:
        try:
            config = config_of(request, arm, seed)
            name = request.evidence.name(arm.name, seed)
            if not (request.is_tiny or arm.needs or _has_begun(request, name)):
                dry_plan(Job(config=config, lake=request.lake, name=name))
        except ConfigError as error:
            raise ConfigError(f"study {study.name}, arm {arm.name}: {error}") from error


def config_of(request: StudyRequest, arm: StudyArm, seed: int) -> RunConfig:
    """Return the configuration of an arm, without the models that other arms make.

    Raises:
        ConfigError: if a setting is invalid, or the user's contradicts the arm.
    """
    return load_config(request.config, arm.recipe, _settings(request, arm, seed), request.env)


def _settings(request: StudyRequest, arm: StudyArm, seed: int) -> list[str | Override]:
    decided = {parse_set(setting).path for setting in arm.settings} | {"seed"}
    decided |= {file.setting for file in arm.files}
    for path in (item.path for item in overrides_given(request.overrides)):
        if path in decided:
            raise ConfigError(f"--set {path}: the study decides it; leave it out")
    sizes = arm.tiny if request.is_tiny else ()
    own = [_override(path, str(file)) for path, file in arm.places(request.lake).items()]
    return [*EVERY_ARM, *sizes, *request.overrides, *arm.settings, *own, _override("seed", seed)]


def _job(request: StudyRequest, arm: StudyArm, seed: int) -> Job:
    """Return the job of an arm; the arms that it needs have ended."""
    evidence, given = request.evidence, _settings(request, arm, seed)
    for maker, path, table in (
        (arm.policy_of, "policy.model", CHECKPOINTS),
        (arm.reward_of, "reward.model", REWARD_MODELS),
    ):
        if maker:
            model = made_model(request.lake, evidence.name(maker, seed), table)
            given.append(_override(path, model))
    name, parent = evidence.name(arm.name, seed), evidence.name(arm.fork, seed)
    forked = bool(arm.fork) and _has_begun(request, parent) and not _has_begun(request, name)
    return Job(
        config=load_config(request.config, arm.recipe, given, request.env),
        lake=request.lake,
        name=name,
        fork=parent if forked else None,
    )


def _is_done(job: Job) -> bool:
    """Whether a run of this very configuration is done: any other is a matter of the loop."""
    if not (run_folder(job.lake, job.name) / JOURNAL).exists():
        return False
    with closing(open_run(job.lake, job.name)) as run:
        same = run.journal.meta("config") == canonical_json(resolve_config(job.config))
        return same and (final_end(run) or "").startswith(DONE)


def _has_begun(request: StudyRequest, name: str) -> bool:
    return (run_folder(request.lake, name) / JOURNAL).exists()


def _override(path: str, value: object) -> Override:
    return Override(source="study", path=path, value=value)
