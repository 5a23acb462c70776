"""A run of stand-ins: it records its stages, the called models, its trainings and settings."""

import os
import tempfile
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...configs.load import resolve_config
from ...configs.schema import EngineConfig, RunConfig
from ...critics.feedback import FeedbackCritic
from ...critics.own_verifier import own_verifier
from ...policies.trainers.job import ONLINE, Method, TrainJob
from ...stores.failpoints import ignore_failpoints
from ...stores.journal import Journal
from ...stores.journal_reader import Unit
from ...stores.keys import canonical_json
from ...stores.lake import RunWriter
from ...stores.records import Evaluation, Score
from ...stores.schemas import RowsByType
from ...stores.side_evals import SMOKE, smoke_test_of
from ..data.splits import PARTS
from ..evaluation.probe_sets import PROBES, load_probes
from ..recipes.roles import NeededRole, needed_roles
from ..run.completers import completers_of
from ..run.device_placement import MAIN_THREAD, Places
from ..run.handles import Planned
from ..run.judge_panel import Panels
from ..run.judges import fact_judge_of, forms_of, grader_of
from ..run.labels import Labels
from ..run.models import ANNOTATION, COMPLETION, POLICY, REWARD, Served, locate_model
from ..run.observed import Observed
from ..run.prompt_filters import Filters
from ..run.run import Run, Work
from ..run.stage import Stage
from ..run.stop import StopSignal
from .call_costs import CallCosts
from .logs import Tee
from .prompt_sample import PromptGroup, PromptSample
from .stand_ins import (
    UNPLAYED,
    Notes,
    RehearsedStage,
    StandInModels,
    StandInTrainer,
    StandInVerifier,
    rows_of,
)

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


@dataclass(kw_only=True)
class RehearsedRun(Run):
    """A run that notes its stages, and the group of prompts on which each works.

    `players` has the role of each model by its identity.
    """

    notes: Notes
    players: Mapping[str, str]
    sample: PromptSample
    _groups: dict[str, PromptGroup] = field(default_factory=dict[str, PromptGroup], init=False)
    _done: list[RehearsedStage] = field(default_factory=list[RehearsedStage], init=False)
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
        """The stages so far."""
        return self._done

    def parts_with(self, part: str) -> Collection[str]:
        """Note that the recipe uses a part of the prompts."""
        self._parts.add(part)
        return self.seen.parts

    def observe(self, *, ended: bool) -> Observed:
        """Return the recipe's behaviour so far; `ended`: it had too little to train on."""
        uses, methods = dict[str, dict[str, None]](), dict[Method, None]()
        of_recipe = [n for n in self.notes.stages if n.iteration > 0 and not _evaluates(n.stage)]
        for notes in of_recipe:
            roles = [self._role_of(a.served) for a in notes.calls.values()]
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

    def _role_of(self, served: Served) -> str:
        """Return the role that a model plays; a trained policy plays M_0's."""
        if served.identity.startswith(UNPLAYED):
            return served.identity.removeprefix(UNPLAYED)
        return self.players.get(served.identity, POLICY)

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
        notes.upstream = self.store.journal.upstream(iteration, label)
        # Some stages ran before, such as M_0's answers that others are compared with.
        if all(stage.planned != planned for stage in self._done):
            self._done.append(notes)
        return planned

    def make(
        self, iteration: int, label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Planned:
        """Pay a stage that is computed here; how good a policy is need not be measured."""
        unread = work.verb.name in MEASURING
        return super().make(iteration, label, work, _nothing if unread else make)

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


@contextmanager
def opened_rehearsal(
    config: RunConfig,
    sample: PromptSample,
    costs: CallCosts,
    longest: int,
    labels: Labels | None,
    assumed: Observed,
) -> Generator[RehearsedRun]:
    """Open a run of stand-ins in a temporary folder."""
    notes = Notes(costs=costs, policy=locate_model(config.policy.model), longest=longest)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        ignore_failpoints(),
        tempfile.TemporaryDirectory(prefix="lpfloop-rehearsal-", dir=place) as lake,
    ):
        folder = Path(lake) / "runs" / "rehearsal"
        served = {role.name: _serve_role(role) for role in needed_roles(config, assumed)}
        models = StandInModels(
            config=config,
            logs=folder / "logs",
            initial=served[POLICY],
            reward_id=config.reward.model if REWARD in served else None,
            judging={name: s for name, s in served.items() if name not in (POLICY, REWARD)},
            notes=notes,
        )
        journal = Journal.create(folder, {"config": canonical_json(resolve_config(config))})
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
                reporter=Tee([]),
                stop=StopSignal(),
                prompts={prompt.prompt_id: prompt for prompt in sample.prompts},
                panels=Panels.of(config),
                completers=completers_of(config),
                grader=grader_of(config),
                filters=Filters.from_config(config),
                fact_judge=fact_judge_of(config, models),
                forms=forms_of(config),
                labels=None if labels is None else labels.first(FEW),
                trainer=StandInTrainer(notes=notes, policy=models.initial),
                asks_most=True,
                seen=assumed,
                notes=notes,
                players={one.identity: _general(role) for role, one in served.items()},
                sample=sample,
            )
        finally:
            verifier.close()
            store.close()


def _general(role: str) -> str:
    """Return the role of a model as verbs name it: one for all annotators, or models of a pool."""
    return next((r for r in (ANNOTATION, COMPLETION) if role.startswith(r)), role)


def _serve_role(role: NeededRole) -> Served:
    engine = role.engine or EngineConfig()
    return Served(
        name=engine.model_name or role.model,
        identity=f"rehearsed {role.name}: {role.model} {engine.model_name or ''}",
        location=locate_model(role.model),
        engine=engine,
    )


def _nothing(_: Unit) -> RowsByType:
    return {Evaluation: [], Score: []}


def _verb(stage: str) -> str:
    """Return the verb of a stage's label; an overall grade has a separate verb."""
    verb, _, rest = stage.partition(":")
    return "grade_overall" if verb == "grade" and rest.endswith("overall") else verb


def _evaluates(stage: str) -> bool:
    """Whether a stage measures a policy, and is not the recipe's."""
    parts = stage.split(":")
    return "evaluate" in parts or parts[0] in MEASURING_ASKS or smoke_test_of(stage) is not None
