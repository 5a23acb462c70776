"""The prompts of a run: the tiny world's, or from a user's files.

`files` lists the file formats, and `prompt_rows` their fields. Files are read strictly: errors are
reported before a run begins.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...configs.engines import NO_MODEL
from ...configs.schema import ConfigError, PromptsConfig
from ...critics.checks import require_deciders
from ...stores.records import Message, Prompt, Split
from .conversations import NoUserTurnError
from .files import InputError, RowError, name_of_source, placed_rows
from .prompt_rows import AS_IT_IS, SPLITS, NoPromptError, RowShape, content_id, to_prompt
from .row_notes import BAD_SHARE, PromptIds, RowNotes
from .splits import DEV, HELD_OUT, TRAIN, split_prompts

if TYPE_CHECKING:
    from ..tiny.exercises import TinyPrompt

log = logging.getLogger(__name__)

TINY, SMOL = "tiny", "smol"
LABELLED = "annotation.source"
"""The source of prompts that people's labels are about."""


def read_prompts(
    path: Path,
    *,
    task: str | None = None,
    shape: RowShape = AS_IT_IS,
    split: Split = "train",
    run: Iterable[Prompt] = (),
    notes: RowNotes | None = None,
) -> list[Prompt]:
    """Read every prompt of a file, in the file's order.

    Args:
        path: the file, the folder or the hub's data set.
        task: the task of rows without one; default: guessed from their fields.
        shape: how the rows differ from the known forms.
        split: the split of rows without one.
        run: prompts of a run; no prompt of the file may reuse the id of a different one.
        notes: collects unused fields and skipped rows; default: no row may be skipped.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    read = notes or RowNotes()
    placed = _read_placed(path, task=task, shape=shape, split=split, run=run, notes=read)
    return [prompt for _, prompt in placed]


def shape_of(config: PromptsConfig) -> RowShape:
    """Return how a run's own files differ from the known forms."""
    return RowShape(turns=config.turns, input=config.input, fields={**config.fields})


def notes_of(config: PromptsConfig) -> RowNotes:
    """Return notes for reading a run's prompts, with its setting for skipping bad rows."""
    return RowNotes(skips=config.skip_bad, remedy="; prompts.skip_bad=true leaves such rows out")


def _read_placed(
    path: Path,
    *,
    task: str | None,
    shape: RowShape,
    notes: RowNotes,
    split: Split = "train",
    run: Iterable[Prompt] = (),
) -> list[tuple[str, Prompt]]:
    """Read every prompt of a file, with its place."""
    found = list[tuple[str, Prompt]]()
    ids = PromptIds.apart_from(run)
    clusters = dict[tuple[Message, ...], tuple[str, str]]()
    repeated = silent = 0
    source = name_of_source(path)
    for place, row in placed_rows(path, notes.bad):
        try:
            named = shape.rename_fields(row)
            prompt = to_prompt(named, task=task, split=split, source=source, shape=shape)
            new = ids.is_new(named, prompt, path, place)
            _require_one_cluster(prompt, place, clusters)
        except NoUserTurnError:
            silent += 1
            continue
        except RowError as error:
            ids.forget(path, place)
            notes.bad(path, place, _with_remedy(error))
            continue
        notes.read(row)
        if new:
            found.append((place, prompt))
        repeated += not new
    if silent:
        log.warning("%s: dropped %d conversations without text of the user", path, silent)
    if repeated:
        log.warning("%s: dropped %d rows that repeat another one", path, repeated)
    for sentence in notes.sentences():
        log.warning("%s: %s", path, sentence)
    if not found and not notes.skipped:
        raise InputError(f"{path}: holds no prompts; write one JSON object a line")
    return found


def _with_remedy(error: RowError) -> RowError:
    if isinstance(error, NoPromptError):
        return RowError(f"{error}, or say which holds it: prompts.fields={{prompt: ...}}")
    return error


def _require_one_cluster(
    prompt: Prompt, place: str, seen: dict[tuple[Message, ...], tuple[str, str]]
) -> None:
    """Raise RowError if the same conversation was put into another cluster before."""
    if prompt.cluster is None:
        return
    cluster, before = seen.setdefault(prompt.messages, (prompt.cluster, place))
    if cluster != prompt.cluster:
        raise RowError(
            f"the same prompt is in cluster {prompt.cluster!r} here and in {cluster!r} on "
            f"{before}; its rows must be in one"
        )


def load_prompts(
    config: PromptsConfig,
    *,
    seed: int,
    notes: RowNotes | None = None,
    labelled: Sequence[Prompt] = (),
) -> list[Prompt]:
    """Return the prompts of a run, of all splits: the tiny world's, or from the user's files.

    `notes` collect unused fields and skipped rows of the files. Without a source, the prompts are
    the ones that people have `labelled`.

    Raises:
        InputError: for a file that cannot be used, or one without prompts to train on.
        ConfigError: for a check that cannot be decided here, or without a source of prompts.
    """
    if config.source == TINY:
        _require_own_splits(config)
        return [p for p in tiny_prompts() if config.dev_share > 0 or p.split != DEV]
    if config.source == NO_MODEL and not labelled:
        raise ConfigError("no prompts: set --prompts FILE (JSONL, JSON or Parquet)")
    prompts = _of_files(config, seed=seed, notes=notes or notes_of(config), labelled=labelled)
    require_deciders(check for prompt in prompts for check in prompt.checks)
    if all(prompt.split != "train" for prompt in prompts):
        source = LABELLED if config.source == NO_MODEL else config.source
        raise InputError(f"{source}: contains no prompts to train on: all are held out, or dev")
    return prompts


def _require_own_splits(config: PromptsConfig) -> None:
    """Refuse files that would replace the dev or held-out prompts of the world `tiny` or `smol`.

    Named sets of held-out prompts may stand next to those of `smol`.

    Raises:
        ConfigError: naming the setting.
    """
    for name, given in (("held_out", config.held_out), ("dev", config.dev)):
        if given and not (config.source == SMOL and isinstance(given, dict)):
            raise ConfigError(
                f"prompts.{name} is unused: the world {config.source} has {name} prompts; leave it "
                "out, or name your prompts by --prompts FILE (smol takes further held-out sets: "
                "prompts.held_out={NAME: FILE})"
            )


def tiny_prompts() -> list[Prompt]:
    """Return the prompts of the tiny world."""
    from ..tiny.world import prompts

    return [as_prompt(tiny) for split in SPLITS for tiny in prompts(split)]


def smol_prompts(*, in_set: bool) -> list[Prompt]:
    """Return the prompts of the world `smol`; `in_set`: the held-out ones form a set, its own."""
    from ..smol.prompts import prompts

    return [
        Prompt(
            prompt_id=content_id(messages, None, each.checks, "general"),
            task="general",
            split=split,
            messages=messages,
            reference=None,
            checks=each.checks,
            source=SMOL,
            family=each.family,
            cluster=each.topic,
            eval_set=SMOL if in_set and split == HELD_OUT else None,
        )
        for split in SPLITS
        for each in prompts(split)
        for messages in [(Message(role="user", content=each.text),)]
    ]


def as_prompt(tiny: "TinyPrompt") -> Prompt:
    """Convert a prompt of the tiny world to a run's prompt."""
    messages = (Message(role="user", content=tiny.text),)
    return Prompt(
        prompt_id=content_id(messages, tiny.reference, tiny.checks, tiny.task),
        task=tiny.task,
        split=tiny.split,
        messages=messages,
        reference=tiny.reference,
        checks=tiny.checks,
        source=TINY,
        family=tiny.kind,
        # All questions about a person have the same answer; a story has its own habits.
        cluster=" ".join(map(str, tiny.exercise.items)) if tiny.task == "facts" else tiny.kind,
    )


def _of_files(
    config: PromptsConfig, *, seed: int, notes: RowNotes, labelled: Sequence[Prompt]
) -> list[Prompt]:
    """Return the prompts of the source and of the files of dev and held-out prompts, if any.

    A split without a file is split off the source.
    """
    shares: dict[Split, float] = {HELD_OUT: config.held_out_share, DEV: config.dev_share}
    if config.source == SMOL:
        _require_own_splits(config)
        own = smol_prompts(in_set=isinstance(config.held_out, dict))
        source = FileOfPrompts(path=Path(SMOL), placed=[(p.prompt_id, p) for p in own])
    elif config.source == NO_MODEL:
        source = FileOfPrompts(path=Path(LABELLED), placed=[(p.prompt_id, p) for p in labelled])
    else:
        source = FileOfPrompts.read(config, Path(config.source), notes)
    files = list(_own_files(config))
    apart = {split for split, _, _ in files}
    shares = {split: share for split, share in shares.items() if split not in apart}
    found = split_prompts(source.prompts, shares, seed)
    _require_parts(source)
    known = [source]
    for split, eval_set, place in files:
        own = FileOfPrompts.read(config, Path(place), notes)
        for other in known:
            _require_apart(own, split, other)
        known.append(own)
        found += [replace(prompt, split=split, eval_set=eval_set) for prompt in own.prompts]
    unnamed = next((p for p in found if p.split == HELD_OUT and p.eval_set is None), None)
    if isinstance(config.held_out, dict) and unnamed is not None:
        raise InputError(
            f"{config.source}: {unnamed.instruction[:60]!r} is marked as held out, and "
            "prompts.held_out names sets, of which it would be in none: leave out its split, or "
            "put it into the file of a set"
        )
    return found


def _own_files(config: PromptsConfig) -> Iterator[tuple[Split, str | None, str]]:
    """Give the files of held-out and dev prompts: split, name of the set, path.

    Raises:
        ConfigError: if the mapping of held-out sets is empty.
    """
    sets = config.held_out
    if sets == {}:
        raise ConfigError("prompts.held_out is empty: give it a set of held-out prompts, or null")
    if isinstance(sets, str):
        yield HELD_OUT, None, sets
    elif sets is not None:
        for eval_set, place in sorted(sets.items()):
            yield HELD_OUT, eval_set, place
    if config.dev is not None:
        yield DEV, None, config.dev


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOfPrompts:
    """The prompts of a file, with their places."""

    path: Path
    placed: list[tuple[str, Prompt]]

    @classmethod
    def read(cls, config: PromptsConfig, path: Path, notes: RowNotes) -> "FileOfPrompts":
        """Read a file of a run, and add its notes to `notes`."""
        path, own = path.expanduser(), notes_of(config)
        placed = _read_placed(path, task=config.task, shape=shape_of(config), notes=own)
        own.require_few(BAD_SHARE, "prompts.skip_bad")
        notes.add(own)
        return cls(path=path, placed=placed)

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts in the file's order."""
        return [prompt for _, prompt in self.placed]


def _require_parts(source: FileOfPrompts) -> None:
    """Raise InputError if some rows to train on name the part that they serve, and some do not."""
    places: dict[bool, str] = {}
    for place, prompt in source.placed:
        if prompt.split == TRAIN:
            places.setdefault(prompt.part is not None, place)
    if len(places) > 1:
        raise InputError(
            f"{source.path}, {places[False]}: lacks 'part', and {places[True]} has it; give it to "
            "all rows to train on, or to none"
        )


def _require_apart(own: FileOfPrompts, split: Split, other: FileOfPrompts) -> None:
    """Raise InputError if a prompt, or an id, of the file of a split is in another file, too."""
    texts = {prompt.messages: place for place, prompt in other.placed}
    ids = {prompt.prompt_id: place for place, prompt in other.placed}
    for place, prompt in own.placed:
        if prompt.messages in texts:
            raise InputError(
                f"{own.path}, {place}: the {split} prompt {prompt.messages[-1].content[:60]!r} is "
                f"also in {other.path}, {texts[prompt.messages]}; remove one"
            )
        if prompt.prompt_id in ids:
            raise InputError(
                f"{own.path}, {place}: the id {prompt.prompt_id!r} belongs to another prompt in "
                f"{other.path}, {ids[prompt.prompt_id]}; give each prompt its own id, or none"
            )
