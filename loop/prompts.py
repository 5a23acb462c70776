"""The prompts of a run: the tiny world's, or those of a user's files.

A file is UTF-8 with one JSON object a line (`prompt_rows` says which), and is read strictly: what
is wrong with it is said before a run begins.
"""

import codecs
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..configs.schema import PromptsConfig
from ..critics.checks import validate_check
from ..stores.keys import SEED_BITS, derive_seed
from ..stores.records import Message, Prompt, Split
from .prompt_rows import SPLITS, RowError, as_json, content_id, parse_row, to_prompt

log = logging.getLogger(__name__)

TINY = "tiny"
LONGEST_LINE = 10 * 2**20
SEED_RANGE = 2**SEED_BITS


class InputError(ValueError):
    """A prompts file that can not be used; the message names the file, the line and the remedy."""


def read_prompts(path: Path, *, task: str | None = None, split: Split = "train") -> list[Prompt]:
    """Read every prompt of a JSONL file, in the file's order.

    Args:
        path: the file.
        task: the task of rows that name none; default: guessed by their fields.
        split: the split of rows that name none.

    Raises:
        InputError: for anything that can not be read as meant.
    """
    found = dict[str, tuple[int, Prompt]]()
    repeated = 0
    for number, line in _lines(path):
        try:
            prompt = to_prompt(parse_row(line), task=task, split=split, source=path.name)
        except RowError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        first, same = found.setdefault(prompt.prompt_id, (number, prompt))
        if same != prompt:
            raise InputError(
                f"{path}, line {number}: the id {prompt.prompt_id!r} stands for something else on "
                f"line {first}; give each prompt an id of its own, or none"
            )
        repeated += first != number
    if not found:
        raise InputError(f"{path}: holds no prompts; write one JSON object a line")
    if repeated:
        log.warning("%s: %d lines repeat another one and are left out", path, repeated)
    return [prompt for _, prompt in found.values()]


def split_prompts(prompts: Sequence[Prompt], held_out_share: float, seed: int) -> list[Prompt]:
    """Mark a share of the prompts as held out, unless the file has held-out prompts of its own.

    The choice depends on the conversation and the seed alone: a prompt stays on its side when
    others come or go, and the same text never stands on both sides.
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
        InputError: for a file that can not be used, or one without prompts to train on.
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
        raise InputError(f"{path}: holds no prompts to train on; all are held out")
    return prompts


def tiny_prompts() -> list[Prompt]:
    """Return the prompts of the tiny world."""
    from .tiny.world import prompts

    return [
        Prompt(
            prompt_id=content_id(messages, tiny.reference, tiny.checks, tiny.task),
            task=tiny.task,
            split=tiny.split,
            messages=messages,
            reference=tiny.reference,
            checks=tiny.checks,
            source=TINY,
        )
        for split in SPLITS
        for tiny in prompts(split)
        for messages in [(Message(role="user", content=tiny.text),)]
    ]


def _with_held_out(
    prompts: list[Prompt], path: Path, other: Path, task: str | None
) -> list[Prompt]:
    """Add the held-out prompts of a file of their own, which must be others."""
    held_out = [replace(p, split="held-out") for p in read_prompts(other, task=task)]
    texts = {prompt.messages for prompt in prompts}
    ids = {prompt.prompt_id for prompt in prompts}
    for prompt in held_out:
        if prompt.prompt_id in ids or prompt.messages in texts:
            text = prompt.messages[-1].content[:60]
            raise InputError(f"{other}: the held-out prompt {text!r} is also in {path}; remove one")
    return [*prompts, *held_out]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Give the lines that are not blank, with their numbers."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(data) > LONGEST_LINE:
                    raise InputError(f"{path}, line {number}: longer than {LONGEST_LINE} bytes")
                text = _decoded(path, number, data)
                if text.strip():
                    yield number, text
    except OSError as error:
        raise InputError(f"{path}: can not be read: {error.strerror}") from error


def _decoded(path: Path, number: int, data: bytes) -> str:
    if number == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line; "
            "save the file as UTF-8"
        ) from error
