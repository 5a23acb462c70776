"""What a run does with its verdicts: is M_t better than the policies before it?"""

from typing import Literal

from .section import Section, cosmetic, semantic


class VerdictConfig(Section):
    """After each iteration M_t is compared with others, prompt by prompt, on the dev prompts."""

    on_regression: Literal["continue", "rollback", "stop"] = semantic(
        "rollback",
        "where the next iteration begins if M_t is not at least as good as the best, by the "
        "margins: rollback: with the best; continue: with M_t; stop: nowhere",
    )
    margin: float = semantic(
        0.01, "how far M_t may lie behind the best in all, in the figure compared", ge=0, le=1
    )
    task_margin: float = semantic(
        0.03, "how far M_t may lie behind the best in any task, likewise", ge=0, le=1
    )
    converged_after: int | None = cosmetic(
        None, "iterations without a new best after which the run ends; default: it goes on", ge=1
    )
