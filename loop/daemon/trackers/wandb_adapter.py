# pyright: basic, reportMissingImports=false
"""Weights & Biases: a run that is resumed by its id; offline by default."""

from pathlib import Path

from ....stores.durable import make_folder
from .tracked_batch import TrackedBatch


def send(batch: TrackedBatch, folder: Path) -> None:
    """Log the rows; the server drops a row whose place it has already."""
    import wandb

    run = wandb.init(
        project=batch.project,
        name=batch.run,
        id=batch.identity,
        resume="allow",
        dir=str(make_folder(folder)),
        settings=wandb.Settings(silent=True, disable_git=True, console="off"),
    )
    for axis in ("training_step", "iteration"):
        run.define_metric(axis, hidden=True)
    run.define_metric("train/*", step_metric="training_step")
    for name in ("evaluation/*", "stages/*"):
        run.define_metric(name, step_metric="iteration")
    for row in batch.rows:
        run.log({row.axis: row.x, **row.values}, step=row.place)
    run.finish()
