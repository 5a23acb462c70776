"""The prompts of a run: the tiny world's, or those of a user's files.

What can be a file is in `files`, and its fields in `prompt_rows`. It is read strictly: errors are
reported before a run begins.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...configs.engines import NO_MODEL
from ...configs.schema import ConfigError, PromptsConfig
from ...critics.checks import validate_check
from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import Message, Prompt, Split
from .files import InputError, RowError, name_of_source, placed_rows
from .prompt_ids import PromptIds
from .prompt_rows import (
    AS_IT_IS,
    SPLITS,
    NoPromptError,
    NoUserTurnError,
    RowShape,
    as_json,
    content_id,
    to_prompt,
)
from .splits import DEV

if TYPE_CHECKING:
    from ..tiny.nouns import TinyPrompt

log = logging.getLogger(__name__)

TINY = "tiny"
SEED_RANGE = 2**SEED_BITS


def read_prompts(
    path: Path,
    *,
    task: str | None = None,
    shape: RowShape = AS_IT_IS,
    split: Split = "train",
    run: Iterable[Prompt] = (),
) -> list[Prompt]:
    """Read every prompt of a file, in the file's order.

    Args:
        path: the file, the folder or the hub's data set.
        task: the task of rows without one; default: guessed from their fields.
        shape: how the rows differ from the known forms.
        split: the split of rows without one.
        run: prompts of a run; none may have the id of another one of these.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    return [prompt for _, prompt in _placed(path, task, shape, split, run)]


def shape_of(config: PromptsConfig) -> RowShape:
    """Return how a run's own files differ from the known forms."""
    return RowShape(turns=config.turns, input=config.input, fields={**config.fields})


def _placed(
    path: Path,
    task: str | None,
    shape: RowShape,
    split: Split = "train",
    run: Iterable[Prompt] = (),
) -> list[tuple[str, Prompt]]:
    """Read every prompt of a file, with its place."""
    found = list[tuple[str, Prompt]]()
    ids = PromptIds.beside(run)
    repeated = silent = 0
    source = name_of_source(path)
    for place, row in placed_rows(path):
        try:
            named = shape.named(row)
            prompt = to_prompt(named, task=task, split=split, source=source, shape=shape)
            new = ids.is_new(named, prompt, path, place)
        except NoPromptError as error:
            remedy = "or say which holds it: prompts.fields={prompt: ...}"
            raise InputError(f"{path}, {place}: {error}, {remedy}") from error
        except NoUserTurnError:
            silent += 1
            continue
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        if new:
            found.append((place, prompt))
        repeated += not new
    if not found:
        raise InputError(f"{path}: holds no prompts; write one JSON object a line")
    if silent:
        log.warning("%s: dropped %d conversations in which the user says nothing", path, silent)
    if repeated:
        log.warning("%s: dropped %d rows that repeat another one", path, repeated)
    return found


def split_prompts(prompts: Sequence[Prompt], held_out_share: float, seed: int) -> list[Prompt]:
    """Mark a share of the prompts as held out, unless the file has held-out prompts of its own.

    The choice depends only on the conversation and the seed: a prompt stays on its side when others
    are added or removed, and the same text is never on both sides.
    """
    if held_out_share <= 0 or any(prompt.split == "held-out" for prompt in prompts):
        return list(prompts)
    places = [derive_seed(seed, "split", as_json(p.messages)) / SEED_RANGE for p in prompts]
    # A file of a few lines still gets both sides.
    limit = min(max(held_out_share, min(places)), max(places))
    held_out = [place <= limit and place < max(places) for place in places]
    return [
        replace(prompt, split="held-out") if out else prompt
        for prompt, out in zip(prompts, held_out, strict=True)
    ]


def load_prompts(config: PromptsConfig, *, seed: int) -> list[Prompt]:
    """Return the prompts of a run, of both splits: the tiny world's, or those of the user's files.

    Raises:
        InputError: for a file that cannot be used, or one without prompts to train on.
        ConfigError: for a check of an unknown kind, or if no prompts are named.
    """
    if config.source == TINY:
        return [p for p in tiny_prompts() if config.dev_share > 0 or p.split != DEV]
    if config.source == NO_MODEL:
        raise ConfigError("no prompts are named: --prompts FILE (JSONL, JSON or Parquet)")
    path = Path(config.source)
    if config.held_out is None:
        prompts = read_prompts(path, task=config.task, shape=shape_of(config))
        prompts = split_prompts(prompts, config.held_out_share, seed)
    else:
        prompts = _with_held_out(config, path, Path(config.held_out))
    for check in (check for prompt in prompts for check in prompt.checks):
        validate_check(check)
    if all(prompt.split == "held-out" for prompt in prompts):
        raise InputError(f"{path}: has no prompts to train on: all are held out")
    return prompts


def tiny_prompts() -> list[Prompt]:
    """Return the prompts of the tiny world."""
    from ..tiny.world import prompts

    return [as_prompt(tiny) for split in SPLITS for tiny in prompts(split)]


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


def _with_held_out(config: PromptsConfig, path: Path, other: Path) -> list[Prompt]:
    """Return the prompts of two files, the second one's held out; none may be in both."""
    asked = _placed(path, config.task, shape_of(config))
    held_out = _placed(other, config.task, shape_of(config))
    texts = {prompt.messages: place for place, prompt in asked}
    ids = {prompt.prompt_id: place for place, prompt in asked}
    for place, prompt in held_out:
        if prompt.messages in texts:
            raise InputError(
                f"{other}, {place}: the held-out prompt {prompt.messages[-1].content[:60]!r} is "
                f"also in {path}, {texts[prompt.messages]}; remove one"
            )
        if prompt.prompt_id in ids:
            raise InputError(
                f"{other}, {place}: the id {prompt.prompt_id!r} is that of another prompt in "
                f"{path}, {ids[prompt.prompt_id]}; give each prompt its own id, or none"
            )
    return [p for _, p in asked] + [replace(p, split="held-out") for _, p in held_out]
