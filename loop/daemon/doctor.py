"""Whether `lpfloop run` would start on this machine, and what to do if not.

No heavy module is loaded: packages are looked up, not imported.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, RunConfig
from ...policies import devices
from ...policies.devices import VISIBLE, driver_gpus, is_cpu_build, visible_gpus
from ...policies.trainers.job import Method
from ...stores import installation
from ...stores.address import bucket_of
from ...stores.installation import install_command, vllm_command
from ...stores.journal_reader import JOURNAL, JournalError, Reader
from ...stores.lake import run_folder
from ..data.prompt_rows import SPLITS
from ..recipes.roles import NeededRole, needed_roles, trainings
from ..run.observed import NOTHING_SEEN, Observed
from . import hardware as machine
from .diagnosis import Diagnosis, Finding
from .hardware import GIB
from .job import Job, require_same_run
from .model_check import engine_kinds, model_findings

OLDEST_PYTHON = (3, 11)
LEAST_DISK = 2 * GIB

TRAIN = ("torch", "transformers", "trl", "accelerate", "datasets", "peft")
OPTIONAL = {
    "lancedb": "lpfloop search",
    "matplotlib": "plots",
    "jinja2": "lpfloop view",
    "starlette": "lpfloop view",
    "uvicorn": "lpfloop view",
    "ray": "place: ray",
}
"""Packages that runs do not need, and the features that need them."""
MODELS = ("torch", "transformers")
BUCKET_REMEDY = (
    "the bucket must exist, and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for "
    "stores other than Amazon's, AWS_ENDPOINT_URL must be set"
)


def diagnose(config: RunConfig, lake: Path, name: str = "run") -> Diagnosis:
    """Look at everything that a run with this configuration needs, and whether it is refused."""
    job = Job(config=config, lake=lake, name=name)
    seen, roles, refusal = _rehearse(job)
    looks = (
        _python(),
        _packages(config, roles),
        model_findings(config, roles),
        _inputs(config, lake),
        _devices(config, roles),
        _memory(config, roles),
        _lake(lake),
        _bucket(lake),
    )
    found = Diagnosis(findings=tuple(finding for look in looks for finding in look))
    # What a look has found missing already is not told twice.
    if refusal and not any(f.detail in refusal for f in found.findings if f.status == "missing"):
        return replace(found, findings=(*found.findings, _refusal(refusal)))
    start = _start(job, seen) if found.ok else ()
    return replace(found, findings=(*found.findings, *start))


def _rehearse(job: Job) -> tuple[Observed, Sequence[NeededRole], str]:
    """Rehearse a job: return its recipe's behaviour, its models, and why it is refused, if so."""
    from ..data.files import InputError
    from ..recipes.roles import UnplayedRolesError
    from .loop import required_prompts
    from .opening import seen_in

    try:
        seen = seen_in(job, required_prompts(job.config, job.read_lake))
        return seen, needed_roles(job.config, seen), ""
    except UnplayedRolesError as error:
        return NOTHING_SEEN, error.roles, ""  # The finding of each of them tells it.
    except (ConfigError, InputError, JournalError) as error:
        try:
            return NOTHING_SEEN, needed_roles(job.config), str(error)
        except ConfigError:
            return NOTHING_SEEN, (), str(error)


def _refusal(why: str) -> Finding:
    return Finding(about="start", status="missing", detail=why)


def _start(job: Job, seen: Observed) -> Iterator[Finding]:
    """Do every check that `lpfloop run` does before it writes anything."""
    from .opening import parts_of

    try:
        parts = parts_of(job, seen)
        folder = run_folder(job.lake, job.name)
        yield from _nodes(job.config, folder, seen)
        if (folder / JOURNAL).exists():
            with closing(Reader(folder)) as reader:
                require_same_run(reader, job, parts.fingerprint)
    except (ConfigError, JournalError) as error:
        yield _refusal(str(error))
    else:
        yield Finding(about="start", status="ok", detail=f"run {job.name} would be opened")


def _nodes(config: RunConfig, folder: Path, seen: Observed) -> Iterator[Finding]:
    """Start the nodes of a run's trainings, each of which checks that it sees the run's folder.

    Raises:
        ConfigError: naming the problem of a node.
    """
    from ...policies.trainers.checks import require_nodes

    training = config.training
    if not seen.trains or training.nodes == 1:
        return
    require_nodes(training, folder)
    detail = f"nodes: srun starts {training.nodes}, and each sees the lake's disk"
    yield Finding(about="training", status="ok", detail=detail)


def _python() -> Iterator[Finding]:
    here = ".".join(str(part) for part in sys.version_info[:3])
    new = sys.version_info >= OLDEST_PYTHON
    yield Finding(
        about="Python",
        status="ok" if new else "missing",
        detail=f"{here}, {machine.system()}",
        remedy=None if new else "install Python 3.11 or newer",
        is_version=True,
    )


def _needed_packages(config: RunConfig, roles: Sequence[NeededRole]) -> set[str]:
    """Return the distributions that this run needs."""
    from ...policies.engines.engine import EngineError
    from ..run.models import NO_MODEL

    needed = {*installation.core_names(), "math-verify"}
    if config.iterations > 0:
        needed |= {*TRAIN}
    if config.reward.model != NO_MODEL and not names_function(config.reward.model):
        needed |= {*MODELS}
    try:
        kinds = engine_kinds(roles)
    except EngineError:
        return needed
    return needed | {*MODELS} if kinds & {"vllm", "transformers"} else needed


def _packages(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    needed, pins, core = (
        _needed_packages(config, roles),
        installation.locked_versions(),
        installation.core_names(),
    )
    for name in [*core, *sorted(needed - {*core}), *OPTIONAL]:
        here, pin = devices.installed_version(name), pins.get(name)
        remedy, status = None, "ok"
        if here is None and name in needed:
            status, here = "missing", "not installed"
            remedy = install_command(name, on_gpu=bool(driver_gpus()))
        elif here is None:
            status, here = "note", f"not installed; no run needs it, {OPTIONAL[name]} does"
        elif pin is not None and here.partition("+")[0] != pin:
            status, here = "note", f"{here}, and the lock has {pin}"
        yield Finding(about=name, status=status, detail=here, remedy=remedy, is_version=True)


def _inputs(config: RunConfig, lake: Path) -> Iterator[Finding]:
    """Read the prompts and people's labels; look for the launcher's file."""
    from ..data.files import InputError
    from ..data.prompts import load_prompts, notes_of
    from ..stages.people_labels import label_prompts

    notes = notes_of(config.prompts)
    try:
        labels = label_prompts(config, lake) if config.annotation.source else ()
        prompts = load_prompts(config.prompts, seed=config.seed, notes=notes, labelled=labels)
    except InputError as error:
        yield Finding(about="prompts", status="missing", detail=str(error))
    else:
        split = Counter(prompt.split for prompt in prompts)
        train, dev, held_out = (split[name] for name in SPLITS)
        told = f"{train} to train on, {dev} dev, {held_out} held out"
        detail = f"{told} ({config.prompts.source})"
        yield Finding(about="prompts", status="ok", detail=detail)
        for said in notes.sentences():
            yield Finding(about="prompts", status="note", detail=said)


def _devices(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    total, free = machine.memory()
    cpu = f"{machine.cores()} cores, {total / GIB:.1f} GiB of memory, {free / GIB:.1f} GiB free"
    yield Finding(about="CPU", status="ok", detail=cpu)
    yield _gpu()
    yield from _places(config, roles)
    yield from _training_places(config, trainings(roles))


def _training_places(config: RunConfig, methods: Sequence[Method]) -> Iterator[Finding]:
    """Yield in how many processes, and on how many GPUs, a run would train."""
    from ...policies.trainers.checks import require_training_places
    from ...policies.trainers.launch import left_idle, processes_of, training_gpus

    try:
        require_training_places(config.training, methods)
    except ConfigError as error:
        yield Finding(about="training", status="missing", detail=str(error))
        return
    gpus = len(training_gpus(config.training))
    for method in methods:
        settings = getattr(config.training, method)
        processes = processes_of(config.training, settings, gpus)
        idle = left_idle(config.training, settings, gpus)
        over = f" of {config.training.nodes} nodes" if config.training.nodes > 1 else ""
        detail = idle or f"{method}: {processes} processes on as many GPUs{over}"
        if idle or (gpus and processes > 1):
            yield Finding(about="training", status="note" if idle else "ok", detail=detail)


def _places(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    """Yield how many replicas of a model there would be, and on which GPUs, unless it is one."""
    from ...policies.engines.engine import EngineError
    from .machine_check import places_of

    try:
        places = places_of(config, roles)
    except ConfigError as error:
        yield Finding(about="replicas", status="missing", detail=str(error))
        return
    except EngineError:
        return  # reported above
    yield from _elsewhere(config, roles)
    for role, groups in places.items():
        if len(groups) > 1:
            gpus = ", ".join("+".join(map(str, group.numbers)) for group in groups)
            where = f"on GPUs {gpus}" if groups[0].gpus else "on the CPU"
            detail = f"{role}: {len(groups)} replicas {where}"
            yield Finding(about="replicas", status="ok", detail=detail)


def _elsewhere(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    """Yield the resources of the Ray cluster, if models are to run in one."""
    from ...policies.workers.ray_cluster import ray_cluster
    from .machine_check import in_ray

    if not any(in_ray(config, roles)):
        return
    try:
        yield Finding(about="Ray", status="ok", detail=str(ray_cluster()))
    except ConfigError as error:
        yield Finding(about="Ray", status="missing", detail=str(error))


def _gpu() -> Finding:
    """Return the GPUs that exist, and on which of them models would run."""
    cards, visible = driver_gpus(), visible_gpus()
    sizes = ("" if card.memory is None else f", {card.memory / GIB:.0f} GiB" for card in cards)
    told = "; ".join(f"{card.name}{size}" for card, size in zip(cards, sizes, strict=True))
    if cards and is_cpu_build():
        remedy = f"vLLM's CPU build does not use it: {vllm_command(on_gpu=True)}"
        return Finding(about="GPU", status="note", detail=told, remedy=remedy)
    if len(visible) < len(cards):
        detail = f"{told}; {VISIBLE} shows {len(visible)} of them"
        return Finding(about="GPU", status="note", detail=detail)
    none = "none that a driver shows: everything runs on the CPU"
    return Finding(about="GPU", status="ok", detail=told or none)


def _memory(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    """Compute whether each stage fits into its device."""
    from ...policies.engines.engine import EngineError
    from .memory_check import memory_of

    try:
        stages = memory_of(config, roles=roles)
    except (ConfigError, EngineError):
        return  # reported above
    for stage in stages:
        refused = config.memory == "refuse" and stage.verdict == "does not fit"
        yield Finding(
            about="memory",
            status="missing" if refused else "note" if stage.is_tight else "ok",
            detail=f"{stage.stage}: {stage.verdict}: {stage.as_text()}",
            remedy=stage.advice() or None,
        )


def _lake(lake: Path) -> Iterator[Finding]:
    found = machine.disk(lake)
    status, remedy = "ok", None
    detail = f"{found.free / GIB:.1f} GiB free at {found.folder} ({found.file_system})"
    if not found.writable:
        status, remedy = "missing", "choose another folder by --lake"
        detail = f"{found.folder} cannot be written to"
    elif found.remote:
        status = "note"
        remedy = "the journal wants a local disk: file locks may not hold across machines"
    elif found.free < LEAST_DISK:
        status, remedy = "note", f"free some: less than {LEAST_DISK / GIB:.0f} GiB are left"
    yield Finding(about="lake", status=status, detail=detail, remedy=remedy)


def _bucket(lake: Path) -> Iterator[Finding]:
    """Check that a lake's bucket can be reached; no finding for a lake in a folder."""
    from ...stores.bucket import Bucket, BucketError

    url = bucket_of(lake)
    if url is None:
        return
    try:
        Bucket(url).sizes("runs/.doctor")
    except BucketError as error:
        yield Finding(about="bucket", status="missing", detail=str(error), remedy=BUCKET_REMEDY)
    else:
        detail = f"{url} answers; journals, locks and copies are at {lake}"
        yield Finding(about="bucket", status="ok", detail=detail)
