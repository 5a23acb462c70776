"""The prompts of capability probes: the tiny world's, or from a file.

A file has one prompt a row, as for a run, with `checks` (or a verifiable task and its `reference`),
and the probe's name under `probe`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import ConfigError, RunConfig
from ...critics.checks import require_deciders
from ...critics.verify import MATH
from ...stores.keys import Json
from ...stores.records import Prompt
from ..data.file_row import text_of
from ..data.files import InputError, RowError, file_digest, placed_rows
from ..data.prompt_rows import to_prompt
from ..data.prompts import TINY, as_prompt
from ..data.row_notes import PromptIds

PROBES = "probes"
FEWEST = 2
"""The fewest prompts of a probe: the standard error needs at least so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The prompts of all probes, and the probe of each, by prompt id."""

    prompts: tuple[Prompt, ...]
    probe_of: Mapping[str, str]


def probes_fingerprint(config: RunConfig) -> Mapping[str, Json]:
    """Return the identity of a run's probes, which must not change: their file's hash, or tiny.

    Raises:
        InputError: if the file cannot be read.
    """
    place = config.assessment.probes
    if place is None:
        return {}
    return {PROBES: TINY if place == TINY else file_digest(Path(place))}


def load_probes(place: str, run: Iterable[Prompt] = ()) -> Probes:
    """Return the probes of the tiny world or of a file; `run` are the run's own prompts.

    Raises:
        InputError: for a file that cannot be used.
    """
    if place != TINY:
        return read_probes(Path(place), run)
    # Imported here: the tiny world is loaded only when it is used.
    from ..tiny.probes import probes

    found = [(as_prompt(tiny), name) for name, of in probes().items() for tiny in of]
    return Probes(
        prompts=tuple(prompt for prompt, _ in found),
        probe_of={prompt.prompt_id: name for prompt, name in found},
    )


def read_probes(path: Path, run: Iterable[Prompt] = ()) -> Probes:
    """Read a file of probes, in the file's order; none may have the id of another one of `run`.

    Raises:
        InputError: for a file that cannot be used.
    """
    prompts: dict[str, Prompt] = {}
    probe_of: dict[str, str] = {}
    ids = PromptIds.apart_from(run)
    for place, row in placed_rows(path):
        try:
            prompt = to_prompt(row, task=None, split="held-out", source=path.name)
            name = text_of(row.get("probe"), "probe")
            _require_decidable(prompt)
            new = ids.is_new(row, prompt, path, place)
        except (RowError, ConfigError) as error:
            raise InputError(f"{path}, {place}: {error}") from error
        if not new:
            raise InputError(f"{path}, {place}: the prompt appears a second time; keep one")
        prompts[prompt.prompt_id] = prompt
        probe_of[prompt.prompt_id] = name
    _require_several(path, list(probe_of.values()))
    return Probes(prompts=tuple(prompts.values()), probe_of=probe_of)


def require_probes(place: str | None, prompts: Iterable[Prompt]) -> None:
    """Refuse probes that cannot be used, or that are among a run's training prompts.

    Raises:
        InputError: naming the file and its fault.
    """
    if place is None:
        return
    probes = tuple(prompts)
    trained = {prompt.messages for prompt in probes if prompt.split == "train"}
    for probe in load_probes(place, probes).prompts:
        if probe.messages in trained:
            raise InputError(
                f"assessment.probes {place}: {probe.instruction[:60]!r} is also a prompt to train "
                "on: remove it from one of the two"
            )


def _require_decidable(prompt: Prompt) -> None:
    require_deciders(prompt.checks)
    verified = prompt.task == MATH and prompt.reference is not None
    if not prompt.checks and not verified:
        raise RowError(
            f"nothing decides whether an answer passes: give 'checks', or the task {MATH} with a "
            "'reference'"
        )


def _require_several(path: Path, names: list[str]) -> None:
    if not names:
        raise InputError(f"{path}: holds no probes; write one JSON object a line")
    for name in dict.fromkeys(names):
        if names.count(name) < FEWEST:
            raise InputError(
                f"{path}: the probe {name!r} has one prompt; give it {FEWEST} or more, so that "
                "it has a standard error"
            )
