# pyright: basic
"""Rows of like length in one forward pass: less padding, and the same optimizer steps.

An optimizer step's rows stay those that chance gave it; only which of them share a forward pass is
decided by their length. The mean over a step's rows is the same in any order, to rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import Sampler
from transformers import Trainer

pc: Any = pyarrow.compute
ROWS = 1000
"""Rows that are read at a time."""
PROMPT, WHOLE, ANSWERS = "prompt_ids", "input_ids", ("chosen_ids", "rejected_ids")
UNPAIRED = ("completion_ids", "KL_completion_ids")
"""Columns of token ids, in TRL's names; a reward model's answers contain their prompts."""


def token_columns(dataset: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the columns of token ids, some rows at a time, as Arrow's arrays."""
    names = [name for name in (PROMPT, *ANSWERS, *UNPAIRED, WHOLE) if name in dataset.column_names]
    for part in dataset.select_columns(names).with_format("arrow").iter(ROWS):
        yield {name: part[name].combine_chunks() for name in names}


def row_lengths(dataset: Any, longest: int) -> list[int]:
    """Return the tokens of the longest sequence of each row, where it is cut at `longest`."""
    found: list[int] = []
    for columns in token_columns(dataset):
        sizes = {name: pc.list_value_length(ids) for name, ids in columns.items()}
        if WHOLE in sizes:
            tokens = sizes[WHOLE]
        else:
            tokens = pc.max_element_wise(*(sizes[side] for side in ANSWERS))
            tokens = pc.add(tokens, sizes[PROMPT]) if PROMPT in sizes else tokens
        found += pc.min_element_wise(tokens, pa.scalar(longest, tokens.type)).to_pylist()
    return found


class LikeLengths(Sampler[int]):
    """The order of accelerate's random sampler, each step's rows sorted, the longest first.

    So a step that does not fit into memory fails at its beginning.
    """

    def __init__(self, lengths: Sequence[int], *, step: int, seed: int) -> None:
        self.lengths = lengths
        self.step = step
        self.random = SeedableRandomSampler(lengths, data_seed=seed)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        """Yield the rows of a pass over all."""
        order = list(self.random)
        for start in range(0, len(order), self.step):
            yield from by_length(order[start : start + self.step], self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Say which pass over the rows comes next."""
        self.random.set_epoch(epoch)


def by_length(rows: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Return rows, the longest first."""
    return sorted(rows, key=lambda row: -lengths[row])


def token_batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield all rows in batches of like length, each of at most `most` tokens with its padding."""
    batch: list[int] = []
    for row in by_length(range(len(lengths)), lengths):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class GroupingTrainer(Trainer):
    """A trainer whose forward passes have rows of like length, where `by_length` says so."""

    by_length = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Return the order of the rows."""
        if not self.by_length:
            return super()._get_train_sampler(train_dataset)
        args: Any = self.args
        together = args.per_device_train_batch_size * args.gradient_accumulation_steps
        lengths = row_lengths(train_dataset or self.train_dataset, args.max_length)
        return LikeLengths(lengths, step=together * args.world_size, seed=args.data_seed)
