"""The plan of a run: its requests, trainings and rows, before they cost anything.

It is the requests of a rehearsal, times the prompts that each one of the sample represents. Tokens
of answers are as many as were measured, on this lake or in the smoke test, else as many as they may
be. Of models and files only the headers of the policy's weights are read.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ...configs.schema import RunConfig
from ...configs.training import OnlineSettings
from ...policies.trainers.checks import model_bytes, training_bytes
from ...policies.trainers.job import ONLINE, TrainJob
from ...policies.trainers.step_files import planned_steps
from ...policies.trainers.step_policies import published_steps
from ...policies.trainers.training_fit import placed_fit
from ...policies.workers.engine_factory import engine_kind
from ...stores.keys import Json
from ...stores.records import Prompt
from ..data.prompt_rows import SPLITS
from ..recipes.roles import needed_roles, verifier_used_by
from ..run.budget import Prices
from ..run.models import is_endpoint, locate_model
from ..run.run import Observed
from ..stages.online_rl import ON_THE_WAY
from .iterations import PROMPTS_A_PART
from .rehearsal import Rehearsal
from .run_request import VERIFIER
from .stand_ins import LETTERS_A_TOKEN, CallCosts, ModelCalls, RehearsedStage

STEP_STAGE = re.compile(r":step-([0-9]+):")
"""The part of an eval set stage's label for a policy that was published at a step of a training."""
TRAININGS = ("train", "train_reward")
"""The stages that publish a model."""
ROW_BYTES = 400
"""The approximate size of a row without its text."""
PACKED = 0.5
"""The approximate size of a text in a Parquet file, as a share of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRole:
    """A model that the run calls, or the verifier: its name, its engine, the verbs that call it."""

    role: str
    model: str
    engine: str
    asked_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """A stage: units, requests and their tokens, `rows` and `steps` of a training.

    `tokens` are tokens of answers: measured before if `measured`, else the most they may be, as
    `most_tokens`. `seconds` is None if no similar stage was timed.
    """

    iteration: int
    stage: str
    units: int
    model: str = ""
    calls: int = 0
    judge_calls: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    most_tokens: int = 0
    measured: bool = False
    money: float = 0.0
    scored: int = 0
    rows: int = 0
    steps: int = 0
    seconds: float | None = None

    @property
    def is_work(self) -> bool:
        """Whether a model works in it."""
        return bool(self.calls or self.scored or self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDisk:
    """The bytes that a run keeps: rows, models; and the peak of its trainer's additional need."""

    rows: int
    models: int
    training: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work of a run. `ends` is why it ends before its last iteration, if the plan shows that.

    `left_out` counts the prompts that a rule refuses, by the rule. `unpriced` are the models
    elsewhere without a configured price, `money_limit` is how much the run may spend. `fork` is the
    run whose units may be re-used; the numbers include them. `memory` has lines on the memory of
    each stage. `too_few` says that no training gets the rows that it needs.
    """

    recipe: str
    iterations: int
    seed: int
    roles: tuple[PlannedRole, ...]
    prompts: Mapping[str, Mapping[str, int]]
    groups: Mapping[str, int]
    stages: tuple[PlannedStage, ...]
    disk: PlannedDisk
    ends: str | None
    memory: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    unpriced: tuple[str, ...] = ()
    money_limit: float | None = None
    fork: str | None = None
    too_few: str | None = None

    @property
    def bills(self) -> dict[str, dict[str, float]]:
        """The cost of each model, by the verb that calls it, without zeros."""
        found: dict[str, dict[str, float]] = {}
        for stage in self.stages:
            if stage.money:
                verbs = found.setdefault(stage.model, {})
                verb = stage.stage.partition(":")[0]
                verbs[verb] = verbs.get(verb, 0.0) + stage.money
        return found

    @property
    def measured(self) -> bool:
        """Whether all answers' lengths were measured before."""
        return all(stage.measured for stage in self.stages if stage.calls)

    @property
    def hours(self) -> float | None:
        """The hours of all stages; None unless each in which a model works was timed before."""
        working = [stage.seconds for stage in self.stages if stage.is_work]
        known = [seconds for seconds in working if seconds is not None]
        return sum(known) / 3600 if len(known) == len(working) else None

    def total(self, name: str) -> float:
        """Return the sum of a number of all stages."""
        return sum(getattr(stage, name) for stage in self.stages)

    @property
    def totals(self) -> dict[str, Json]:
        """The sums of the numbers that are spent."""
        names = ("calls", "judge_calls", "prompt_tokens", "tokens", "most_tokens", "money")
        return {**{name: self.total(name) for name in names}, "hours": self.hours}

    def as_json(self) -> dict[str, Json]:
        """Return the plan, for a JSON document and the journal."""
        more = {"totals": self.totals, "measured": self.measured, "bills": self.bills}
        return {**asdict(self), **more}


def plan_of(rehearsal: Rehearsal, prompts: Sequence[Prompt], memory: Sequence[str] = ()) -> Plan:
    """Return the plan of the run that was rehearsed; `memory` are lines on each stage's memory."""
    config, sample = rehearsal.config, rehearsal.sample
    count = max(len(prompts), sample.train)
    planned = [_plan_stage(config, stage, count, rehearsal.costs) for stage in rehearsal.stages]
    once = list(_each_step(config, planned))
    last = config.iterations if rehearsal.ends is None else max(s.iteration for s in once)
    stages = list(_stages_of_turns(once, last))
    jobs = [s.job for s in rehearsal.stages if s.job is not None]
    called = [a.served for s in rehearsal.stages for a in s.calls.values()]
    prices = Prices.of(config)
    return Plan(
        recipe=config.recipe.name,
        iterations=config.iterations,
        seed=config.seed,
        roles=tuple(_roles(config, rehearsal.seen)),
        prompts=_by_task(prompts),
        groups={name: group.total for name, group in sample.groups.items()},
        stages=tuple(stages),
        disk=_disk(config, stages, jobs),
        ends=rehearsal.ends,
        too_few=_too_few(config, once),
        memory=tuple(memory),
        left_out=sample.left_out,
        unpriced=tuple(sorted({each.name for each in called if prices.is_missing(each)})),
        money_limit=config.budget.money,
    )


def _too_few(config: RunConfig, stages: Sequence[PlannedStage]) -> str | None:
    """Return a warning if no training gets as many rows as it needs."""
    most, needed = max((stage.rows for stage in stages), default=0), config.training.min_pairs
    if not 0 < most < needed:
        return None
    return f"warning: about {most} rows to train on, fewer than training.min_pairs={needed}"


def _stages_of_turns(rehearsed: Sequence[PlannedStage], last: int) -> Iterator[PlannedStage]:
    """Yield the stages of all iterations: one that repeats the one before has its numbers."""
    by_number = dict[int, list[PlannedStage]]()
    for stage in rehearsed:
        by_number.setdefault(stage.iteration, []).append(stage)
    yield from by_number.get(0, ())
    before = list[PlannedStage]()
    for number in range(1, last + 1):
        found = by_number.get(number, before)
        if _work_of(found) != _work_of(before):
            before = found
        yield from (replace(stage, iteration=number) for stage in before)


def _work_of(stages: Sequence[PlannedStage]) -> list[tuple[str, str, int, int]]:
    """Return an iteration's work; lengths of texts and numbers of passing rows vary by chance."""
    return [(stage.stage, stage.model, stage.units, stage.calls) for stage in stages]


def _each_step(config: RunConfig, once: Sequence[PlannedStage]) -> Iterator[PlannedStage]:
    """Yield the stages, repeated for every policy that is published at a step of a training.

    A rehearsal has two steps, and publishes after the first one; the second is the last.
    """
    trained = next((stage for stage in once if stage.stage in ONLINE), None)
    steps = 0 if trained is None else trained.steps
    settings = None if trained is None else getattr(config.training, trained.stage)
    published = () if settings is None else published_steps(settings, steps)
    for stage in once:
        found = STEP_STAGE.search(stage.stage)
        if stage.stage == ON_THE_WAY:
            yield replace(stage, units=len(published))
        elif found is None:
            yield stage
        else:
            for step in published if found[1] == "1" else (steps,):
                name = stage.stage.replace(found[0], f":step-{step}:", 1)
                yield replace(stage, stage=name)


def _plan_stage(
    config: RunConfig, stage: RehearsedStage, prompts: int, costs: CallCosts
) -> PlannedStage:
    """Return a stage's work for all prompts of a run, from its work for the rehearsed sample."""
    scale, online = stage.group.scale, _online(config, stage)
    rows, calls = round(stage.rows * scale), list(stage.calls.values())
    units, steps = _units(config, stage, prompts), 0
    if online is not None:
        units = steps = planned_steps(rows, online)
    elif stage.job is not None and stage.job.online is None:
        settings = stage.job.settings
        steps = math.ceil(math.ceil(rows / settings.batch_size) * settings.epochs)

    def times(made: ModelCalls) -> float:
        return scale if online is None else units * online.rollouts / max(1, made.calls)

    def total(name: str, made: Sequence[ModelCalls] = calls) -> int:
        return round(sum(times(each) * getattr(each, name) for each in made))

    money, scored = Prices.of(config).money, round(stage.scored * scale)
    known = costs.get(stage.stage)
    seconds = None if known is None else known.seconds
    return PlannedStage(
        iteration=stage.iteration,
        stage=stage.stage,
        units=units,
        model=", ".join(dict.fromkeys(each.served.name for each in calls)),
        calls=total("calls"),
        judge_calls=total("calls", [each for each in calls if stage.judge or each.judges]),
        prompt_tokens=total("prompt_tokens"),
        tokens=total("tokens"),
        most_tokens=total("most_tokens"),
        measured=all(each.measured for each in calls) and bool(calls),
        money=sum(
            times(each) * money(each.served, prompt_tokens=each.prompt_tokens, tokens=each.tokens)
            for each in calls
        ),
        scored=scored,
        rows=rows,
        steps=steps,
        seconds=None if seconds is None else seconds * (total("calls") or steps or scored),
    )


def _units(config: RunConfig, stage: RehearsedStage, prompts: int) -> int:
    if stage.stage == "prompts":
        return math.ceil(prompts / PROMPTS_A_PART)
    if not stage.by_chunk:
        return stage.units
    return math.ceil(stage.group.total / config.prompts.chunk)


def _online(config: RunConfig, stage: RehearsedStage) -> OnlineSettings | None:
    """Return the settings of a training that samples, in the stage of its steps."""
    if stage.job is None or stage.job.method != stage.stage:
        return None
    return getattr(config.training, stage.stage) if stage.stage in ONLINE else None


def _roles(config: RunConfig, seen: Observed) -> list[PlannedRole]:
    """Return the roles of the run: the models, then the verifier if it rates."""
    models = [
        PlannedRole(
            role=role.name,
            model=role.model,
            engine=""
            if role.engine is None
            else engine_kind(locate_model(role.model), role.engine),
            asked_by=role.needed_by,
        )
        for role in needed_roles(config, seen)
    ]
    verbs = verifier_used_by(config, seen)
    place = config.critic.verifier or "shipped"
    rates = PlannedRole(role=VERIFIER, model=place, engine="", asked_by=verbs)
    return [*models, *([rates] if verbs else [])]


def _by_task(prompts: Sequence[Prompt]) -> Mapping[str, Mapping[str, int]]:
    """Return how many prompts of each task there are, by split."""
    found: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for prompt in prompts:
        of_split = found[prompt.split]
        of_split[prompt.task] = of_split.get(prompt.task, 0) + 1
    return found


def _disk(
    config: RunConfig, stages: Sequence[PlannedStage], jobs: Sequence[TrainJob]
) -> PlannedDisk:
    """Return the bytes that a run keeps, and its largest training's peak."""
    letters = LETTERS_A_TOKEN * sum(stage.tokens for stage in stages)
    rows = sum(stage.calls + stage.scored + stage.rows for stage in stages)
    between = sum(stage.units for stage in stages if stage.stage == ON_THE_WAY)
    trained = sum(stage.stage in TRAININGS for stage in stages) + between
    models = training = 0
    if trained and not is_endpoint(config.policy.model):
        policy, fit = Path(locate_model(config.policy.model)), placed_fit(config)
        steps = max(stage.steps for stage in stages)
        value = policy if any(job.method == "ppo" for job in jobs) else None
        models = trained * model_bytes(fit, policy)
        each = max((s.units for s in stages if s.stage == ON_THE_WAY), default=0)
        training = training_bytes(fit, policy, steps, value=value)
        training += each * model_bytes(fit, policy)
    text = round(PACKED * letters)
    return PlannedDisk(rows=text + ROW_BYTES * rows, models=models, training=training)
