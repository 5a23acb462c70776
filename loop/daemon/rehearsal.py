"""A rehearsal: a run's own recipe over a few of its prompts, with stand-ins for what is costly.

Everything else is real: verbs, templates, filters, chunks, the journal, in a folder that is gone
afterwards. No model is opened, no endpoint is called. What each stage asks is noted, and tells what
the whole run will ask (`plan`) and what its requests look like (`preview`).
"""

import math
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path

from ...configs.load import resolved
from ...configs.schema import BudgetConfig, ConfigError, EngineConfig, RunConfig
from ...critics.feedback import FeedbackCritic
from ...critics.own_verifier import own_verifier
from ...policies.engines.token_count import TokenCount, about, token_count
from ...stores.journal import Journal
from ...stores.journal_reader import Unit
from ...stores.keys import canonical_json
from ...stores.lake import RunWriter
from ...stores.records import Evaluation, Prompt
from ...stores.schemas import RowsByType
from ..recipes import variant_of
from ..recipes.missing_needs import require_needs
from ..run.completers import completers_of
from ..run.handles import Planned
from ..run.models import Models, Served, located
from ..run.outcomes import NothingToTrainOn
from ..run.panel import Panels
from ..run.prompt_filters import Filters
from ..run.run import Run, Stage, Work
from ..run.run_grader import grader_of
from ..run.stop import StopSignal
from .loop import turn
from .prompt_sample import PromptGroup, PromptSample, sampled
from .stand_ins import (
    LETTERS_A_TOKEN,
    CallCosts,
    Notes,
    StageNotes,
    StandInModels,
    StandInTrainer,
    StandInVerifier,
)

ITERATIONS = 1
"""Those that are rehearsed: the later ones do what the first does."""
STEPS = 2
"""Steps of an online method that are rehearsed."""
EXCERPT = 200
MEASURING = frozenset({"measure", "assess", "probe"})
"""Verbs whose rows no other one reads."""
MEMORY = Path("/dev/shm")  # noqa: S108 -- what is made there has a name of its own
"""A folder in memory, where a machine has one: nothing of a rehearsal need survive a power cut."""


class RehearsalError(RuntimeError):
    """A run that cannot be rehearsed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedStage:
    """A stage with the prompts that it works on, and the chunks of them in the rehearsal."""

    notes: StageNotes
    group: PromptGroup
    chunks: int


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

    def advance(self, advance: object) -> None:
        """Say nothing."""

    def end(self) -> None:
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
        groups = [sample.share, *sample.groups.values()]
        self._groups = {sample.chunked(g).identity: g for g in reversed(groups) if g.sample}

    @property
    def done(self) -> Sequence[RehearsedStage]:
        """The stages so far."""
        return self._done

    @contextmanager
    def stage(
        self, iteration: int, label: str, work: Work, *, judge: bool = False
    ) -> Generator[Stage]:
        """Plan and pay a stage as any run does, and note it."""
        notes = StageNotes(iteration=iteration, stage=label, judge=judge)
        self.notes.stages.append(notes)
        with super().stage(iteration, label, work, judge=judge) as stage:
            group = self._group_of(iteration, work)
            self._groups[stage.planned.identity] = group
            yield stage
        notes.units = stage.planned.chunks
        chunks = len(self.sample.chunked(group).chunks)
        self._done.append(RehearsedStage(notes=notes, group=group, chunks=chunks))

    def make(
        self, iteration: int, label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Planned:
        """Pay a stage that is computed here; how good a policy is need not be measured."""
        unread = work.verb.name in MEASURING
        return super().make(iteration, label, work, _nothing if unread else make)

    def _group_of(self, iteration: int, work: Work) -> PromptGroup:
        """Return the prompts that a stage works on: those of what it reads."""
        if iteration == 0 and label_is_review(work):
            total = self.sample.suitable
            return replace(self.sample.share, total=total)
        known = (self._groups[name] for name in work.upstream if name in self._groups)
        return next(known, self.sample.share)


def label_is_review(work: Work) -> bool:
    """Whether a stage decides about prompts before any iteration takes its share of them."""
    return work.verb.name in ("review", "filter")


def rehearse(
    config: RunConfig, prompts: Sequence[Prompt], costs: CallCosts | None = None
) -> Rehearsal:
    """Return what a run of these prompts does; `costs` are what calls of its stages cost before.

    Raises:
        ConfigError: if something configured cannot be used.
        RehearsalError: if the recipe fails.
    """
    sample = sampled(config, prompts)
    short = _shortened(config, sample)
    with _opened(short, sample, costs or {}) as run:
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
        return Rehearsal(
            config=config, sample=sample, models=run.models, stages=tuple(run.done), ends=ends
        )


def _shortened(config: RunConfig, sample: PromptSample) -> RunConfig:
    """Return the configuration of a rehearsal: its prompts, few steps, no limits."""
    prompts, training = config.prompts, config.training
    margin = None if prompts.variance.margin is None else 0.0
    few = {"max_steps": STEPS}
    return config.model_copy(
        update={
            "iterations": min(config.iterations, ITERATIONS),
            "budget": BudgetConfig(),
            "prompts": prompts.model_copy(
                update={
                    "chunk": sample.chunk,
                    "per_iteration": None,
                    "evaluated": None,
                    "parts": sample.parts,
                    "variance": prompts.variance.model_copy(update={"margin": margin}),
                }
            ),
            "training": training.model_copy(
                update={
                    "min_pairs": 1,
                    "ppo": training.ppo.model_copy(update=few),
                    "quark": training.quark.model_copy(update=few),
                }
            ),
        }
    )


@contextmanager
def _opened(config: RunConfig, sample: PromptSample, costs: CallCosts) -> Generator[RehearsedRun]:
    """Open a run of stand-ins in a folder of its own."""
    require_needs(variant_of(config.recipe.name).recipe, config)
    notes = Notes(costs=costs, count_of=_Counting(located(config.policy.model)))
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="lpfloop-rehearsal-", dir=place) as lake:
        folder = Path(lake) / "runs" / "rehearsal"
        models = _models(config, folder / "logs", notes)
        journal = Journal.create(folder, {"config": canonical_json(resolved(config))})
        store = RunWriter(journal)
        verifier = StandInVerifier(own_verifier(config.critic.verifier))
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
                trainer=StandInTrainer(notes=notes),
                notes=notes,
                sample=sample,
            )
        finally:
            verifier.close()
            store.close()


def _models(config: RunConfig, logs: Path, notes: Notes) -> StandInModels:
    """Return stand-ins for the configured models, none of which is looked at.

    Raises:
        ConfigError: if a role has no model.
    """
    panels, completers = Panels.of(config), completers_of(config)
    real = Models.of(
        config,
        logs,
        roles=panels.roles,
        completers=() if completers is None else completers.others,
        grading=grader_of(config) is not None,
        identify=_unidentified,
    )
    own = {f.name: getattr(real, f.name) for f in fields(Models) if f.init}
    return StandInModels(**own, notes=notes)


def _unidentified(location: str, engine: EngineConfig) -> tuple[str | None, str]:
    return None, f"rehearsed: {location} {engine.model_name or ''}"


def _nothing(_: Unit) -> RowsByType:
    return {Evaluation: []}


class _Counting:
    """Counts tokens by the models' own tokenizers, where they are at hand.

    A model that is trained has that of the `policy` with which the run begins.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._counts: dict[str, TokenCount] = {}

    def __call__(self, served: Served) -> TokenCount:
        """Return how the tokens of a model are counted."""
        place = served.location if served.canary is None else self._policy
        if place not in self._counts:
            exact = token_count(place)
            self._counts[place] = lru_cache(4096)(_about if exact is about else exact)
        return self._counts[place]


def _about(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / LETTERS_A_TOKEN)
