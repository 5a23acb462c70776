"""The smoke test before a run's first stage, and the bound on replies that cannot be read."""

from .section import Section, cosmetic


class SmokeConfig(Section):
    """A few prompts through all that a run will do, before anything long is paid for.

    Nothing of it is trained on, published or evaluated, so no row of the loop depends on it.
    """

    prompts: int = cosmetic(
        3, "prompts of the test, as different in task as there are; 0: no test", ge=0, le=64
    )
    most_unread: float = cosmetic(
        0.5,
        "share of a judge's replies that may be unreadable: in the test, and of a stage's first "
        "200 or more; above it the run stops",
        ge=0,
        le=1,
    )
    train: bool = cosmetic(
        default=True, description="whether a step of each training that the recipe needs is tried"
    )
