"""A rehearsal: a run's own recipe over a few of its prompts, with stand-ins for costly parts.

Everything else is real: verbs, templates, filters, chunks, the journal, in a folder that is gone
afterwards. No model is opened, no endpoint is called. The requests of each stage are recorded; they
predict the requests of the whole run (`plan`) and show their content (`preview`).
"""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ...configs.load import resolve_config
from ...configs.own_function import names_function
from ...configs.recipes import Pooled, Scheduled
from ...configs.schema import BudgetConfig, ConfigError, EngineConfig, RunConfig
from ...configs.section import with_values
from ...configs.training import OnlineSettings
from ...critics.feedback import FeedbackCritic
from ...critics.verify import own_verifier
from ...policies.trainers.job import ONLINE, Method, TrainJob
from ...stores.failpoints import ignore_failpoints
from ...stores.journal import Journal
from ...stores.journal_reader import Unit
from ...stores.keys import canonical_json
from ...stores.lake import RunWriter
from ...stores.records import Evaluation, Prompt, Score
from ...stores.schemas import RowsByType
from ...stores.side_evals import SMOKE, smoke_test_of
from ..data.prompts import LABELLED
from ..data.splits import PARTS, laid_out
from ..evaluation.probe_sets import PROBES, load_probes
from ..recipes.roles import needed_roles, require_named
from ..run.device_inventory import MAIN_THREAD, Places
from ..run.handles import Planned
from ..run.judges import judges_of
from ..run.models import NO_MODEL, POLICY, REWARD, completes, locate_model
from ..run.run import Labels, Observed, Run, Work
from ..run.stage import Stage
from ..run.stop import NothingToTrainOn, StopSignal
from ..stages.complete import COMPLETE
from ..stages.people_labels import TAKE_LABELS
from ..stages.supervised_set import STAGE as SUPERVISED
from ..stages.supervised_set import read_supervised, source_of
from .iterations import turn
from .logs import Tee
from .prompt_sample import PromptGroup, PromptSample, sample_prompts
from .stand_ins import (
    LONGEST_REPLY,
    CallCost,
    CallCosts,
    Notes,
    RehearsedStage,
    StandInModels,
    StandInTrainer,
    StandInVerifier,
    placeholder,
    role_of,
    rows_of,
)

ITERATIONS, OWN_ITERATIONS = 2, 8
"""The rehearsed iterations at least, and of a user's recipe, which may do something else in each.

Later iterations repeat the last of them.
"""
STEPS = 2
"""Steps of an online method that are rehearsed."""
EXCERPT = 200
FEW = 20
"""Comparisons by people that are rehearsed with."""
BEFORE_SHARES = frozenset({"review", "filter"})
"""Verbs that decide about prompts before any iteration takes its share of them."""
MEASURING = frozenset({"measure", "assess", "measure_scores", "check_drafts", "probe"})
"""Verbs whose rows no other one reads."""
MEASURING_ASKS = frozenset({"kl-sample", "logprob", "probe"})
"""Verbs that call the policy to measure it, in addition to the verbs of evaluated answers."""
MEMORY = Path("/dev/shm")  # noqa: S108 -- folders in it get unique names
"""A folder in memory, if the machine has one: a rehearsal need not survive a power cut."""


class RehearsalError(RuntimeError):
    """A run that cannot be rehearsed; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The work of a run: its stages in order, up to its end; `ends` is why it ends there.

    `seen` is its recipe's behaviour, `costs` are the measured costs of its stages' calls. `failed`
    is the error of a failed recipe.
    """

    config: RunConfig
    sample: PromptSample
    stages: Sequence[RehearsedStage]
    seen: Observed
    ends: str | None
    failed: str | None = None
    costs: CallCosts = field(default_factory=dict[str, CallCost])

    def require_whole(self) -> None:
        """Refuse to plan by the rehearsal of a recipe that failed.

        Raises:
            RehearsalError: saying how.
        """
        if self.failed is not None:
            raise RehearsalError(self.failed)


@dataclass(kw_only=True)
class RehearsedRun(Run):
    """A run that notes its stages, and the group of prompts on which each works."""

    notes: Notes
    sample: PromptSample
    _groups: dict[str, PromptGroup] = field(default_factory=dict[str, PromptGroup], init=False)
    _parts: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        sample, place = self.sample, self.config.assessment.probes
        probes = () if place is None else load_probes(place).prompts
        probed = PromptGroup(name=PROBES, total=len(probes), sample=probes)
        groups = [sample.share, *sample.groups.values(), sample.tested, *sample.parted, probed]
        self._groups = {sample.chunks(g).identity: g for g in reversed(groups) if g.sample}

    @property
    def done(self) -> Sequence[RehearsedStage]:
        """The stages, each once: M_0's answers, for example, may be planned several times."""
        found = dict[Planned, RehearsedStage]()
        for notes in self.notes.stages:
            if notes.planned is not None:
                found.setdefault(notes.planned, notes)
        return list(found.values())

    def parts_with(self, part: str) -> Collection[str]:
        """Note that the recipe uses a part of the prompts."""
        self._parts.add(part)
        return self.seen.parts

    def observe(self, *, ended: bool) -> Observed:
        """Return the recipe's behaviour so far; `ended`: it had too little to train on."""
        uses, methods = dict[str, dict[str, None]](), dict[Method, None]()
        of_recipe = [n for n in self.notes.stages if n.iteration > 0 and not _evaluates(n.stage)]
        for notes in of_recipe:
            roles = [role_of(a.served) for a in notes.calls.values()]
            if notes.job is not None:
                methods[notes.job.method] = None
                online = notes.job.online
                by_reward = online is not None and "reward" in online.weights
                roles += [POLICY, *([REWARD] if by_reward else [])]
            for role in [*roles, *([REWARD] if notes.scored else [])]:
                uses.setdefault(role, {})[_verb(notes.stage)] = None
        # A method that samples brings the reward model that it trains.
        samples = bool(ONLINE & {*methods})
        trained: list[Method] = [m for m in methods if m != "reward" or not samples]
        return Observed(
            iterations=self.config.iterations,
            uses={role: tuple(sorted(found)) for role, found in uses.items()},
            verbs=tuple(dict.fromkeys(_verb(notes.stage) for notes in of_recipe)),
            trainings=tuple(trained),
            trains=bool(methods) or ended,
            parts=tuple(part for part in PARTS if part in self._parts),
        )

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
        """Plan and run a stage as any run does, and note it."""
        notes = RehearsedStage(iteration=iteration, stage=label, judge=judge)
        self.notes.stages.append(notes)
        group = self._group_of(iteration, label, work)
        planned = super().run_stage(iteration, label, work, run_units, places=places, judge=judge)
        self._groups[planned.identity] = group
        if notes.job is not None and notes.job.method == label:
            group = self._trained_on(notes.job, group)
        notes.group, notes.units, notes.planned = group, planned.chunks, planned
        chunks = len(self.sample.chunks(group).chunks)
        notes.by_chunk = group.name != SMOKE and notes.units == chunks
        return planned

    def make(
        self, iteration: int, label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Planned:
        """Run a stage that is computed here; rows that only measure a policy are left out."""
        unread = work.verb.name in MEASURING
        nothing: RowsByType = {Evaluation: [], Score: []}
        return super().make(iteration, label, work, (lambda _: nothing) if unread else make)

    def _trained_on(self, job: TrainJob, otherwise: PromptGroup) -> PromptGroup:
        """Return the smallest group that holds all prompts of a training."""
        ids = {*rows_of(job).select("prompt_id").collect()["prompt_id"].to_list()}
        groups = sorted(self._groups.values(), key=lambda group: len(group.sample))
        holding = (g for g in groups if ids <= {prompt.prompt_id for prompt in g.sample})
        return next(holding, otherwise)

    def _group_of(self, iteration: int, label: str, work: Work) -> PromptGroup:
        """Return the prompts that a stage works on: its inputs' prompts."""
        share = self.sample.share
        if smoke_test_of(label) is not None:
            return replace(share, name=SMOKE, total=len(share.sample))
        if iteration == 0 and work.verb.name in BEFORE_SHARES:
            return replace(share, total=self.sample.suitable)
        known = (self._groups[name] for name in work.upstream if name in self._groups)
        return next(known, share)


def rehearse(
    config: RunConfig,
    prompts: Sequence[Prompt],
    costs: CallCosts | None = None,
    *,
    longest: int = LONGEST_REPLY,
    labels: Labels | None = None,
) -> Rehearsal:
    """Return the work of a run of these prompts; `costs` are measured costs of its stages' calls.

    The replies of the stand-ins have `longest` letters at most. Of people's labels it reads a few.

    Raises:
        ConfigError: if something configured cannot be used, or a role that is needed lacks a model.
    """
    once = partial(_rehearse, config, prompts, costs or {}, longest, labels)
    # The result depends on whether the recipe calls the reward model, and which prompts it uses.
    first = once(Observed(uses={REWARD: ()}))
    seen, sizes = first.seen, config.prompts.parts
    if first.failed is None and config.iterations:
        _require_use(config, seen)
    require_named(needed_roles(config, seen), f"the recipe {config.recipe.name}")
    rewarded = REWARD in seen.uses or config.reward.model == NO_MODEL
    if rewarded and laid_out(sizes, seen.parts) == laid_out(sizes, PARTS):
        return first
    return once(seen)


def _rehearse(
    config: RunConfig,
    prompts: Sequence[Prompt],
    costs: CallCosts,
    longest: int,
    labels: Labels | None,
    assumed: Observed,
) -> Rehearsal:
    """Rehearse a run in a temporary folder, opened as one whose recipe behaves as `assumed`."""
    sample = sample_prompts(config, prompts, assumed.parts)
    short = _shorten(config, sample)
    notes = Notes(costs=costs, policy=locate_model(short.policy.model), longest=longest)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        ignore_failpoints(),
        tempfile.TemporaryDirectory(prefix="lpfloop-rehearsal-", dir=place) as lake,
        StandInVerifier(
            own_verifier(short.critic.verifier),
            sentence_match=short.facts.judge == "sentence_match",
        ) as verifier,
    ):
        folder = Path(lake) / "runs" / "rehearsal"
        served = {
            role.name: placeholder(role.name, role.model, role.engine or EngineConfig())
            for role in needed_roles(short, assumed)
        }
        models = StandInModels(
            config=short,
            logs=folder / "logs",
            initial=served[POLICY],
            reward_id=short.reward.model if REWARD in served else None,
            judging={name: s for name, s in served.items() if name not in (POLICY, REWARD)},
            notes=notes,
        )
        store = RunWriter(Journal.create(folder, {"config": canonical_json(resolve_config(short))}))
        try:
            run = RehearsedRun(
                name="rehearsal",
                config=short,
                store=store,
                models=models,
                critic=FeedbackCritic.from_config(short.critic),
                verifier=verifier,
                reporter=Tee([]),
                stop=StopSignal(),
                prompts={prompt.prompt_id: prompt for prompt in sample.prompts},
                labels=None if labels is None else labels.first(FEW),
                trainer=StandInTrainer(notes=notes, policy=models.initial),
                asks_most=True,
                seen=assumed,
                notes=notes,
                sample=sample,
                **judges_of(short, models),
            )
            ends, failed = _end_of(run)
        finally:
            store.close()
        seen = replace(run.observe(ended=ends is not None), iterations=config.iterations)
        if failed is not None or not config.iterations:
            # The part that was not seen may still call the reward model.
            seen = replace(seen, uses={REWARD: (), **seen.uses})
        return Rehearsal(
            config=config,
            sample=sample,
            stages=() if failed is not None else tuple(_every_stage(run, config)),
            seen=seen,
            ends=ends,
            failed=failed,
            costs=costs,
        )


def _end_of(run: RehearsedRun) -> tuple[str | None, str | None]:
    """Run a rehearsal; return why it ends early, and how its recipe failed, if so."""
    try:
        turn(run, run.sample.prompts)
    except NothingToTrainOn as end:
        return str(end), None
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 -- the error is reported
        # A recipe of the user's own may raise anything, at answers that no model gave.
        message = f"{type(error).__name__}: {error}".partition("\n")[0]
        return None, f"the run cannot be planned: {message[:EXCERPT]}"
    return None, None


def _require_use(config: RunConfig, seen: Observed) -> None:
    """Refuse people's labels, or a pool of models, that the recipe does not ask for.

    Raises:
        ConfigError: naming the setting.
    """
    if config.annotation.source and TAKE_LABELS.name not in seen.verbs:
        raise ConfigError(
            f"{LABELLED} is set, and the recipe {config.recipe.name} does not read it: only "
            "`annotated` and `surrogate` do; leave it out"
        )
    compares = not isinstance(config.recipe, Pooled)
    if compares and completes(config) and COMPLETE.name not in seen.verbs:
        raise ConfigError(
            f"completion.pool is unused: the recipe {config.recipe.name} does not call complete; "
            "leave it out"
        )


def _every_stage(run: RehearsedRun, config: RunConfig) -> Iterator[RehearsedStage]:
    """Yield the stages, first the one that commits people's answers, often many to each prompt."""
    source = source_of(config)
    if source is not None:
        every = read_supervised(config.prompts, source, run.prompts.values())
        group = PromptGroup(name=SUPERVISED, total=len(every), sample=())
        yield RehearsedStage(iteration=0, stage=SUPERVISED, group=group, by_chunk=True)
    yield from run.done


def _shorten(config: RunConfig, sample: PromptSample) -> RunConfig:
    """Return the configuration of a rehearsal: its prompts, few steps, no limits.

    Its stages run one by one, in one thread.
    """
    changed: dict[str, object] = {
        "iterations": min(config.iterations, rehearsed_iterations(config)),
        "budget": BudgetConfig(),
        "overlap": False,
        "prompts.chunk": sample.chunk,
        "prompts.per_iteration": None,
        "prompts.max_test": None,
        "prompts.max_dev": None,
        "prompts.parts": sample.parts,
        "training.min_pairs": 1,
        "training.next_token.weight": 0.0,
    }
    if config.prompts.variance.margin is not None:
        changed["prompts.variance.margin"] = 0.0
    for name in sorted(ONLINE):
        online: OnlineSettings = getattr(config.training, name)
        changed[f"training.{name}.max_steps"] = STEPS
        changed[f"training.{name}.publish_every"] = min(1, online.publish_every)
    return with_values(config, changed)


def rehearsed_iterations(config: RunConfig) -> int:
    """Return how many iterations are rehearsed at most, so that each that differs is among them."""
    recipe = config.recipe
    if names_function(recipe.name):
        return OWN_ITERATIONS
    if isinstance(recipe, Scheduled) and not isinstance(recipe.train, str):
        return max(ITERATIONS, len(recipe.train))
    return ITERATIONS


def _verb(stage: str) -> str:
    """Return the verb of a stage's label; an overall grade has a separate verb."""
    verb, _, rest = stage.partition(":")
    return "grade_overall" if verb == "grade" and rest.endswith("overall") else verb


def _evaluates(stage: str) -> bool:
    """Whether a stage measures a policy, and is not the recipe's."""
    parts = stage.split(":")
    return "evaluate" in parts or parts[0] in MEASURING_ASKS or smoke_test_of(stage) is not None
