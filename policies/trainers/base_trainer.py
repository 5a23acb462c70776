# pyright: basic
"""The additions of all trainers here to transformers': rows by length, warm-up, a next-token loss.

Rows by length: an optimizer step's rows follow the random order; only their division into forward
passes is decided by their length, which saves padding. The mean over a step's rows is the same in
any order, to rounding.

Warm-up: over w steps it usually rises as 0, 1/w, 2/w, ...: the first step has no effect, and a
short training may have no other. Here it rises as 1/(w+1), 2/(w+1), ..., and the schedule after it
is the usual one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
from accelerate.data_loader import SeedableRandomSampler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Sampler
from transformers import Trainer

from .next_token import METRIC, NextTokenLoss

pc: Any = pyarrow.compute
ROWS = 1000
"""Rows that are read at a time."""
PROMPT, WHOLE, ANSWERS = "prompt_ids", "input_ids", ("chosen_ids", "rejected_ids")
"""Columns of token ids, in TRL's names; a reward model's answers contain their prompts."""

Share = Callable[[int], float]
"""The learning rate after a number of steps, as a share of its peak."""


def warm_up(warmup: int, later: Share) -> Share:
    """Return a learning rate that rises over `warmup` steps, then is `later`'s."""
    return lambda done: (done + 1) / (warmup + 1) if done < warmup else later(done)


def row_lengths(dataset: Any, longest: int) -> list[int]:
    """Return the tokens of the longest sequence of each row, cut at `longest`."""
    found: list[int] = []
    names = [name for name in (PROMPT, *ANSWERS, WHOLE) if name in dataset.column_names]
    for part in dataset.select_columns(names).with_format("arrow").iter(ROWS):
        sizes = {name: pc.list_value_length(part[name]) for name in names}
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
        """Yield the rows of one epoch."""
        order = list(self.random)
        for start in range(0, len(order), self.step):
            yield from sorted(order[start : start + self.step], key=lambda row: -self.lengths[row])

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch."""
        self.random.set_epoch(epoch)


class BaseTrainer(Trainer):
    """A trainer with rows of like length, if `by_length`, and the loss of `next_token`, if any."""

    by_length = False
    next_token: NextTokenLoss | None = None
    _metrics: dict[str, Any]
    _passes = 0

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Make a forward and a backward pass; return its part of the optimizer step's loss.

        The next-token loss is added once per optimizer step, in its last pass: so it has its weight
        whatever the number of passes, and however the method divides by that number.
        """
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.next_token is None:
            return loss
        self._passes += 1
        if self._passes < self.current_gradient_accumulation_steps:
            return loss
        self._passes = 0
        nll = self.next_token.add_gradients(model, self.state.global_step + 1)
        shares = cast("Tensor", self.accelerator.gather(nll))
        self._metrics["train"][METRIC].append(shares.mean().item())
        return loss + (self.next_token.weight * nll).to(loss.dtype)

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """Make the schedule of the arguments, with the warm-up of `warm_up`."""
        if self.lr_scheduler is not None:
            return self.lr_scheduler
        usual = super().create_scheduler(num_training_steps, optimizer)
        warmup = self.args.get_warmup_steps(num_training_steps)
        if warmup and isinstance(usual, LambdaLR):
            self.lr_scheduler = LambdaLR(usual.optimizer, warm_up(warmup, usual.lr_lambdas[0]))
        return self.lr_scheduler

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Return the order of the rows."""
        if not self.by_length:
            return super()._get_train_sampler(train_dataset)
        args: Any = self.args
        together = args.per_device_train_batch_size * args.gradient_accumulation_steps
        lengths = row_lengths(train_dataset or self.train_dataset, args.max_length)
        return LikeLengths(lengths, step=together * args.world_size, seed=args.data_seed)
