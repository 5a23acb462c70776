"""What a run reports to displays and its log: stages with counts, events and warnings."""

import logging
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Protocol, cast

from ...stores.keys import Json
from ...stores.lake import RunWriter

EVERY_S = 30.0
"""How often a log says how far a unit that takes long is."""
RUN_LOGGER = "lpfloop.run"
"""The logger of a run's reports."""
Said = tuple[str, str, str]
"""A model's configured name, and the model and fingerprint that its endpoint reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStats:
    """The numbers that one committed unit adds to its stage: rows, cost, failures.

    `tokens` are completion tokens, `letters` the letters of the answers' texts; `calls` are
    requests to a model, `retries` those of them that were repeated; `failed` are requests that
    could not be answered even when sent alone. `served` holds the models that endpoints
    reported. If a unit both samples and judges, `judge_calls` and `judge_tokens` are the judges'
    part of its calls and completion tokens.
    """

    rows: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    letters: int = 0
    prompt_letters: int = 0
    calls: int = 0
    retries: int = 0
    unscored: int = 0
    failed: int = 0
    money: float = 0.0
    judge_calls: int = 0
    judge_tokens: int = 0
    served: frozenset[Said] = frozenset()

    def __add__(self, other: "UnitStats") -> "UnitStats":
        """Return the sum."""
        mine, theirs = self.numbers, other.numbers
        sums: dict[str, Any] = {name: mine[name] + theirs[name] for name in mine}
        return UnitStats(**sums, served=self.served | other.served)

    @property
    def numbers(self) -> dict[str, float]:
        """The fields that are summed up."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "served"}


def served_by(advance: UnitStats) -> list[dict[str, Json]]:
    """Return the models that endpoints reported, in the journal's form."""
    names = ("asked", "model", "system_fingerprint")
    return [dict(zip(names, values, strict=True)) for values in sorted(advance.served)]


class Reporter(Protocol):
    """A display of the run; it never changes the run's work.

    Several stages may be under way at one time. Each report of a stage waits for the one before it;
    `note` may be called at any time, from any thread.
    """

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Show a new stage of `planned` units, of which `done` were committed before."""
        ...

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Show that one more unit of the stage is committed."""
        ...

    def end(self, iteration: int, stage: str) -> None:
        """Show that the stage is over."""
        ...

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Show how far a unit under way is; `left_s` are the seconds until its end, if known."""
        ...

    def note(self, text: str, event: str = "note", **fields: Json) -> None:
        """Report an event: a sentence for people, and for programs its name and its numbers.

        Displays know these events: `iteration` is the title of the lines of an iteration; `phase`
        is shown at the end of the line of its `stage`; `score` ends the evaluation of an iteration;
        with a `code` it is a warning. Whatever else is a line of its own.
        """
        ...


def log_event(text: str, event: str, **fields: Json) -> None:
    """Write an event to the run's log alone."""
    logging.getLogger(RUN_LOGGER).info("%s", text, extra={"fields": {"event": event, **fields}})


MOST = 20
"""The most warnings that are kept of a stage, because reasons of failed requests may all differ."""
REMARK = "remark"
"""The kind of the event: iteration, stage, remark."""


class RunWarnings:
    """The warnings about a stage's work; those that an earlier process kept are not repeated."""

    def __init__(self, store: RunWriter, iteration: int, stage: str) -> None:
        self._store = store
        self._place: dict[str, Json] = {"iteration": iteration, "stage": stage}
        kept = cast("list[dict[str, Any]]", store.journal.events(REMARK))
        self._given = {
            event["remark"]
            for event in kept
            if (event["iteration"], event["stage"]) == (iteration, stage)
        }

    def note(self, remarks: set[str]) -> None:
        """Keep the new ones."""
        for remark in sorted(remarks - self._given)[: max(0, MOST - len(self._given))]:
            self._given.add(remark)
            detail: Json = {**self._place, "remark": remark}
            self._store.when_there_is_room(partial(self._store.journal.record, REMARK, detail))
