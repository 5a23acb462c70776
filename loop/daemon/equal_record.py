"""The decisions of a comparison at equal tokens: its trials, the chosen ones, and the sizes.

They are stored in the lake as `comparisons/NAME.json`, so that the same command continues it. The
evidence is in the runs that it names.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ...configs.schema import ConfigError
from ...stores.durable import make_folder, write_file
from ...stores.journal_reader import JOURNAL
from ...stores.lake import RunReader, run_folder
from ..evaluation.token_course import TokenBudget
from ..lake.query.runs import open_run
from .equal_sizes import RunSize
from .job import changed_fields

FOLDER = "comparisons"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSettings:
    """A trial: its run, the settings by which it differs from the preset, and its score.

    `score` is the mean of `figure` over dev `prompts`; None before the trial ran, or without
    measurements, and then `reason` is set.
    """

    run: str
    settings: Mapping[str, float]
    figure: str = ""
    score: float | None = None
    prompts: int = 0
    policy_tokens: int = 0
    judge_tokens: int = 0
    reason: str = ""

    def __str__(self) -> str:
        told = [f"{path}={value:g}" for path, value in self.settings.items()]
        return ", ".join(told) or "the preset's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMethod:
    """A method: its trials and their size, which of them was chosen (from 0), its runs' size.

    `trained` counts the prompts that it may train on. `chosen` is None until the trials ran;
    `left_out` is the reason if the method is not run.
    """

    name: str
    recipe: str
    trials: tuple[TriedSettings, ...]
    trial_size: RunSize
    trained: int
    chosen: int | None = None
    size: RunSize | None = None
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRecord:
    """The decisions of a comparison; `asked` is the user's request, as plain data."""

    name: str
    asked: Mapping[str, Any]
    budget: TokenBudget
    trials: int
    trial_seed: int
    seeds: tuple[int, ...]
    methods: tuple[ComparedMethod, ...]

    def run_of(self, method: str, seed: int) -> str:
        """Return the name of the run of a method under a seed."""
        return f"{self.name}-{method}-{seed}"


def read_record(lake: Path, name: str) -> EqualRecord | None:
    """Return the decisions of a comparison; None if it does not exist.

    Raises:
        ConfigError: if the name is invalid.
    """
    path = _record_file(lake, name)
    return TypeAdapter(EqualRecord).validate_json(path.read_bytes()) if path.exists() else None


def known_comparisons(lake: Path) -> list[str]:
    """Return the names of the comparisons of a lake."""
    return sorted(path.stem for path in (lake / FOLDER).glob("*.json"))


@contextmanager
def opened_run(lake: Path, name: str) -> Generator[RunReader | None]:
    """Open a run; None if it does not exist."""
    if not (run_folder(lake, name) / JOURNAL).exists():
        yield None
        return
    with closing(open_run(lake, name)) as run:
        yield run


def _record_file(lake: Path, name: str) -> Path:
    run_folder(lake, name)  # refuses invalid names
    return lake / FOLDER / f"{name}.json"


def write_record(lake: Path, record: EqualRecord) -> None:
    """Keep a comparison's decisions."""
    path = _record_file(lake, record.name)
    make_folder(path.parent)
    write_file(path, json.dumps(asdict(record), indent=2, ensure_ascii=False).encode() + b"\n")


def require_same(known: EqualRecord, asked: Mapping[str, Any], seeds: Sequence[int]) -> None:
    """Refuse to continue a comparison that was started with other settings; more seeds are fine.

    Raises:
        ConfigError: naming the difference.
    """
    changes = changed_fields(known.asked, asked)
    if changes:
        raise ConfigError(
            f"the comparison {known.name} started with other inputs ({'; '.join(changes)}), for "
            "which its trials and sizes were made; restore them, or start another one with --run "
            "NAME"
        )
    if known.trial_seed in seeds:
        raise ConfigError(
            f"--seeds: {known.trial_seed} is the seed of the trials of {known.name}, which chose "
            "the settings; take fewer, or begin another comparison with --run NAME"
        )
