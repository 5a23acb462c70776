"""Asking a judge about what units owe, and again about what could not be read.

A reply that cannot be read is never a number: its inquiry is put again, in the same stream, under a
new derived seed and at another temperature, until it has used up its attempts.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ...configs.schema import SamplingConfig
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ..run.lines import EngineLine, engine_sampling
from ..run.models import Served
from ..run.pump import Inquiry, Pump
from ..run.reporter import Advance
from ..run.run import Run, Stage


class JudgeSettings(Protocol):
    """How a judge is asked, and how often about one thing."""

    @property
    def sampling(self) -> SamplingConfig:
        """How its replies are drawn."""
        ...

    @property
    def retry_temperature(self) -> float:
        """At which temperature they are when it is asked again."""
        ...

    @property
    def attempts(self) -> int:
        """How many replies it may give."""
        ...


Q = TypeVar("Q", bound=Inquiry[Request, Completion])


def ask_judge(
    run: Run,
    stage: Stage,
    judge: Served,
    settings: JudgeSettings,
    *,
    work: Callable[[Unit], Sequence[Q]],
    commit: Callable[[Unit, Sequence[Q], Advance], None],
) -> None:
    """Ask a judge what a stage owes.

    `work` gives a unit's inquiries when its turn has come, each good for as many replies as
    `settings` allow; `commit` takes those of a settled unit, in order, with what they cost.
    """
    line = EngineLine(
        run=run,
        served=judge,
        first=engine_sampling(settings.sampling),
        again=engine_sampling(settings.sampling, temperature=settings.retry_temperature),
        judge=True,
    )
    Pump(run=run, line=line, work=work, commit=commit, times=settings.attempts).pay(stage)
