"""Judges of a training step's answers that run outside its trainer: the critic and the verifier.

They judge in the middle of a step, when its answers are not yet rows of a unit. The critic's
replies are stored under the step's unit, so a run that ends before the step is committed does not
pay for them twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import cast

from ...configs.recipes import RewardWeights
from ...critics.status import Status
from ...policies.engines.engine import Request
from ...policies.trainers.job import RewardSource
from ...policies.trainers.step_files import statistics
from ...stores.journal_reader import Cost, Unit
from ...stores.keys import Json
from ...stores.records import SCORED, Candidate, Critique, FilterCount, Prompt, Reward, Statistic
from ...stores.schemas import RowsByType
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..run.device_inventory import ELSEWHERE, Places
from ..run.handles import Planned
from ..run.iteration import Iteration
from ..run.reporter import UnitStats
from ..run.stage import Stage
from ..run.unread_replies import FEWEST, ReplyCount
from .critique import UNASKED, Critiquing, critique_stage
from .judging import Replies, judge_client

PASSED = 1
LONGEST_QUESTION = 32
"""The longest prompts, of whose questions the most expensive one bounds the cost of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJudgements:
    """The judgements of a step's answers, filter counts of the questions, and their cost."""

    critiques: Sequence[Critique] = ()
    filter_counts: Sequence[FilterCount] = ()
    cost: UnitStats = field(default_factory=UnitStats)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScore:
    """A judge's score of an answer; None with `status` as the reason."""

    score: float | None
    status: str


PartScores = Mapping[RewardSource, Mapping[str, PartScore]]
"""Each judge's score of each answer, by its id."""


@dataclass(kw_only=True)
class StepJudges:
    """The critic and the verifier, if `rewards` count them, in the steps of a training."""

    it: Iteration
    rewards: RewardWeights
    count: ReplyCount = field(default_factory=ReplyCount)

    @property
    def weights(self) -> Mapping[RewardSource, float]:
        """The weight of each source of an answer's reward."""
        counted = cast("Mapping[RewardSource, float]", self.rewards.counted)
        return dict(counted)

    @property
    def sources(self) -> tuple[RewardSource, ...]:
        """The judges outside the trainer."""
        return tuple(source for source in self.weights if source != "reward")

    @property
    def name(self) -> str:
        """The name of the weighted sum in the rows of rewards."""
        parts = self.weights.items()
        return " + ".join(name if weight == 1 else f"{weight:g} {name}" for name, weight in parts)

    @property
    def params(self) -> dict[str, Json]:
        """Every input of a reward except the answer and the reward model."""
        return {source: self._judging(source).params for source in self.sources}

    @property
    def where(self) -> Places:
        """The places that the judges need."""
        judging = self._judging("critic") if "critic" in self.sources else None
        return ELSEWHERE if judging is None or judging.client is None else judging.where

    def most(self, prompts: Sequence[Prompt], answers: int) -> Cost:
        """Return the cost of judging `answers` answers to some of the prompts, each judged once."""
        if "critic" not in self.sources:
            return Cost()
        run = self.it.run
        longest = sorted(prompts, key=lambda prompt: len(prompt.instruction))[-LONGEST_QUESTION:]
        client = judge_client(run, run.models.feedback, run.config.critic)

        def cost_of(prompt: Prompt) -> Cost:
            """Return the cost of the critic's question about an empty answer."""
            name = prompt.prompt_id
            question = run.critic.ask(prompt, "", run.guard(name, run.models.feedback))
            request = Request(
                request_id=name, messages=question.messages, seed=0, schema=question.schema
            )
            return client.most([request])

        one = max(map(cost_of, longest), key=lambda cost: cost.tokens)
        answer = run.config.policy.sampling.max_tokens
        money = run.prices.money(run.models.feedback, prompt_tokens=answer, tokens=0)
        return Cost(
            tokens=answers * (one.tokens + answer),
            judge_calls=answers,
            money=answers * (one.money + money),
        )

    def judge(
        self,
        stage: Stage,
        unit: Unit,
        candidates: Sequence[Candidate],
        known: Sequence[Critique] = (),
    ) -> StepJudgements | None:
        """Return the judgements of a step's answers; None if a stop or a limit interrupted them.

        Answers with a `known` judgement are not judged again.

        Raises:
            UnreadRepliesError: if too many of the critic's replies cannot be read.
        """
        by_id = {row.critique_id: row for row in known}
        critiques, judgements = list[Critique](), StepJudgements()
        for source in self.sources:
            pending = list[Candidate]()
            judging = self._judging(source, lambda _, pending=pending: pending)
            named = {judging.critique_id(candidate): candidate for candidate in candidates}
            pending += [candidate for name, candidate in named.items() if name not in by_id]
            critiques += [by_id[name] for name in named if name in by_id]
            if judging.client is None:
                answered = [c for c in pending if c.finish_reason not in UNASKED]
                critiques += judging.verifier_critiques(answered)
            elif pending:
                judged = self._ask_critic(judging, stage, unit)
                if judged is None:
                    return None
                judgements = judged
        return replace(judgements, critiques=(*critiques, *judgements.critiques))

    def scores(self, candidates: Sequence[Candidate], critiques: Sequence[Critique]) -> PartScores:
        """Return each judge's score of each answer, by its id."""
        nobody = PartScore(score=None, status=Status.FAILED.value)
        part_scores: dict[RewardSource, dict[str, PartScore]] = {
            source: {c.candidate_id: nobody for c in candidates} for source in self.sources
        }
        for row in critiques:
            source: RewardSource = "verifier" if row.critic == VERIFIER else "critic"
            part_scores[source][row.candidate_id] = part_score(row)
        return part_scores

    def as_sum(self, reward: Reward, part_scores: PartScores) -> Reward:
        """Return a reward's row with the sum that it is, and which part of it is missing."""
        parts = {source: of[reward.candidate_id] for source, of in part_scores.items()}
        missing = (f"{who}_{part.status}" for who, part in parts.items() if part.score is None)
        status = reward.status if reward.score is not None else next(missing, reward.status)
        return replace(reward, reward_model=self.name, status=status)

    def numbers(self, stage: Planned, step: int, part_scores: PartScores) -> list[Statistic]:
        """Return the mean of each judge's scores in a step, and the share of unscored answers."""
        found = dict[str, float]()
        for source, of in part_scores.items():
            scores = [part.score for part in of.values() if part.score is not None]
            if scores:
                found[f"score/{source}"] = fmean(scores)
            if of:
                found[f"unscored/{source}"] = 1 - len(scores) / len(of)
        return statistics(stage.iteration, stage.stage, step, found)

    def _judging(
        self,
        source: RewardSource,
        candidates: Callable[[int], Sequence[Candidate]] = lambda _: (),
    ) -> Critiquing:
        kind = "verifier" if source == "verifier" else None
        return critique_stage(self.it.run, self.it.number, candidates, kind=kind, by_text=True)

    def _ask_critic(self, judging: Critiquing, stage: Stage, unit: Unit) -> StepJudgements | None:
        """Ask the critic; None if it was kept from answering."""
        judgements = list[StepJudgements]()

        def take(_: Unit, tables: RowsByType, cost: UnitStats) -> None:
            critiques = cast("Sequence[Critique]", tables[Critique])
            filter_counts = cast("Sequence[FilterCount]", tables.get(FilterCount, ()))
            judgements.append(
                StepJudgements(critiques=critiques, filter_counts=filter_counts, cost=cost)
            )

        asking = Stage(
            planned=stage.planned,
            pending=(unit,),
            commit=take,
            flow=stage.flow,
            rest=stage.rest,
            commits_later=True,
        )
        judging.run_units(asking, lambda _: Replies(most=judging.attempts))
        for row in (row for judged in judgements for row in judged.critiques):
            if row.attempts and row.same_as is None:
                self.count.add(row.status, row.text)
        run = self.it.run
        self.count.require_read(run.config, run.store.folder, stage.planned.stage, fewest=FEWEST)
        return judgements[0] if judgements else None


def part_score(critique: Critique) -> PartScore:
    """Return the share of the rated aspects that pass; for the verifier's single one, 1 or 0.

    The verifier's rating in a critic's critique (`critic.kind=both`) has a separate weight.
    """
    by_verifier = critique.critic == VERIFIER
    rated = [a for a in critique.aspects if by_verifier or a.name != VERIFIED]
    ratings = [aspect.rating for aspect in rated if aspect.rating is not None]
    if critique.status != SCORED or not ratings:
        status = critique.status if critique.status != SCORED else Status.NOT_APPLICABLE.value
        return PartScore(score=None, status=status)
    passed = sum(rating == PASSED for rating in ratings)
    return PartScore(score=passed / len(ratings), status=SCORED)


def as_a_judges(cost: UnitStats) -> UnitStats:
    """Return a cost of judging as part of a step's cost: its rows are the step's answers."""
    return replace(cost, rows=0, judge_calls=cost.calls, judge_tokens=cost.tokens, unscored=0)
