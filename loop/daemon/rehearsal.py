"""A rehearsal: a run's own recipe over a few of its prompts, with stand-ins for what is costly.

Everything else is real: verbs, templates, filters, chunks, the journal, in a folder that is gone
afterwards. No model is opened, no endpoint is called. What each stage asks is noted, and tells what
the whole run will ask (`plan`) and what its requests look like (`preview`).
"""

import math
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from ...configs.group_methods import OnlineSettings
from ...configs.load import resolved
from ...configs.own_function import names_function
from ...configs.recipes import Scheduled
from ...configs.schema import BudgetConfig, ConfigError, EngineConfig, RunConfig
from ...critics.feedback import FeedbackCritic
from ...critics.own_verifier import own_verifier
from ...policies.engines.engine import Request
from ...policies.engines.token_count import about, token_count
from ...policies.trainers.job import ONLINE
from ...stores.beside import SMOKE, smoked
from ...stores.journal import Journal
from ...stores.journal_reader import Unit
from ...stores.keys import canonical_json
from ...stores.lake import RunWriter
from ...stores.records import Evaluation, Prompt, Score
from ...stores.schemas import RowsByType
from ..evaluation.probe import ANSWERS, MEASURES
from ..evaluation.probe_sets import PROBES, load_probes
from ..recipes import variant_of
from ..recipes.missing_needs import require_needs
from ..recipes.roles import COMPLETION, POLICY, NeededRole, annotator, needed_roles, require_named
from ..run.completers import completers_of
from ..run.handles import Planned
from ..run.labels import Labels
from ..run.lines import engine_sampling
from ..run.models import JUDGES, NLI, REWARD, Models, Served, located
from ..run.outcomes import NothingToTrainOn
from ..run.panel import Panels
from ..run.prompt_filters import Filters
from ..run.run import Run, Work
from ..run.run_fact_judge import fact_judge_of
from ..run.run_forms import forms_of
from ..run.run_grader import grader_of
from ..run.stage import Stage
from ..run.stage_places import MAIN_THREAD, Places
from ..run.stop import StopSignal
from ..stages.supervised_set import STAGE as SUPERVISED
from ..stages.supervised_set import read_supervised, source_of
from .loop import turn
from .prompt_sample import GROUP, PromptGroup, PromptSample, sampled, spread
from .rehearsed_stage import RehearsedStage
from .shared_work import divided
from .stand_ins import (
    LETTERS_A_TOKEN,
    LONGEST_REPLY,
    CallCosts,
    Counting,
    Notes,
    StageNotes,
    StandInModels,
    StandInTrainer,
    StandInVerifier,
    rows_of,
)

ITERATIONS, OWN_ITERATIONS = 2, 8
"""How many iterations are rehearsed at least, and of a recipe that the user wrote, which may do
something else in each. Later ones do what the last of them does."""
STEPS = 2
"""Steps of an online method that are rehearsed."""
FEW = 20
"""Comparisons by people that are rehearsed with."""
EXCERPT = 200
BEFORE_SHARES = frozenset({"review", "filter"})
"""Verbs that decide about prompts before any iteration takes its share of them."""
MEASURING = frozenset({"measure", "assess", "measure_scores", "check_drafts", "probe"})
"""Verbs whose rows no other one reads."""
MEMORY = Path("/dev/shm")  # noqa: S108 -- what is made there has a name of its own
"""A folder in memory, where a machine has one: nothing of a rehearsal need survive a power cut."""


class RehearsalError(RuntimeError):
    """A run that cannot be rehearsed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a run does: its stages in order, as far as it gets; `ends` says why it ends there."""

    config: RunConfig
    sample: PromptSample
    models: Models
    stages: Sequence[RehearsedStage]
    ends: str | None


class Silent:
    """A reporter of what nobody is to see."""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Say nothing."""

    def advance(self, iteration: int, stage: str, advance: object) -> None:
        """Say nothing."""

    def end(self, iteration: int, stage: str) -> None:
        """Say nothing."""

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


@dataclass(kw_only=True)
class RehearsedRun(Run):
    """A run that notes its stages, and the group of prompts on which each works."""

    notes: Notes
    sample: PromptSample
    _groups: dict[str, PromptGroup] = field(default_factory=dict[str, PromptGroup], init=False)
    _done: list[RehearsedStage] = field(default_factory=list[RehearsedStage], init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        sample = self.sample
        groups = [sample.share, *sample.groups.values(), sample.tested, *sample.parted]
        self._groups = {sample.chunked(g).identity: g for g in reversed(groups) if g.sample}

    @property
    def done(self) -> Sequence[RehearsedStage]:
        """The stages so far."""
        return self._done

    def pay(
        self,
        iteration: int,
        label: str,
        work: Work,
        pay: Callable[[Stage], None],
        *,
        places: Places = MAIN_THREAD,
        judge: bool = False,
    ) -> Planned:
        """Plan and pay a stage as any run does, and note it."""
        notes = StageNotes(iteration=iteration, stage=label, judge=judge)
        self.notes.stages.append(notes)
        group = self._group_of(iteration, label, work)
        planned = super().pay(iteration, label, work, pay, places=places, judge=judge)
        self._groups[planned.identity] = group
        if notes.job is not None and notes.job.online is not None:
            group = self._sample_online(notes, group)
        notes.units = planned.chunks
        if any(stage.planned == planned for stage in self._done):
            return (
                planned  # It was paid before, such as M_0's answers that others are compared with.
            )
        by_chunk = group.name != SMOKE and notes.units == len(self.sample.chunked(group).chunks)
        self._done.append(
            RehearsedStage(
                notes=notes,
                group=group,
                by_chunk=by_chunk,
                planned=planned,
                upstream=self.store.journal.upstream(iteration, label),
            )
        )
        return planned

    def make(
        self, iteration: int, label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Planned:
        """Pay a stage that is computed here; how good a policy is need not be measured."""
        unread = work.verb.name in MEASURING
        return super().make(iteration, label, work, _nothing if unread else make)

    def _sample_online(self, notes: StageNotes, otherwise: PromptGroup) -> PromptGroup:
        """Note what a training samples of its prompts, and return these."""
        job = notes.job
        if job is None or job.method != notes.stage:
            return otherwise
        ids = {*rows_of(job).select("prompt_id").collect()["prompt_id"].to_list()}
        groups = sorted(self._groups.values(), key=lambda group: len(group.sample))
        holding = (g for g in groups if ids <= {prompt.prompt_id for prompt in g.sample})
        group = next(holding, otherwise)
        sampling = engine_sampling(self.config.policy.sampling)
        for prompt in group.sample:
            asked = Request(request_id=prompt.prompt_id, messages=prompt.messages, seed=0)
            self.notes.answered(self.models.initial, asked, sampling)
        return group

    def _group_of(self, iteration: int, label: str, work: Work) -> PromptGroup:
        """Return the prompts that a stage works on: those of what it reads."""
        share = self.sample.share
        if smoked(label) is not None:
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
    """Return what a run of these prompts does; `costs` are what calls of its stages cost before.

    The replies of the stand-ins have `longest` letters at most. Of people's labels it reads a few.

    Raises:
        ConfigError: if something configured cannot be used.
        RehearsalError: if the recipe fails.
    """
    sample = sampled(config, prompts)
    short = _shortened(config, sample)
    with _opened(short, sample, costs or {}, longest, labels) as run:
        ends = None
        try:
            turn(run, sample.prompts)
        except NothingToTrainOn as end:
            ends = str(end)
        except ConfigError:
            raise
        except Exception as error:
            # A recipe of the user's own may raise anything, at answers that no model gave.
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise RehearsalError(f"the run cannot be planned: {said[:EXCERPT]}") from error
        stages = (
            *_supervised(run, config),
            *divided(run, config, [*_with_probes(run, config)], run.notes),
        )
        return Rehearsal(config=config, sample=sample, models=run.models, stages=stages, ends=ends)


def _supervised(run: RehearsedRun, config: RunConfig) -> Iterator[RehearsedStage]:
    """Give the stage that commits people's answers, which may be many more than are sampled."""
    source = source_of(config)
    if source is not None:
        every = read_supervised(config.prompts, source, run.prompts.values())
        group = PromptGroup(name=SUPERVISED, total=len(every), sample=())
        yield RehearsedStage(
            notes=StageNotes(iteration=0, stage=SUPERVISED, judge=False), group=group, by_chunk=True
        )


def _with_probes(run: RehearsedRun, config: RunConfig) -> Iterator[RehearsedStage]:
    """Give a rehearsal's stages, with those in which evaluated policies answer probes."""
    place = config.assessment.probes
    probes = () if place is None else load_probes(place).prompts
    group = PromptGroup(name=PROBES, total=len(probes), sample=tuple(spread(probes, GROUP)))
    sampling = engine_sampling(config.evaluation, temperature=0.0)
    initial, kept = run.models.initial, False
    for stage in run.done:
        yield stage
        if not probes or not stage.notes.stage.startswith("measure:"):
            continue
        number = stage.notes.iteration
        if not kept:
            keeping = StageNotes(iteration=0, stage=PROBES, judge=False, units=1)
            yield RehearsedStage(notes=keeping, group=group, by_chunk=False)
        kept = True
        answering = StageNotes(iteration=number, stage=ANSWERS, judge=False)
        run.notes.stages.append(answering)
        for prompt in group.sample:
            asked = Request(request_id=prompt.prompt_id, messages=prompt.messages, seed=0)
            run.notes.answered(initial, asked, sampling)
        yield RehearsedStage(notes=answering, group=group, by_chunk=True)
        measuring = StageNotes(iteration=number, stage=MEASURES, judge=False, units=1)
        yield RehearsedStage(notes=measuring, group=group, by_chunk=False)


def _shortened(config: RunConfig, sample: PromptSample) -> RunConfig:
    """Return the configuration of a rehearsal: its prompts, few steps, no limits.

    Its stages are paid one by one, in one thread.
    """
    prompts, training = config.prompts, config.training
    assessment = config.assessment.model_copy(update={"probes": None})
    margin = None if prompts.variance.margin is None else 0.0
    stepped = {name: _few_steps(getattr(training, name)) for name in sorted(ONLINE)}
    return config.model_copy(
        update={
            "iterations": min(config.iterations, rehearsed_iterations(config)),
            "budget": BudgetConfig(),
            "overlap": False,
            "assessment": assessment,
            "prompts": prompts.model_copy(
                update={
                    "chunk": sample.chunk,
                    "per_iteration": None,
                    "evaluated": None,
                    "deciding": None,
                    "parts": sample.parts,
                    "variance": prompts.variance.model_copy(update={"margin": margin}),
                }
            ),
            "training": training.model_copy(
                update={
                    "min_pairs": 1,
                    "next_token": training.next_token.model_copy(update={"weight": 0.0}),
                    **stepped,
                }
            ),
        }
    )


def rehearsed_iterations(config: RunConfig) -> int:
    """Return how many iterations are rehearsed at most, so that each that differs is among them."""
    recipe = config.recipe
    if names_function(recipe.name):
        return OWN_ITERATIONS
    if isinstance(recipe, Scheduled) and not isinstance(recipe.train, str):
        return max(ITERATIONS, len(recipe.train))
    return ITERATIONS


def _few_steps(settings: OnlineSettings) -> OnlineSettings:
    """Return the settings of a training of few steps, which publishes on its way if it does."""
    few: dict[str, object] = {"max_steps": STEPS}
    return settings.model_copy(
        update=few | ({"publish_every": 1} if settings.publish_every else {})
    )


@contextmanager
def _opened(
    config: RunConfig,
    sample: PromptSample,
    costs: CallCosts,
    longest: int,
    labels: Labels | None,
) -> Generator[RehearsedRun]:
    """Open a run of stand-ins in a folder of its own."""
    require_needs(variant_of(config.recipe.name).recipe, config)
    notes = Notes(costs=costs, count_of=_Counter(located(config.policy.model)), longest=longest)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="lpfloop-rehearsal-", dir=place) as lake:
        folder = Path(lake) / "runs" / "rehearsal"
        models = _models(config, folder / "logs", notes)
        journal = Journal.create(folder, {"config": canonical_json(resolved(config))})
        store = RunWriter(journal)
        verifier = StandInVerifier(
            own_verifier(config.critic.verifier),
            sentence_match=config.facts.judge == "sentence_match",
        )
        try:
            yield RehearsedRun(
                name="rehearsal",
                config=config,
                store=store,
                models=models,
                critic=FeedbackCritic.from_config(config.critic),
                verifier=verifier,
                reporter=Silent(),
                stop=StopSignal(),
                prompts={prompt.prompt_id: prompt for prompt in sample.prompts},
                panels=Panels.of(config),
                completers=completers_of(config),
                grader=grader_of(config),
                filters=Filters.from_config(config),
                fact_judge=fact_judge_of(config, models),
                forms=forms_of(config),
                labels=None if labels is None else labels.first(FEW),
                trainer=StandInTrainer(notes=notes),
                asks_most=True,
                notes=notes,
                sample=sample,
            )
        finally:
            verifier.close()
            store.close()


def _models(config: RunConfig, logs: Path, notes: Notes) -> StandInModels:
    """Return stand-ins for the models that a run asks, none of which is looked at.

    Raises:
        ConfigError: if a role has no model.
    """
    roles = {role.name: role for role in needed_roles(config)}
    require_named(tuple(roles.values()), f"the recipe {config.recipe.name}")
    served = {name: _served(role) for name, role in roles.items()}
    completers = completers_of(config)
    others = () if completers is None else completers.others
    return StandInModels(
        config=config,
        logs=logs,
        initial=served[POLICY],
        reward_id=roles[REWARD].model if REWARD in roles else None,
        judging={name: served[name] for name in JUDGES if name in served},
        annotators={role: served[annotator(role)] for role in Panels.of(config).roles},
        completers={model.name: served[f"{COMPLETION}:{model.name}"] for model in others},
        nli_id=roles[NLI].model if NLI in roles else None,
        notes=notes,
    )


def _served(role: NeededRole) -> Served:
    engine = role.engine or EngineConfig()
    return Served(
        name=engine.model_name or role.model,
        identity=f"rehearsed: {role.model} {engine.model_name or ''}",
        location=located(role.model),
        engine=engine,
    )


def _nothing(_: Unit) -> RowsByType:
    return {Evaluation: [], Score: []}


class _Counter:
    """Counts tokens by the models' own tokenizers, where they are at hand.

    A model that is trained has that of the `policy` with which the run begins.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._counts: dict[str, Counting] = {}

    def __call__(self, served: Served) -> Counting:
        """Return how the tokens of a model are counted."""
        place = served.location if served.canary is None else self._policy
        if place not in self._counts:
            exact = token_count(place)
            known = exact is not about
            self._counts[place] = Counting(lru_cache(4096)(exact if known else _about), known)
        return self._counts[place]


def _about(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / LETTERS_A_TOKEN)
