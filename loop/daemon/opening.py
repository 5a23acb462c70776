"""Opening a run to write to it: its inputs are checked, and its parts are put together."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from ...configs.own_function import OwnFunction, names_function
from ...configs.schema import ConfigError, RunConfig
from ...critics.feedback import FeedbackCritic
from ...critics.verify import own_verifier
from ...policies.engines.engine import EngineError
from ...policies.trainers.checks import require_nodes, require_training_places
from ...policies.workers.own_check import require_importable
from ...stores.journal_reader import JOURNAL, Reader
from ...stores.keys import Json
from ...stores.lake import RunReader, RunWriter, run_folder
from ...stores.records import Prompt
from ..evaluation.probe_sets import probes_fingerprint
from ..evaluation.reference_outputs import reference_fingerprint
from ..evaluation.step_eval_sets import require_choosable
from ..lake.annotations.bring_in import bring_in
from ..recipes.refusals import require_fitting, require_sampling
from ..recipes.roles import NeededRole, critic_alone, needed_roles, require_named
from ..run.budget import Prices
from ..run.fork import Fork
from ..run.judges import judges_fingerprint, judges_of, verifier_of
from ..run.models import Models
from ..run.reporter import Reporter
from ..run.run import NOTHING_SEEN, Observed, Run
from ..run.stop import StopSignal
from ..stages.mix import mix_fingerprint
from ..stages.people_labels import labels_fingerprint, labels_of
from ..stages.supervised_set import supervised_fingerprint
from ..stages.unscored import to_retry
from .control import ControlServer
from .iterations import deciding
from .job import SEEN, Job, fingerprint_of, keep_own_files, open_journal, own_digests, own_files
from .machine_check import require_fit, require_layers, require_places
from .memory_check import MemoryStages, require_memory
from .rehearsal import Rehearsal, rehearse
from .stand_ins import LONGEST_REPLY, costs_in
from .trackers import require_trackers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of a run, put together before anything is written.

    `make` makes the run of them, once its store is open.
    """

    models: Models
    verifying: OwnFunction | None
    fingerprint: Mapping[str, Json]
    make: partial[Run]


def require_settings(config: RunConfig) -> None:
    """Refuse settings that do not fit one another, for any recipe.

    Raises:
        ConfigError: naming one.
    """
    require_fitting(config)
    require_trackers(config)


def rehearse_job(job: Job, prompts: Sequence[Prompt], *, longest: int = LONGEST_REPLY) -> Rehearsal:
    """Rehearse a job that is about to begin, with the measured costs of calls in its lake.

    Placeholders for replies have `longest` letters at most.

    Raises:
        ConfigError: if something configured cannot be used, or a role that is needed lacks a model.
    """
    require_settings(job.config)
    labels, costs = labels_of(job.config, job.lake), costs_in(job.lake, job.config)
    rehearsal = rehearse(job.config, prompts, costs, longest=longest, labels=labels)
    require_choosable(job.config, rehearsal.seen.trainings, deciding(job.config, prompts))
    return rehearsal


def seen_in(job: Job, prompts: Sequence[Prompt]) -> Observed:
    """Return the behaviour of a job's recipe: from its journal, or else from a rehearsal.

    Raises:
        ConfigError: if something configured cannot be used, or a role that is needed lacks a model.
    """
    if job.answers is not None:
        return NOTHING_SEEN
    if job.has_begun:
        with closing(Reader(job.folder)) as reader:
            stored = reader.meta(SEEN)
        seen = NOTHING_SEEN if stored is None else TypeAdapter(Observed).validate_json(stored)
        if stored is not None and seen.iterations >= job.config.iterations:
            return seen
    return rehearse_job(job, prompts).seen


def required_roles(job: Job, seen: Observed) -> tuple[NeededRole, ...]:
    """Return the models that a job calls, after checking its settings against its recipe.

    Models and endpoints are not contacted, so that a dry run refuses the same.

    Raises:
        ConfigError: if something configured cannot be used.
    """
    require_settings(job.config)
    if job.answers is not None:
        needed = critic_alone(job.config)
        require_named(needed, "`lpfloop critique`")
    else:
        needed = needed_roles(job.config, seen)
        require_named(needed, f"the recipe {job.config.recipe.name}")
        require_sampling(job.config, seen)
    if seen.trains:
        require_fit(job.config)
    require_places(job.config, needed)
    if seen.trains:
        require_training_places(job.config.training, seen.trainings)
    require_memory(job.config, needed, trains=job.answers is None)
    return needed


def parts_of(job: Job, seen: Observed) -> RunParts:
    """Put together the parts of a run; every refusal happens here.

    Raises:
        ConfigError: if something configured cannot be used.
    """
    needed = required_roles(job, seen)
    verifying = own_verifier(job.config.critic.verifier)
    critic = FeedbackCritic.from_config(job.config.critic)
    try:
        memory = MemoryStages(config=job.config, roles=needed)
        models = Models.of(
            job.config,
            job.folder / "logs",
            {role.name: (role.model, role.engine) for role in needed},
            training_bytes=memory.training_bytes,
            keeps_activations=memory.keeps_activations,
        )
        if seen.trains:
            models.require_trainable()
            require_layers(job.config, models.initial.location)
        Prices.of(job.config).require((models.initial, *models.judging.values()))
        if models.reward_id is not None and names_function(job.config.reward.model):
            require_importable(job.config.reward.model)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    judges = judges_of(job.config, models)
    labels = labels_of(job.config, job.lake)
    fingerprint = fingerprint_of(
        job.config,
        models.fingerprint,
        critic.fingerprint,
        judges_fingerprint(models, judges),
        reference_fingerprint(job.config),
        probes_fingerprint(job.config),
        mix_fingerprint(job.config),
        labels_fingerprint(labels),
        supervised_fingerprint(job.config),
        own_digests(own_files(job.config)),
    )
    make = partial(
        Run,
        name=job.name,
        config=job.config,
        models=models,
        critic=critic,
        labels=labels,
        seen=seen,
        **judges,
    )
    return RunParts(models=models, verifying=verifying, fingerprint=fingerprint, make=make)


@contextmanager
def open_job(
    job: Job,
    prompts: Sequence[Prompt],
    reporter: Reporter,
    stop: StopSignal,
    *,
    on_open: Callable[[Path], None] = lambda _: None,
    seen: Observed | None = None,
) -> Generator[Run]:
    """Open a run for writing, or make it; all refusals come before a folder is made.

    `seen` is its recipe's behaviour, if known already.

    Raises:
        ConfigError: if something configured cannot be used, or the run exists with other settings.
    """
    seen = seen or seen_in(job, prompts)
    parts = parts_of(job, seen)
    if seen.trains:
        require_nodes(job.config.training, job.folder)
    store = RunWriter(open_journal(job, parts.fingerprint, seen))
    try:
        keep_own_files(store, own_files(job.config))
        bring_in(store)
        retried = to_retry(store.journal) if job.retry_unscored else []
        with verifier_of(job.config, parts.verifying) as verifier, _open_parent(job, store) as fork:
            run = parts.make(
                store=store,
                verifier=verifier,
                reporter=reporter,
                stop=stop,
                prompts={prompt.prompt_id: prompt for prompt in prompts},
                retry={(s.iteration, s.stage) for s in retried},
                fork=fork,
            )
            with ControlServer(run), closing(run.warm), run.flow:
                on_open(job.folder)
                yield run
    finally:
        with stop.hold_deadline():
            parts.models.close()
            store.close()


@contextmanager
def _open_parent(job: Job, store: RunWriter) -> Generator[Fork | None]:
    """Open the run that this one was forked from, if it was and still exists."""
    parent = store.journal.meta("parent")
    if parent is None or not (run_folder(job.lake, parent) / JOURNAL).exists():
        yield None
        return
    with closing(RunReader(run_folder(job.lake, parent))) as reader:
        yield Fork(reader)
