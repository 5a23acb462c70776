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
