"""The user's job, and the journal of the run that it asks for.

A run must mean one thing: every setting that can change its rows is hashed when it begins, and a
job that would change it is refused, field by field. The user's own files that it depends on are
hashed, and kept with the run.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from ...configs.load import resolve_config, semantic
from ...configs.own_function import file_of, hash_of, names_function
from ...configs.schema import ConfigError, RunConfig
from ...stores.address import run_argument
from ...stores.journal import Journal
from ...stores.journal_reader import JOURNAL, Reader
from ...stores.keys import Json, canonical_json
from ...stores.lake import OWN, RunWriter, run_folder
from ..lake.imports import ANSWERS, require_loop
from ..lake.imports.answers_file import AnswersFile, stored_answers
from ..run.run import Observed
from .derived_run import GIVEN, Given

FIELDS = ("recipe.name", "critic.verifier", "reward.model")
"""The settings that may name a function of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFile:
    """The file that a setting names a function of."""

    field: str
    place: str
    source: bytes
    sha256: str


def own_files(config: RunConfig) -> list[OwnFile]:
    """Read the files of the user's own that a configuration names.

    Raises:
        ConfigError: if one cannot be read.
    """
    found = list[OwnFile]()
    for field, place in _places(resolve_config(config)).items():
        _, source, sha256 = file_of(place)
        found.append(OwnFile(field=field, place=place, source=source, sha256=sha256))
    return found


def own_digests(files: list[OwnFile]) -> Mapping[str, Json]:
    """Return the part of a run's fingerprint about them; empty without such files."""
    return {OWN: {file.field: file.sha256 for file in files}} if files else {}


def keep_own_files(store: RunWriter, files: list[OwnFile]) -> None:
    """Keep a copy of each in the run's folder."""
    for file in files:
        store.keep_own(_copy(file.place, file.sha256), file.source)


def require_own_files(reader: Reader) -> None:
    """Refuse to continue a run whose files of the user's own have changed.

    Raises:
        ConfigError: naming the run's copy.
    """
    began: Mapping[str, str] = json.loads(reader.meta("fingerprint") or "{}").get(OWN, {})
    places = _places(json.loads(reader.meta("config") or "{}"))
    for field, sha256 in began.items():
        place = places[field]
        now = hash_of(place)
        if now != sha256:
            where = place.rpartition(":")[0]
            copy = reader.folder / OWN / _copy(place, sha256)
            what = "is not there" if now is None else "has changed since"
            raise ConfigError(
                f"{field}: run {reader.folder.name} began with another {where}, which {what}: "
                f"restore the run's copy, {copy}, or start a new run with --run NEW --reuse-from "
                f"{reader.folder.name}, which reuses every unit that does not depend on it"
            )


def _copy(place: str, sha256: str) -> str:
    """Return the name of a file's copy in the folder of a run."""
    module = Path(place.rpartition(":")[0].removesuffix(".py")).name.rpartition(".")[2]
    return f"{module}-{sha256[:12]}.py"


def _places(config: Mapping[str, Json]) -> dict[str, str]:
    """Return the places of the user's own functions in a resolved configuration, by field."""
    found = dict[str, str]()
    for field in FIELDS:
        section, name = field.split(".")
        values = config.get(section)
        place = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(place, str) and names_function(place):
            found[field] = place
    return found


SEEN = "seen"
"""The journal's key of the recipe's behaviour in its rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A user's job: a configuration, where the run lives, whose units it may re-use.

    With `given`, it is to train on these rows of the run that it forks; with `answers`, to critique
    these and turn no loop. `retry_unscored` is to ask again if replies could not be read.
    """

    config: RunConfig
    lake: Path
    name: str
    fork: str | None = None
    given: Given | None = None
    answers: AnswersFile | None = None
    retry_unscored: bool = False

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        return run_folder(self.lake, self.name)

    @property
    def has_begun(self) -> bool:
        """Whether its run exists."""
        return (self.folder / JOURNAL).exists()


def fingerprint_of(config: RunConfig, *resources: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the invariants of a run: semantic fields, and the models and files that it uses.

    Each of the resources gives its own part, or nothing if the run does not have it.
    """
    parts = {name: part for resource in resources for name, part in resource.items()}
    return {"config": semantic(config), **parts}


def open_journal(job: Job, fingerprint: Mapping[str, Json], seen: Observed) -> Journal:
    """Open the journal of a run, or make it; it keeps the recipe's behaviour, `seen`.

    Raises:
        ConfigError: if the run was started with another configuration, or cannot be forked.
    """
    stored, known = canonical_json(fingerprint), canonical_json(asdict(seen))
    snapshot = canonical_json(resolve_config(job.config))
    require_forkable(job)
    if not job.has_begun:
        parent = {} if job.fork is None else {"parent": job.fork}
        given = {} if job.given is None else {GIVEN: canonical_json(asdict(job.given))}
        answers = {} if job.answers is None else {ANSWERS: job.answers.as_json()}
        opened = {"fingerprint": stored, "config": snapshot, SEEN: known}
        return Journal.create(job.folder, {**opened, **parent, **given, **answers})
    with closing(Reader(job.folder)) as reader:
        require_same_run(reader, job, fingerprint)
    journal = Journal(job.folder)
    journal.set_meta([("config", snapshot), (SEEN, known)])
    return journal


def require_same_run(reader: Reader, job: Job, fingerprint: Mapping[str, Json]) -> None:
    """Refuse to continue a run that was started with another configuration.

    Raises:
        ConfigError: naming the difference.
    """
    _require_same_rows(reader, job.answers)
    require_own_files(reader)
    name, stored = reader.folder.name, canonical_json(fingerprint)
    before = json.loads(reader.meta("fingerprint") or "{}")
    changes = changed_fields(before, json.loads(stored))
    if changes:
        differences = "; ".join(changes)
        raise ConfigError(
            f"run {name} was started with another configuration ({differences}); leave these "
            f"as they were, or start another run: --run NAME --reuse-from {name} re-uses every "
            "unit that does not depend on them"
        )


def _require_same_rows(reader: Reader, answers: AnswersFile | None) -> None:
    """Refuse a run that is not a loop, or that does not critique these answers if there are any."""
    if answers is None:
        require_loop(reader)
        return
    stored = stored_answers(reader)
    if stored is None or stored.facts != answers.facts:
        what = (
            "a loop's rows, or imported ones" if stored is None else "the critiques of other rows"
        )
        raise ConfigError(
            f"run {reader.folder.name} holds {what}: choose another name with --run, or none"
        )


def require_forkable(job: Job) -> None:
    """Refuse a fork of a run that is not there, or under the name of a run that is.

    Raises:
        ConfigError: if so.
        JournalError: if the run to fork cannot be read.
    """
    if job.fork is None:
        return
    if job.has_begun:
        raise ConfigError(
            f"run {job.name} exists already: `lpfloop resume {run_argument(job.folder)}` continues "
            "it; name the new one with --run NAME"
        )
    if not (run_folder(job.lake, job.fork) / JOURNAL).exists():
        raise ConfigError(f"--reuse-from {job.fork}: no such run in {job.lake}")
    Reader(run_folder(job.lake, job.fork)).close()


def changed_fields(before: Json, after: Json, path: str = "") -> list[str]:
    """Return one phrase for each field that differs."""
    if not isinstance(before, Mapping) and not isinstance(after, Mapping):
        return [] if before == after else [f"{path}: {before} -> {after}"]
    old, new = _fields(before), _fields(after)
    return [
        change
        for name in sorted({*old, *new})
        for change in changed_fields(
            old.get(name), new.get(name), f"{path}.{name}" if path else name
        )
    ]


def _fields(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
