"""A run in progress: everything that the verbs of an iteration work with."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..configs.schema import RunConfig
from ..critics.feedback import FeedbackCritic
from ..critics.verify import Verifier
from ..stores.journal import Unit
from ..stores.keys import Json, digest
from ..stores.lake import RunWriter
from ..stores.records import Prompt
from ..stores.schemas import Row
from .models import Models
from .reporter import Advance, Reporter
from .stop import StopSignal

SEMANTICS: Mapping[str, int] = {
    "prompts": 1,
    "sample": 1,
    "refine": 1,
    "critique": 1,
    "reward": 1,
    "pair": 1,
    "demonstrate": 1,
    "train": 1,
    "measure": 1,
}
"""The version of what each verb computes: raised whenever the same inputs would give other rows."""


@dataclass(kw_only=True)
class Stage:
    """A planned stage: its units, and which of them are owed."""

    units: Sequence[Unit]
    owed: Sequence[Unit]
    commit: Callable[[Unit, Mapping[type[Row], Sequence[Row]], Advance], None]


@dataclass(kw_only=True)
class Run:
    """The store, the models and the judges of one run."""

    name: str
    config: RunConfig
    store: RunWriter
    models: Models
    critic: FeedbackCritic
    verifier: Verifier
    reporter: Reporter
    stop: StopSignal
    prompts: Mapping[str, Prompt] = field(repr=False)

    @property
    def logs(self) -> Path:
        """Where child processes write their logs."""
        return self.store.folder / "logs"

    def key(self, verb: str, iteration: int, upstream: Sequence[str], params: Json) -> str:
        """Return the key of a unit: a hash of everything its rows depend on."""
        return digest(
            {
                "verb": verb,
                "semantics": SEMANTICS[verb],
                "iteration": iteration,
                "seed": self.config.seed,
                "upstream": list(upstream),
                "params": params,
            }
        )

    @contextmanager
    def stage(self, iteration: int, label: str, keys: Sequence[str]) -> Generator[Stage]:
        """Plan a stage, show it, and account for its time; what is owed afterwards was stopped.

        Raises:
            Stopped: if units are still owed because somebody asked for a stop.
        """
        journal = self.store.journal
        units = journal.plan(iteration, label, keys)
        done = journal.done(iteration, label)
        owed = [unit for unit in units if unit.key not in done]
        paid = set[str]()

        def commit(unit: Unit, tables: Mapping[type[Row], Sequence[Row]], advance: Advance) -> None:
            telemetry = {"rows": advance.rows, "tokens": advance.tokens}
            self.store.commit(unit.key, tables, telemetry)
            paid.add(unit.key)
            self.reporter.advance(advance)

        self.reporter.begin(iteration, label, planned=len(units), done=len(done))
        started = time.monotonic()
        try:
            if owed:
                self.stop.check()
            yield Stage(units=units, owed=owed, commit=commit)
        finally:
            if owed:
                journal.add_seconds(iteration, label, time.monotonic() - started)
            self.reporter.end()
        if len(paid) < len(owed):
            self.stop.check()
            missing = len(owed) - len(paid)
            raise RuntimeError(f"stage {label} ended with {missing} units unpaid")
