"""Rewarding candidates: the scalar r(x, y) of the reward model for each conversation.

The reference rewards of ChatGLM-RLHF (Eq. 5) are r(x, y_ref), with y_ref an answer of M_0. An
online method then optimises r(x, y) - r(x, y_ref), whose mean is near 0 while the policy still is
M_0, even if the reward model's scores differ much between prompts. Answers and rewards are
committed before training begins; filter counts list the prompts that are skipped because their
reference answer failed or could not be scored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.own_function import names_function
from ...policies.engines.engine import ScoreRequest
from ...policies.trainers.step_files import ReferenceReward
from ...stores.journal_reader import Unit
from ...stores.keys import Json, digest
from ...stores.records import SCORED, Candidate, FilterCount, Message, Reward, RewardModel
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts
from ..run.device_inventory import MAIN_THREAD, Places
from ..run.engine_client import ScorerClient
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.models import NO_MODEL
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run, Verb
from ..run.stage import Stage
from ..run.stop import NothingToTrainOn
from .sample import SingleRequest

REWARD, REWARD_REFERENCES = Verb("reward"), Verb("reference_reward")
OVERLONG = "overlong"
UNREWARDED = "no_reward_model"
RUN_BY = {"dtype"}
"""Settings that can change the last bits of a score; omitted if unset."""
UNSCORED = "no_score"
"""The user's reward function returned None for an answer."""
REFERENCES = "reference-reward"
"""The filter that skips prompts without a reference reward."""
FAILED, REFERENCE_UNSCORED = "no_reference_answer", "reference_unscored"
"""Why a prompt is left out."""
ANSWERED = frozenset({"stop", "length"})
"""How the drawing of an answer ends that is one."""


def reward(
    it: Iteration, candidates: Rows[Candidate], *, by: RewardModel | None = None
) -> Rows[Reward]:
    """r(x, y): commit the scalar of a reward model, default the configured one, a candidate."""
    scoring = Scoring(run=it.run, iteration=it.number, model=by)
    pending = it.work(REWARD, scoring.identity, candidates)
    planned = it.run.run_stage(
        it.number,
        f"reward:{candidates.label}",
        pending,
        lambda stage: scoring.run_units(stage, lambda unit: it.chunk(candidates, unit.chunk)),
        places=scoring.where,
    )
    return Rows(row_type=Reward, stages=(planned,))


Scored = SingleRequest[Candidate, ScoreRequest, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """A stage of rewards, one a candidate: by `model`, or by the configured reward model."""

    run: Run
    iteration: int
    model: RewardModel | None = None

    @property
    def identity(self) -> Json:
        """Every input of a reward except its candidate."""
        config = self.run.config.reward
        return {
            "model": self.reward_id,
            "batch_size": config.batch_size,
            "max_length": config.max_length,
            "sees_end": config.sees_end,
            **config.model_dump(include=RUN_BY, mode="json"),
        }

    @property
    def reward_id(self) -> str | None:
        """The reward model: the given one, or the configured one if there is one."""
        return self.model.reward_model_id if self.model else self.run.models.reward_id

    @property
    def where(self) -> Places:
        """The places that it needs; without a reward model, only the main thread."""
        if self.reward_id is None:
            return MAIN_THREAD
        trained = self.run.store.folder / self.model.path if self.model else None
        return self.run.places.of_reward(trained)

    def run_units(self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]) -> None:
        """Score the pending units of the stage; `work` gives a unit's candidates when it begins."""
        if self.reward_id is None:
            for unit in stage.units():
                rows = [self._row(candidate, None) for candidate in work(unit)]
                stage.commit(unit, {Reward: rows}, UnitStats(rows=len(rows)))
            return
        folder = self.run.reward_folder(self.model) if self.model else None

        def asked(candidate: Candidate) -> Scored:
            prompt = self.run.prompts[candidate.prompt_id]
            answer = Message(role="assistant", content=candidate.text)
            request = ScoreRequest(
                request_id=candidate.candidate_id,
                messages=(*prompt.messages, answer),
                prompt=prompt,
                ended=candidate.finish_reason == "stop",
            )
            return SingleRequest(subject=candidate, sent=request)

        def commit(unit: Unit, scored: Sequence[Scored], cost: UnitStats) -> None:
            rows = [self._row(s.subject, s.answer) for s in scored]
            unscored = sum(row.score is None for row in rows)
            stage.commit(unit, {Reward: rows}, replace(cost, rows=len(rows), unscored=unscored))

        RequestDispatcher(
            self.run,
            stage,
            client=ScorerClient(scorer=self.run.models.scorer(folder)),
            work=lambda unit: list(map(asked, work(unit))),
            commit=commit,
        ).run_units()

    def _row(self, candidate: Candidate, score: float | None) -> Reward:
        own = self.model is None and names_function(self.run.config.reward.model)
        missing = UNREWARDED if self.reward_id is None else UNSCORED if own else OVERLONG
        return Reward(
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            reward_model=self.reward_id or NO_MODEL,
            score=score,
            status=SCORED if score is not None else missing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The reference rewards of an iteration by prompt id; `key` hashes the units they come from."""

    rewards: Mapping[str, ReferenceReward]
    key: str


def references(it: Iteration, answers: Rows[Candidate], rewards: Rows[Reward]) -> References:
    """Return the rewards of M_0's answers, one a prompt; commit counts of unrewarded prompts.

    Raises:
        NothingToTrainOn: if every prompt is unrewarded.
    """

    def make(unit: Unit) -> RowsByType:
        fates = fates_of(it.chunk(answers, unit.chunk), it.chunk(rewards, unit.chunk))
        return {FilterCount: filter_counts(it.number, REFERENCES, "prompts", fates)}

    work = it.work(REWARD_REFERENCES, None, answers, rewards)
    planned = it.run.make(it.number, REFERENCES, work, make)
    it.run.decide_by(planned)
    found = dict[str, ReferenceReward]()
    for chunk in range(answers.chunks):
        found |= reference_rewards(it.chunk(answers, chunk), it.chunk(rewards, chunk))
    if not found:
        raise NothingToTrainOn(
            f"iteration {it.number}: no reference answer has a reward; see the filter counts of "
            f"{REFERENCES} in `lpfloop status`"
        )
    return References(rewards=found, key=digest(planned.keys(it.run.store.journal)))


def fates_of(answers: Sequence[Candidate], rewards: Sequence[Reward]) -> Mapping[str, list[str]]:
    """Return the prompts' ids by outcome."""
    scored = reference_rewards(answers, rewards)
    fates = dict[str, list[str]]()
    for answer in answers:
        unscored = REFERENCE_UNSCORED if answer.finish_reason in ANSWERED else FAILED
        fate = KEPT if answer.prompt_id in scored else unscored
        fates.setdefault(fate, []).append(answer.prompt_id)
    return fates


def reference_rewards(
    answers: Sequence[Candidate], rewards: Sequence[Reward]
) -> dict[str, ReferenceReward]:
    """Return the rewards of the answers that have one, by prompt id."""
    scores = {reward.candidate_id: reward.score for reward in rewards}
    return {
        answer.prompt_id: ReferenceReward(score=score, ended=answer.finish_reason == "stop")
        for answer in answers
        for score in [scores.get(answer.candidate_id)]
        if score is not None and answer.finish_reason in ANSWERED
    }
