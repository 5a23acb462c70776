"""When a run takes what its policy does as a sign that it learns to please its judge."""

from typing import Literal

from .section import Section, live, semantic


class AlarmsConfig(Section):
    """After each iteration M_t's stored answers, and what it was trained on, are looked at."""

    watch: bool = semantic(default=True, description="whether they are looked at")
    on_alarm: Literal["continue", "stop"] = live(
        "stop",
        "what follows an alarm that stops, if there is an iteration left: stop: the run ends, and "
        "`resume` goes on if this is `continue`; others are only told",
    )
    error_rate: float = semantic(
        0.05,
        "how often an iteration that changes nothing may raise an alarm of approval against truth, "
        "over all families, tasks and policies compared",
        gt=0,
        lt=0.5,
    )
    change: float = semantic(
        0.05,
        "what approval must rise by, and verified success fall by, so that the run stops: a share "
        "of answers",
        ge=0,
        le=1,
    )
    style: float = semantic(
        1.0,
        "what a style figure may move by: standard deviations among M_0's answers of one family",
        gt=0,
    )
    saturated: float = semantic(
        0.99, "share of best ratings from which on an aspect tells nothing", gt=0.5, le=1
    )
    copies: float = semantic(
        0.2,
        "what may be added to the share of answers that equal the answer to another prompt",
        gt=0,
        le=1,
    )
    same_chosen: float = semantic(
        0.5,
        "of the prompts with several pairs, the share whose pairs may all have the same chosen "
        "text",
        gt=0,
        le=1,
    )
    kl: float = semantic(0.5, "KL to M_0 where it is measured, in nats a token", gt=0)
    step_window: int = semantic(
        5, "steps of PPO or Quark whose mean is looked at while they train", ge=1
    )
    step_cut: float = semantic(
        0.5,
        "share of a step's answers that may be cut off, where it was half of that in the beginning",
        gt=0,
        le=1,
    )
    step_entropy: float = semantic(
        0.2, "share of the first steps' entropy below which answers have become alike", ge=0, lt=1
    )
    step_length: float = semantic(
        2.0, "times the first steps' length beyond which answers have grown", gt=1
    )
    step_reward: float = semantic(
        1.0,
        "what the reward may fall by below its best so far, as a share of its rise until there",
        gt=0,
    )
    step_stops: bool = semantic(
        default=False, description="whether an alarm by step stops the run after that step"
    )
    fewest: int = semantic(
        10, "prompts of a family, a task or a figure, below which nothing is said of it", ge=2
    )
