"""Which trackers of experiments are told of a run's numbers; none by default."""

from typing import Literal

from .section import Place, Section, cosmetic

Tracker = Literal["tensorboard", "trackio", "wandb"]


class TrackingConfig(Section):
    """Trackers are told after each iteration, from what is stored; nothing leaves the machine."""

    to: tuple[Tracker, ...] = cosmetic((), "trackers: tensorboard, trackio, wandb; default: none")
    project: str = cosmetic("lpfloop", "the project under which they file the run", min_length=1)
    folder: Place | None = cosmetic(
        None, "where their files go; default: the folder `tracking` of the run"
    )
    online: bool = cosmetic(default=False, description="let wandb send to its server")
