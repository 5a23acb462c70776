# pyright: basic
"""Demonstrations laid end to end: a forward pass without padding.

The rows of a forward pass are those that they would be with padding, and so is its loss, as long as
no token sees another row. Not every attention can do that, and libraries do not say: it is measured
before the first step.
"""

from typing import Any

import torch
from datasets import Dataset

from .job import TrainingError

IGNORED = -100
"""The label of a token that is not learned."""

APART: dict[torch.dtype, float] = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Nats a token, on average, by which a row may differ beside another one, by type."""


def cut_rows(rows: Dataset, max_length: int) -> Dataset:
    """Cut rows to the length of the training, as TRL does where it pads; drop what lost its answer.

    TRL itself refuses to cut rows that it does not pad.
    """
    cut = rows.map(
        lambda row: {name: row[name][:max_length] for name in ("input_ids", "labels")},
        desc="Cutting",
    )
    return cut.filter(lambda row: any(label != IGNORED for label in row["labels"]))


def refuse_mixing(trainer: Any) -> None:
    """Refuse a model in which rows that lie end to end see one another.

    Raises:
        TrainingError: of kind `refused`.
    """
    data = trainer.train_dataset
    rows = [data[place] for place in range(min(2, len(data)))]
    if len(rows) == 1:
        rows *= 2
    model = trainer.model
    alone = torch.cat([_losses(trainer, [row]) for row in rows])
    together = _losses(trainer, rows)
    apart = float((alone - together).abs().mean())
    allowed = APART.get(model.dtype, APART[torch.bfloat16])
    if torch.cuda.is_available():
        allowed = APART[torch.bfloat16]
    if not apart <= allowed:
        raise TrainingError(
            "refused",
            f"training.sft.packing: in {type(model).__name__} rows that lie end to end see one "
            f"another (they differ by {apart:.2g} nats a token): leave it out, or choose another "
            "training.attention",
        )


def _losses(trainer: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    """Return the loss of each token that is learned, of rows in one forward pass."""
    device = trainer.accelerator.device
    batch = trainer.data_collator(rows)
    moved = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in batch.items()}
    labels = moved.pop("labels")[0, 1:]
    model = trainer.model.to(device)
    before = model.training
    model.eval()
    with torch.inference_mode(), trainer.accelerator.autocast():
        logits = model(**moved, use_cache=False).logits[0, :-1].float()
    model.train(before)
    learned = labels != IGNORED
    return torch.nn.functional.cross_entropy(logits[learned], labels[learned], reduction="none")
