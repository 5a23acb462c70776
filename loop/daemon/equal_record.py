"""What a comparison at equal tokens has decided: its trials, what was chosen, and the sizes.

It lies in the lake as one small file, `comparisons/NAME.json`, so that the comparison goes on as it
began, and can be shown again. The evidence is in the runs that it names.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ...configs.load import Override
from ...configs.schema import ConfigError
from ...stores.durable import make_folder, write_file
from ...stores.keys import canonical_json
from ...stores.lake import run_folder
from ..evaluation.token_course import TokenBudget
from .equal_sizes import RunSize
from .job import changed_fields

FOLDER = "comparisons"
Settings = tuple[tuple[str, float | str], ...]
"""Settings and their values, as a trial differs from the preset."""


def as_overrides(settings: Settings) -> list[Override]:
    """Return settings as they are laid over a preset."""
    return [Override(source="trial", path=path, value=value) for path, value in settings]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSettings:
    """A trial: its run, what it tried at which size, and its score on dev prompts.

    `score` is None until it was made, and where it measured nothing; `reason` then says why.
    """

    run: str
    settings: Settings
    size: RunSize
    figure: str = ""
    score: float | None = None
    prompts: int = 0
    policy_tokens: int = 0
    judge_tokens: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMethod:
    """A method: its trials, which of them was chosen (from 0), and the size of its runs.

    `trained` are the prompts that it may train on. `chosen` is None until its trials are made;
    `left_out` says why a method has no runs.
    """

    name: str
    recipe: str
    trials: tuple[TriedSettings, ...]
    trained: int = 0
    chosen: int | None = None
    size: RunSize | None = None
    left_out: str = ""

    @property
    def settings(self) -> list[Override]:
        """The chosen settings."""
        return [] if self.chosen is None else as_overrides(self.trials[self.chosen].settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRecord:
    """A comparison: its budget, how many trials it asked for, its seeds and methods.

    `settings` are those with which each method began, by its recipe, before any was tried.
    """

    name: str
    budget: TokenBudget
    trials: int
    trial_seed: int
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    methods: tuple[ComparedMethod, ...]

    def run_of(self, method: str, seed: int) -> str:
        """Return the name of the run of a method under a seed."""
        return f"{self.name}-{method}-{seed}"

    def having(self, method: ComparedMethod) -> "EqualRecord":
        """Return the record with what was decided of a method."""
        known = [method if each.name == method.name else each for each in self.methods]
        return replace(self, methods=tuple(known))


def record_file(lake: Path, name: str) -> Path:
    """Return where a comparison is recorded.

    Raises:
        ConfigError: if no run could be called so.
    """
    run_folder(lake, name)
    return lake / FOLDER / f"{name}.json"


def write_record(lake: Path, record: EqualRecord) -> None:
    """Keep a comparison's decisions."""
    path = record_file(lake, record.name)
    make_folder(path.parent)
    write_file(path, json.dumps(asdict(record), indent=2, ensure_ascii=False).encode() + b"\n")


def read_record(lake: Path, name: str) -> EqualRecord | None:
    """Return the decisions of a comparison; None if there is none of this name.

    Raises:
        ConfigError: if its file cannot be read.
    """
    path = record_file(lake, name)
    if not path.exists():
        return None
    try:
        return TypeAdapter(EqualRecord).validate_json(path.read_bytes())
    except ValidationError as error:
        wrong = error.errors()[0]["msg"]
        raise ConfigError(
            f"{path}: cannot be read as a comparison ({wrong}): remove the file, and give the same "
            "command with another --run"
        ) from error


def known_comparisons(lake: Path) -> list[str]:
    """Return the names of the comparisons of a lake."""
    return sorted(path.stem for path in (lake / FOLDER).glob("*.json"))


def require_same(record: EqualRecord, wanted: EqualRecord) -> None:
    """Refuse to go on with a comparison that was begun otherwise; more seeds are welcome.

    Raises:
        ConfigError: saying what differs.
    """
    pairs: Sequence[tuple[str, object, object]] = (
        ("--policy-tokens", record.budget.policy_tokens, wanted.budget.policy_tokens),
        ("--judge-tokens", record.budget.judge_tokens, wanted.budget.judge_tokens),
        ("--trials", record.trials, wanted.trials),
        ("--variants", _recipes(record), _recipes(wanted)),
    )
    for option, before, now in pairs:
        if before != now:
            raise ConfigError(
                f"{option}: the comparison {record.name} was begun with {before}, not {now}; leave "
                "it so, or begin another one with --run NAME"
            )
    for recipe, began in record.settings.items():
        changes = changed_fields(began, json.loads(canonical_json(wanted.settings[recipe])))
        if changes:
            raise ConfigError(
                f"the settings of {recipe} in the comparison {record.name}, which its trials and "
                f"sizes were made for, were others ({'; '.join(changes)}); leave them as they "
                "were, or begin another one with --run NAME"
            )
    if record.trial_seed in wanted.seeds:
        raise ConfigError(
            f"--seeds: {record.trial_seed} is the seed of the trials of {record.name}, which chose "
            "the settings; take fewer, or begin another comparison with --run NAME"
        )


def _recipes(record: EqualRecord) -> str:
    return ",".join(method.recipe for method in record.methods)
