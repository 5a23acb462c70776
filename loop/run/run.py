"""A run in progress: everything that the verbs of an iteration work with."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from ...configs.schema import RunConfig
from ...critics.facts.fact_judge import FactJudge
from ...critics.feedback import FeedbackCritic
from ...critics.grading.grader import Grader
from ...critics.guard import BARE, GuardKey
from ...critics.scoring.answer_forms import AnswerForm, Forms
from ...critics.verify import Verifier
from ...policies.engines.engine import Engine
from ...policies.trainers.job import Method
from ...policies.trainers.process import WarmTrainer
from ...policies.trainers.train_model import Trainer
from ...stores.committer import if_there_is_room
from ...stores.failpoints import reach
from ...stores.journal_reader import StageId, Unit
from ...stores.keys import Json, digest
from ...stores.lake import RunWriter
from ...stores.records import Checkpoint, Prompt, RewardModel
from ...stores.schemas import TABLES, Row, RowsByType
from ..data.splits import PARTS
from .budget import Budget, Prices, cost_of
from .completers import Completers
from .device_inventory import MAIN_THREAD, DevicePlacement, Places
from .fork import Fork
from .handles import Planned
from .judges import EVERYTHING, NOBODY, Filters, Panels
from .models import CRITIC, Models, Served
from .reporter import Reporter, UnitStats, served_by
from .stage import Stage, StageScheduler, StageTime, WallTime
from .stop import STAGE, StopSignal


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The actions of a recipe in `iterations` iterations.

    `uses` maps each role (policy, critic, reward, grading, annotation, completion) to the verbs
    that use it. `trainings` are the methods that trained, in their order; `trains` is also true
    if the run ended because it could not train. `parts` are the parts of the prompts in use.
    """

    iterations: int = 0
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    verbs: tuple[str, ...] = ()
    trainings: tuple[Method, ...] = ()
    trains: bool = False
    parts: tuple[str, ...] = PARTS


NOTHING_SEEN = Observed()
"""For a run without a recipe, and before a rehearsal."""


OF_RUN = "run:"
"""The prefix of a source that is not a file: run:NAME, or run:NAME/TABLE for a derived table."""
Comparison = Sequence[Row]
"""The rows of one comparison: a prompt, two answers, the votes on them, and the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Comparisons by people: `read` gives them as rows of an iteration; `identity` hashes them."""

    identity: Json
    read: Callable[[int], Iterator[Comparison]]

    def first(self, count: int) -> "Labels":
        """Return the first of them."""

        def few(iteration: int) -> Iterator[Comparison]:
            return islice(self.read(iteration), count)

        return replace(self, read=few)


@dataclass(frozen=True, slots=True)
class Verb:
    """The work of a stage, named next to the function that does it.

    `semantics` is the version of its computation: raised whenever the same inputs would give
    other rows.
    """

    name: str
    semantics: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The computation of a stage: its verb, its parameters and its input stages.

    `upstream` are the identities of the stages that it reads; `reads` gives, for each unit, the
    keys of the units that it reads, and is called only if the stage is new. `also_on` are
    identities of stages, or keys of units, that it depends on through its parameters.
    """

    verb: Verb
    params: Json
    upstream: tuple[str, ...]
    reads: Callable[[], Sequence[Sequence[str]]]
    also_on: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Run:
    """The store, the models and the judges of one run.

    `seen` is the summary of the recipe's rehearsal; `labels` are comparisons that replace those
    of its annotators. `retry` are the stages, by iteration and label, whose unread judgements
    are requested again. `trainer` replaces the trainer in a child process; `warm` starts that
    process before its job is ready. With `asks_most`, as in a rehearsal, a stage sends all
    requests that it could need, whether or not a critic passes an answer.
    """

    name: str
    config: RunConfig
    store: RunWriter
    models: Models
    critic: FeedbackCritic
    verifier: Verifier
    reporter: Reporter
    stop: StopSignal
    prompts: Mapping[str, Prompt] = field(repr=False)
    panels: Panels = NOBODY
    completers: Completers | None = None
    grader: Grader | None = None
    fact_judge: FactJudge | None = None
    forms: Forms = field(default_factory=dict[str, AnswerForm])
    filters: Filters = EVERYTHING
    seen: Observed = NOTHING_SEEN
    retry: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    labels: Labels | None = None
    fork: Fork | None = None
    trainer: Trainer | None = None
    asks_most: bool = False
    warm: WarmTrainer = field(default_factory=WarmTrainer, init=False)
    budget: Budget = field(init=False)
    prices: Prices = field(init=False)
    flow: StageScheduler = field(init=False)
    wall_time: WallTime = field(default_factory=WallTime, init=False)
    _verified: set[str] = field(default_factory=set[str], init=False)
    _decided_by: StageId | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.store, lambda: self.config, self._seconds_at_work)
        self.flow = StageScheduler(
            store=self.store,
            stop=self.stop,
            break_off=self.break_off,
            limit_reached=self.budget.check_limits,
        )
        self.configure(self.config)
        self.store.journal.on_taken_over = self._stop_at_once

    def _seconds_at_work(self) -> float:
        return self.wall_time.elapsed()

    @property
    def logs(self) -> Path:
        """Where child processes write their logs."""
        return self.store.folder / "logs"

    def configure(self, config: RunConfig) -> None:
        """Apply live settings, from the next unit on."""
        self.config, self.prices = config, Prices.of(config)
        self.stop.shutdown_timeout_s = config.shutdown_timeout_s
        self.models.configure(config)

    def parts_with(self, part: str) -> Collection[str]:
        """Return the parts of the prompts that the recipe uses, `part` included."""
        return {*self.seen.parts, part}

    @property
    def places(self) -> DevicePlacement:
        """The devices or endpoints of the run's models."""
        return DevicePlacement(config=self.config)

    @property
    def rates(self) -> bool:
        """Whether the run can rate answers: by a critic, or by the verifier instead."""
        return self.config.critic.kind == "verifier" or CRITIC in self.models.judging

    def break_off(self) -> None:
        """End the work of all engines, and the waits for disk space if the run is stopped."""
        self.models.close()
        self.warm.close()
        if self.stop.requested:
            self.store.give_up()

    def _stop_at_once(self) -> None:
        """Break off all work: another machine has taken over the run."""
        self.stop.shutdown_timeout_s = 0.0
        self.stop.request()

    def guard(self, request: str, judge: Served) -> GuardKey:
        """Return the key by which the request of this name to a judge is guarded."""
        if not self.config.injection_guard:
            return BARE
        return GuardKey.of(self.config.seed, request, by_schema=judge.by_schema)

    def engine(self, served: Served) -> Engine:
        """Return a running engine of `served`, whose published weights are verified first.

        Raises:
            PendingAgainError: if they are damaged: their training is pending again.
            StaleWeightsError: if the engine runs other weights.
        """
        self.verify(served)
        return self.models.engine(served)

    def verify(self, served: Served) -> None:
        """Hash every byte of a checkpoint that was trained here, once in this process.

        Raises:
            PendingAgainError: if it is damaged: its training is pending again.
        """
        if served.canary is not None and served.identity not in self._verified:
            self.store.verified_model(TABLES[Checkpoint], served.identity)
            self._verified.add(served.identity)

    def reward_folder(self, model: RewardModel) -> Path:
        """Return the folder of a reward model that was trained here, verified once in this process.

        Raises:
            PendingAgainError: if it is damaged: its training is pending again.
        """
        if model.reward_model_id not in self._verified:
            self.store.verified_model(TABLES[RewardModel], model.reward_model_id)
            self._verified.add(model.reward_model_id)
        return self.store.folder / model.path

    def run_stage(
        self,
        iteration: int,
        label: str,
        work: Work,
        run_units: Callable[[Stage], None],
        *,
        places: Places = MAIN_THREAD,
        judge: bool = False,
    ) -> Planned:
        """Plan a stage; `run_units` commits its pending units as soon as the places are free.

        If the main thread is one of the places, the stage is done on return, else it runs while the
        recipe continues. With `judge`, its requests go to the feedback model (for the budget).

        Raises:
            Stopped: if units are pending after a request to stop, or at a limit of the budget.
        """
        self.flow.raise_error()
        reach("stage.begin")
        planned = self._plan(iteration, label, work)
        # Its last units may be committed while its thread still ends.
        self.flow.settle(planned)
        pending = self.store.journal.pending(iteration, label)
        if pending and self.fork is not None:
            pending = self.fork.reuse(self.store, pending)
        reach("stage.planned")
        writer = StageWriter(run=self, planned=planned, judge=judge)
        time_ = StageTime(self.wall_time)
        stage = Stage(
            planned=planned,
            pending=pending,
            commit=writer.commit,
            flow=self.flow,
            waits=self.flow.unread(work.upstream, work.reads),
            rest=time_.rest,
        )
        needed = places if pending else MAIN_THREAD
        body = partial(self._run_units, stage, writer, time_, run_units)
        self.flow.run_stage(planned, pending, needed, writer.show, body)
        return planned

    def decide_by(self, stage: Planned) -> None:
        """Note that a stage's rows decide which stages are planned from now on.

        They decide which policy an iteration begins with, for example, or which prompts it takes.
        """
        self._decided_by = (stage.iteration, stage.stage)

    def make(
        self, iteration: int, label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Planned:
        """Run a stage whose units are computed here, without a model; return it.

        `make` gives the rows of a unit; the rows of its first type are counted.
        """

        def run_units(stage: Stage) -> None:
            for unit in stage.units():
                tables = make(unit)
                stage.commit(unit, tables, UnitStats(rows=len(next(iter(tables.values())))))

        return self.run_stage(iteration, label, work, run_units)

    def _run_units(
        self,
        stage: Stage,
        writer: "StageWriter",
        time_: StageTime,
        run_units: Callable[[Stage], None],
    ) -> None:
        """Show a stage, run it, and record the time; units that stay pending were stopped."""
        planned, pending = stage.planned, stage.pending
        iteration, label, done = planned.iteration, planned.stage, planned.chunks - len(pending)
        if pending:
            now: Json = {"iteration": iteration, "stage": label, "done": done, "at": time.time()}
            self.store.when_there_is_room(lambda: self.store.journal.record(STAGE, now))
        self.flow.report(
            lambda: self.reporter.begin(iteration, label, planned=planned.chunks, done=done)
        )
        keeper = self.store.journal.keeper
        try:
            if pending:
                if keeper is not None:
                    keeper.check_head()
                time_.begin()
                self.flow.admit()
                self.budget.require_time_and_room()
                run_units(stage)
        finally:
            self._end(planned, time_ if pending else None)
        if writer.units < len(pending):
            self.flow.check()
            self.budget.check()
            missing = len(pending) - writer.units
            raise RuntimeError(f"stage {label} ended with {missing} units pending")
        if pending and keeper is not None:
            keeper.ask()
        reach("stage.end")

    def _plan(self, iteration: int, label: str, work: Work) -> Planned:
        """Write all units of a stage into the journal, unless they are there."""

        def keys() -> list[str]:
            return [self._hash(iteration, work, read) for read in work.reads()]

        identity = self._hash(iteration, work, work.upstream)
        journal = self.store.journal
        count = self.store.when_there_is_room(
            lambda: journal.plan(
                *(iteration, label, identity, keys),
                upstream={*work.upstream, *work.also_on},
                decided_by=self._decided_by,
            )
        )
        return Planned(iteration=iteration, stage=label, identity=identity, chunks=count)

    def _hash(self, iteration: int, work: Work, upstream: Sequence[str]) -> str:
        """Return a hash of everything that the rows depend on."""
        return digest(
            {
                "verb": work.verb.name,
                "semantics": work.verb.semantics,
                "iteration": iteration,
                "seed": self.config.seed,
                "upstream": list(upstream),
                "params": work.params,
            }
        )

    def _end(self, planned: Planned, time_: StageTime | None) -> None:
        """Wait until the finished units are durable, and record the time."""
        place = (planned.iteration, planned.stage)
        try:
            self.store.flush()
        finally:
            if time_ is not None:
                seconds, twice = time_.end()
                note = partial(self.store.journal.add_seconds, *place, seconds, twice=twice)
                if sys.exception() is None:
                    self.store.when_there_is_room(note)
                else:
                    # On an error, this does not wait for disk space: the stop was requested.
                    if_there_is_room(note)
            self.flow.report(lambda: self.reporter.end(*place))


@dataclass(kw_only=True)
class StageWriter:
    """Hands a stage's finished units to the store, and shows them once they are durable."""

    run: Run
    planned: Planned
    judge: bool
    units: int = 0
    _unshown: dict[str, UnitStats] = field(default_factory=dict[str, UnitStats])

    def commit(self, unit: Unit, tables: RowsByType, done: UnitStats) -> None:
        """Hand a finished unit's rows to the store, and settle its cost."""
        reach("stage.unit")
        cost = cost_of(done, judge=self.judge)
        tokens = done.tokens if self.judge else done.judge_tokens
        usage = {"judge_calls": cost.judge_calls, "judge_tokens": tokens}
        telemetry = {**done.numbers, **usage}
        self._unshown[unit.key] = done
        self.run.store.commit(unit.key, tables, telemetry, served_by(done))
        self.run.budget.settle(unit.key, cost)
        self.units += 1

    def show(self, key: str) -> None:
        """Tell the reporter that a unit has become durable."""
        place = (self.planned.iteration, self.planned.stage)
        self.run.reporter.advance(*place, self._unshown.pop(key))
