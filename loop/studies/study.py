"""A study: a hypothesis of a paper, the runs that decide it, and the findings in their rows."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...configs.mistakes import ConfigError
from ...configs.own_function import fault
from ...stores.durable import make_folder, write_file
from ...stores.keys import Json
from ...stores.lake import RunReader
from ..evaluation.plots import Panel
from ..lake.query.runs import ending, open_run
from .claims import ClaimVerdict, PaperClaim, SeedEstimate, verdict_of

Measured = TypeVar("Measured")
PREFIX = "study"
"""The prefix of studies' runs in the tiny world."""
FINAL = ("done: ", "NothingToTrainOn: ", "Regressed: ", "AlarmStopError: ")
"""The beginnings of the ends after which a run cannot be continued."""


def final_end(run: RunReader) -> str | None:
    """Return how a run ended; None if it was stopped or still runs."""
    end = ending(run.journal)
    return end if end is not None and end.startswith(FINAL) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The runs of a study's arms under its seeds."""

    lake: Path
    seeds: tuple[int, ...]
    prefix: str = PREFIX

    def name(self, arm: str, seed: int) -> str:
        """Return the name of the run of an arm under a seed."""
        return f"{self.prefix}-{arm}-{seed}"

    def names(self, arm: str) -> list[str]:
        """Return the names of the runs of an arm, seed by seed."""
        return [self.name(arm, seed) for seed in self.seeds]

    def runs(self, arm: str) -> Iterator[RunReader]:
        """Give the runs of an arm, seed by seed; each is closed before the next opens.

        Raises:
            NoSuchRunError: if one is not there.
        """
        for name in self.names(arm):
            with closing(open_run(self.lake, name)) as run:
                yield run

    def by_seed(self, arm: str, measure: Callable[[RunReader], Measured]) -> tuple[Measured, ...]:
        """Return the measurement of each run of an arm, in the order of the seeds."""
        return tuple(measure(run) for run in self.runs(arm))

    def lead(
        self, first: str, second: str, measure: Callable[[RunReader], float], unit: str = "points"
    ) -> SeedEstimate:
        """Return how much more of a measure the runs of one arm have, paired by seed."""
        own, other = (self.by_seed(arm, measure) for arm in (first, second))
        return SeedEstimate.difference(own, other, unit)


STUDY = "STUDY"
"""The name of the study in its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A JSONL file that an arm reads, written into the lake when the study is run.

    `setting` is the one that names it.
    """

    setting: str
    name: str
    rows: Callable[[], Iterable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyArm:
    """A run of a study: a recipe with the settings that the claim needs, under any world.

    An arm's name means the same settings in every study, so that studies share its runs. `tiny`
    are the sizes for the tiny world, left out with a user's own models. `fork` names an arm whose
    units it may take, `policy_of` one whose last policy it begins with, `reward_of` one whose
    reward model it is given: all must come first in a study. `files` are written for it.
    """

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    tiny: tuple[str, ...] = ()
    fork: str = ""
    policy_of: str = ""
    reward_of: str = ""
    files: tuple[StudyFile, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The arms that make the models with which this one begins."""
        return tuple(name for name in (self.policy_of, self.reward_of) if name)

    def places(self, lake: Path) -> Mapping[str, Path]:
        """Return the path of each of its files, by the setting that names it."""
        folder = (lake / "studies").resolve()
        return {file.setting: folder / f"{file.name}.jsonl" for file in self.files}

    def write_files(self, lake: Path) -> None:
        """Write its files, unless they are there with the same bytes."""
        for file, place in zip(self.files, self.places(lake).values(), strict=True):
            data = "".join(f"{json.dumps(row)}\n" for row in file.rows()).encode()
            if not (place.exists() and place.read_bytes() == data):
                make_folder(place.parent)
                write_file(place, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Rows of text cells under their titles."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFinding:
    """The findings of a study over its seeds.

    `notes` are sentences that explain it, made of the evidence; `commands` show that evidence.
    """

    claims: Sequence[PaperClaim]
    tables: Sequence[StudyTable] = ()
    panels: Sequence[Panel] = ()
    notes: Sequence[str] = ()
    commands: Sequence[str] = ()

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the hypothesis holds: every claim does."""
        return verdict_of(self.claims)

    def document(self) -> dict[str, Json]:
        """Return the finding as JSON data."""
        return {
            "verdict": self.verdict,
            "claims": [claim.document() for claim in self.claims],
            "notes": list(self.notes),
            "commands": list(self.commands),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A hypothesis with the arms that decide it, and the function that reads it from their runs.

    `built_in` describes the part of the answer that the tiny world contains by construction;
    `tiny_only` explains why the study is meaningless with other models, if it is.
    """

    name: str
    hypothesis: str
    paper: str
    arms: tuple[StudyArm, ...]
    find: Callable[[Evidence], StudyFinding]
    built_in: str = ""
    tiny_only: str = ""

    def __post_init__(self) -> None:
        """Refuse two arms of one name, and an arm that needs a later one."""
        before = list[str]()
        for arm in self.arms:
            if arm.name in before or not set(arm.needs) <= set(before):
                raise ValueError(
                    f"{self.name}: arm {arm.name} is defined twice, or depends on a later one"
                )
            before.append(arm.name)

    def document(self) -> dict[str, Json]:
        """Return its description as JSON data."""
        return {
            "name": self.name,
            "paper": self.paper,
            "hypothesis": self.hypothesis,
            "built_in": self.built_in or None,
            "arms": [arm.name for arm in self.arms],
        }


def load_study(path: Path) -> Study:
    """Return the study in a Python file, which can import the files next to it.

    Raises:
        ConfigError: if the file lacks one or cannot be imported, naming the line.
    """
    found = _studies([path])
    if not found:
        raise ConfigError(f"{path} does not define a study: set {STUDY} = Study(...) in it")
    return found[0]


def load_studies(folder: Path) -> list[Study]:
    """Return the studies in a folder's Python files, by paper.

    Raises:
        ConfigError: if the folder contains no study, or a file cannot be imported.
    """
    found = _studies(sorted(folder.glob("*.py")))
    if not found:
        raise ConfigError(f"{folder} contains no study: no file there sets {STUDY} = Study(...)")
    papers = list(dict.fromkeys(study.paper for study in found))
    return sorted(found, key=lambda study: papers.index(study.paper))


def _studies(paths: Sequence[Path]) -> list[Study]:
    values = (getattr(_import(path.resolve()), STUDY, None) for path in paths)
    return [value for value in values if isinstance(value, Study)]


def _import(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"lpfloop_study_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file of a study, such as ./studies/rlrf_beta.py")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    # The import of a user's file can raise anything.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path}: {fault(error, path)}") from error
    return module
