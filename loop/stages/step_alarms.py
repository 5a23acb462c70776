"""Alarms by step: looking at PPO's and Quark's numbers while they train.

What goes wrong in a training of many steps is to be seen long before it is over: the policy runs
away from M_0, its answers become alike, long or cut off, or its reward falls again. The first steps
are what later ones are compared with; each kind is told once a training, when it appears.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from math import sqrt
from statistics import fmean

from ...configs.alarms import AlarmsConfig
from ...stores.address import run_argument
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Alarm, Statistic
from ...stores.schemas import RowsByType
from ..lake.query.alarm_list import sentence
from ..run.handles import Planned
from ..run.iteration import Iteration
from ..run.outcomes import WENT_ON, AlarmStopError
from ..run.run import Verb, Work

BEYOND = 4.5
"""Standard errors that a fall of the reward exceeds: 1 in 20 trainings of 390 steps falls so far by
chance, as of all its steps the best is taken."""
WATCH_STEPS = Verb("watch_steps")
STAGE = "watch:steps"
EVENT = "alarm"
CUT, ENTROPY, LENGTH, REWARD, KL = "missing_eos", "entropy", "length", "reward", "kl"

Numbers = Mapping[str, float]
"""A step's numbers, by metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinding:
    """A kind of alarm that a step raises: its number then, before, and the limit, in words."""

    kind: str
    before: float
    after: float
    limit: float
    told: str


@dataclass(kw_only=True)
class StepWatch:
    """The numbers of a training's steps so far, and the alarms that they raised."""

    it: Iteration
    method: str
    steps: int
    history: list[Numbers] = field(default_factory=list[Numbers])
    _known: set[str] = field(default_factory=set[str])

    def look(self, numbers: Numbers) -> None:
        """Tell of what a step raises that no earlier one did.

        Raises:
            AlarmStopError: if the run is to stop at it, and there are steps left.
        """
        alarms = self.raised_by(numbers)
        run = self.it.run
        for alarm in alarms:
            run.reporter.note(sentence(alarm))
            detail: Json = asdict(alarm)
            run.store.when_there_is_room(partial(run.store.journal.record, EVENT, detail))
        if alarms:
            self.require_going_on(alarms[0].told)

    def require_going_on(self, told: str | None = None) -> None:
        """Stop the run at an alarm unless it was decided to go on.

        Raises:
            AlarmStopError: naming the alarm, and how to go on.
        """
        run, number = self.it.run, self.it.number
        config, decided = run.config.alarms, [self.method, number]
        if not config.step_stops or not self._known or len(self.history) == self.steps:
            return
        if decided in run.store.journal.events(WENT_ON):
            return
        if config.on_alarm == "stop":
            named = run_argument(run.store.folder)
            raise AlarmStopError(
                f"iteration {number}: {told or 'an alarm by step was raised'}. `lpfloop steps "
                f"{named}` shows the steps; to go on all the same, `lpfloop resume {named} "
                "--on-alarm continue`"
            )
        run.store.when_there_is_room(lambda: run.store.journal.record(WENT_ON, decided))

    def raised_by(self, numbers: Numbers) -> list[Alarm]:
        """Take over the next step, and return what it raises that no earlier one did."""
        self.history.append(numbers)
        found = [
            finding
            for finding in findings(self.history, self.it.run.config.alarms)
            if finding.kind not in self._known
        ]
        self._known |= {finding.kind for finding in found}
        return [self._alarm(finding) for finding in found]

    def _alarm(self, finding: StepFinding) -> Alarm:
        step = len(self.history)
        return Alarm(
            iteration=self.it.number,
            checkpoint_id=self.it.policy.identity,
            kind=finding.kind,
            scope="all",
            name=f"step {step}",
            before=finding.before,
            after=finding.after,
            limit=finding.limit,
            stops=self.it.run.config.alarms.step_stops,
            told=f"step {step} of {self.steps} of the training of M_{self.it.number} by "
            f"{self.method}: {finding.told}",
            examples=(),
        )


def findings(history: Sequence[Numbers], config: AlarmsConfig) -> Iterator[StepFinding]:
    """Yield what the last steps of a training say beside its first ones."""
    width = config.step_window
    if len(history) <= width:
        return
    first, last = (_means(part) for part in (history[:width], history[-width:]))
    kl, length = last.get(KL), last.get(LENGTH, 0.0)
    if kl is not None and length and kl / length > config.kl:
        yield StepFinding(
            kind=KL,
            before=first.get(KL, 0.0) / max(first.get(LENGTH, 0.0), 1.0),
            after=kl / length,
            limit=config.kl,
            told=f"the policy is {kl / length:.2f} nats a token away from M_0: so far away the "
            "reward means little. Raise kl_coef, or take an earlier policy (publish_every)",
        )
    cut = last.get(CUT, 0.0)
    if cut > config.step_cut and first.get(CUT, 0.0) <= config.step_cut / 2:
        yield StepFinding(
            kind=CUT,
            before=first.get(CUT, 0.0),
            after=cut,
            limit=config.step_cut,
            told=f"{100 * cut:.0f} % of the answers are cut off, {100 * first.get(CUT, 0.0):.0f} % "
            "were: being cut off pays, or answers grow. Look at missing_eos and max_tokens",
        )
    for kind, limit, more in (
        (ENTROPY, config.step_entropy, False),
        (LENGTH, config.step_length, True),
    ):
        before, after = first.get(kind), last.get(kind)
        if before is None or after is None or before <= 0:
            continue
        share = after / before
        if (share > limit) if more else (share < limit):
            yield StepFinding(
                kind=kind,
                before=before,
                after=after,
                limit=limit * before,
                told=f"the {kind} is {share:.2f} times that of the first steps: "
                + ("answers grow" if more else "answers become alike")
                + ". Train for fewer steps, or at a lower rate",
            )
    yield from _fallen_reward(history, config)


def _fallen_reward(history: Sequence[Numbers], config: AlarmsConfig) -> Iterator[StepFinding]:
    width = config.step_window
    rewards = [numbers[REWARD] for numbers in history if REWARD in numbers]
    means = [fmean(rewards[at : at + width]) for at in range(len(rewards) - width + 1)]
    if len(rewards) < 2 * width:
        return
    best, risen = max(means), max(means) - means[0]
    if best - means[-1] > max(config.step_reward * risen, BEYOND * _noise(rewards, width)):
        yield StepFinding(
            kind=REWARD,
            before=best,
            after=means[-1],
            limit=best - config.step_reward * risen,
            told=f"the reward fell to {means[-1]:.3f} from {best:.3f}, by more than it had risen. "
            "Train at a lower rate, or take an earlier policy (publish_every)",
        )


def _noise(rewards: Sequence[float], width: int) -> float:
    """Return the standard error of the difference of two means of neighbouring steps.

    A step's own deviation is told by how it differs from the next one: a trend counts little.
    """
    squares = fmean((after - before) ** 2 for before, after in pairwise(rewards))
    return sqrt(squares / width)


def _means(steps: Sequence[Numbers]) -> dict[str, float]:
    names = set[str].intersection(*(set(numbers) for numbers in steps))
    return {name: fmean(numbers[name] for numbers in steps) for name in sorted(names)}


def keep_alarms(it: Iteration, method: str, steps: Planned) -> None:
    """Commit the alarms of a training whose steps are all there, if they raised any."""
    journal, config = it.run.store.journal, it.run.config.alarms
    if not config.watch:
        return
    keys = steps.keys(journal)
    watch = StepWatch(it=it, method=method, steps=len(keys))
    alarms = [alarm for key in keys for alarm in watch.raised_by(numbers_of(it, key))]
    if not alarms:
        return

    def make(_: Unit) -> RowsByType:
        return {Alarm: alarms}

    work = Work(
        verb=WATCH_STEPS,
        params={"raised": [[alarm.kind, alarm.name] for alarm in alarms]},
        upstream=(steps.identity,),
        reads=lambda: [keys],
    )
    it.run.make(it.number, STAGE, work, make)


def numbers_of(it: Iteration, key: str) -> Numbers:
    """Return the numbers of a committed step."""
    return {row.metric: row.value for row in it.run.store.rows(Statistic, key)}
