"""A published policy as a model that is asked."""

from ...stores.canaries import CANARIES
from ...stores.records import Checkpoint
from .conditioning import control_of
from .models import Served
from .run import Run


def served_checkpoint(run: Run, checkpoint: Checkpoint) -> Served:
    """Return how a run's checkpoint is sampled."""
    if checkpoint.parent_id is None:
        return run.models.initial
    return Served(
        name=run.models.initial.name,
        identity=checkpoint.checkpoint_id,
        location=str(run.store.folder / checkpoint.path),
        engine=run.config.policy.engine,
        canary=run.store.folder / CANARIES / checkpoint.checkpoint_id,
        control=control_of(run.config, checkpoint),
    )
