"""The prompts of a run: the tiny world's, or those of a user's files.

A file is JSON Lines, a JSON list or Parquet (`prompt_rows` has the fields), and is read strictly:
errors are reported before a run begins.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...configs.schema import PromptsConfig
from ...critics.checks import validate_check
from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import Message, Prompt, Split
from .files import InputError, RowError, placed_rows
from .prompt_rows import SPLITS, as_json, content_id, to_prompt

if TYPE_CHECKING:
    from ..tiny.nouns import TinyPrompt

log = logging.getLogger(__name__)

TINY = "tiny"
SEED_RANGE = 2**SEED_BITS


def read_prompts(path: Path, *, task: str | None = None, split: Split = "train") -> list[Prompt]:
    """Read every prompt of a file, in the file's order.

    Args:
        path: the file.
        task: the task of rows without one; default: guessed from their fields.
        split: the split of rows without one.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    found = dict[str, tuple[str, Prompt]]()
    repeated = 0
    for place, row in placed_rows(path):
        try:
            prompt = to_prompt(row, task=task, split=split, source=path.name)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        first, same = found.setdefault(prompt.prompt_id, (place, prompt))
        # The same prompt may come from two sources; the first one's name is kept.
        if replace(same, source=prompt.source) != prompt:
            raise InputError(
                f"{path}, {place}: the id {prompt.prompt_id!r} is that of another prompt on "
                f"{first}; give each prompt its own id, or none"
            )
        repeated += first != place
    if not found:
        raise InputError(f"{path}: holds no prompts; write one JSON object a line")
    if repeated:
        log.warning("%s: dropped %d rows that repeat another one", path, repeated)
    return [prompt for _, prompt in found.values()]


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
        ConfigError: for a check of an unknown kind.
    """
    if config.source == TINY:
        return tiny_prompts()
    path = Path(config.source)
    prompts = read_prompts(path, task=config.task)
    if config.held_out is None:
        prompts = split_prompts(prompts, config.held_out_share, seed)
    else:
        prompts = _with_held_out(prompts, path, Path(config.held_out), config.task)
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
    )


def _with_held_out(
    prompts: list[Prompt], path: Path, other: Path, task: str | None
) -> list[Prompt]:
    """Add the held-out prompts of a separate file; none may be in the first."""
    held_out = [replace(p, split="held-out") for p in read_prompts(other, task=task)]
    texts = {prompt.messages for prompt in prompts}
    ids = {prompt.prompt_id for prompt in prompts}
    for prompt in held_out:
        if prompt.prompt_id in ids or prompt.messages in texts:
            text = prompt.messages[-1].content[:60]
            raise InputError(f"{other}: the held-out prompt {text!r} is also in {path}; remove one")
    return [*prompts, *held_out]
