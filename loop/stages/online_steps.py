# pyright: basic
"""The steps of an online method: their judges, their cost and their commits."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ...configs.training import OnlineSettings
from ...policies.trainers.step_files import (
    LEFT_OUT,
    REFUSED,
    Judged,
    read_answers,
    read_refused_prompts,
    read_step,
    write_judged,
)
from ...policies.trainers.work_folder import TrainerProgress
from ...stores.frames import as_frame
from ...stores.journal_reader import Cost, Unit
from ...stores.records import Candidate, Critique, FilterCount, Reward, Statistic
from ...stores.schemas import Row, RowsByType, from_table
from ..lake.query.alarm_list import alarm_fields
from ..run.budget import cost_of
from ..run.reporter import RunWarnings, UnitStats
from ..run.run import Run
from ..run.stage import Stage
from ..run.stop import Stopped
from .step_alarms import StepWatch
from .step_judges import StepJudgements, StepJudges, as_a_judges

Tables = Mapping[type[Row], pa.Table]
"""The rows that a trainer left of a step, by their type."""


@dataclass(kw_only=True)
class Steps:
    """The pending steps of a stage, each committed when the trainer reports it.

    `most` is the maximum cost of a step's answers, `judging` the maximum cost of judging them by
    `judges`, who work while the trainer waits.
    """

    run: Run
    stage: Stage
    work: Path
    most: Cost
    judging: Cost = field(default_factory=Cost)
    judges: StepJudges | None = None
    watch: StepWatch | None = None
    _waiting: deque[Unit] = field(init=False)
    _has_warned: bool = field(default=False, init=False)
    _judged: dict[int, StepJudgements] = field(default_factory=dict[int, StepJudgements])

    def __post_init__(self) -> None:
        self._waiting = deque(self.stage.pending)

    def admit(self) -> None:
        """Reserve the maximum cost of the next step.

        Raises:
            BudgetReachedError: if it exceeds the remaining budget.
        """
        budget = self.run.budget
        if self._waiting:
            budget.require_time_and_room()
            budget.refuse(self.most + self.judging)
            budget.check()
            budget.reserve(self._waiting[0].key, self.most + self.judging)

    def commit_steps(self, progress: TrainerProgress) -> None:
        """Commit the pending steps up to one that the trainer reports, and admit the next one."""
        if self.settle(progress.step):
            self.admit()

    def judge_step(self, step: int) -> None:
        """Have the answers judged that the trainer has left, unless it is to end.

        Raises:
            BudgetReachedError: if a limit came between.
        """
        if self.run.stop.halts or self.judges is None:
            return
        candidates = read_answers(self.work, step)
        judged = self._judge(self.judges, step, candidates)
        if judged is not None:
            # Judgements must be stored before the trainer learns from them, in case this process
            # ends.
            self.run.store.flush()
            part_scores = self.judges.scores(candidates, judged.critiques)
            names = [c.candidate_id for c in candidates]
            scores: Judged = {
                n: {who: of[n].score for who, of in part_scores.items()} for n in names
            }
            write_judged(self.work, step, scores)

    def settle(self, last: int) -> bool:
        """Commit the pending steps up to `last`; return whether there were any."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0].chunk < last:
            unit = self._waiting[0]
            tables = read_step(self.work, unit.chunk + 1)
            rows, cost = tables, rollout_cost(self.run, tables)
            if self.judges is not None:
                rows, cost = self._with_judgements(self.judges, unit, tables, cost)
            self.stage.commit(unit, rows, cost)
            self._waiting.popleft()
            frame = as_frame(tables[Statistic])
            numbers: dict[str, float] = dict(frame.select("metric", "value").iter_rows())
            self._note_left_out(numbers)
            for alarm in () if self.watch is None else self.watch.watch(numbers):
                self.run.reporter.note(alarm.message, "alarm", **alarm_fields(alarm))
        return len(self._waiting) < before

    def _note_left_out(self, numbers: Mapping[str, float]) -> None:
        """Report once, in the terminal and in the status, how many prompts are not trained on."""
        planned, remarks = self.stage.planned, list[str]()
        if self._has_warned:
            return
        if LEFT_OUT in numbers:
            remarks.append(
                f"{numbers[LEFT_OUT]:.0f} prompts leave no room for an answer and are left out of "
                f"the training; raise training.{planned.stage}.max_length or lower "
                "policy.sampling.max_tokens"
            )
        if REFUSED in numbers:
            reasons = [f": {name}: {why}" for name, why in read_refused_prompts(self.work).items()]
            remarks.append(
                f"{numbers[REFUSED]:.0f} prompts are refused by the policy's chat template and are "
                f"left out of the training{''.join(reasons[:1])}"
            )
        if remarks:
            self._has_warned = True
            RunWarnings(self.run.store, planned.iteration, planned.stage).note(set(remarks))
            for remark in remarks:
                self.run.reporter.note(remark, "warning", code="W-LEFT-OUT")

    def _judge(
        self, judges: StepJudges, step: int, candidates: Sequence[Candidate]
    ) -> StepJudgements | None:
        """Return the judgements of a step's answers; None if a stop interrupted judging.

        For a step that was committed before, the stored judgements are returned; answers that were
        sampled again and differ are judged again, for the trainer only.
        """
        budget = self.run.budget
        unit = next((unit for unit in self._waiting if unit.chunk == step - 1), None)
        if unit is not None:
            # From here on, the requests to judges are accounted for one by one.
            budget.reserve(unit.key, self.most)
            judged = judges.judge(self.stage, unit, candidates)
            if judged is not None:
                self._judged[step] = judged
        else:
            self.run.store.flush()
            key = self.stage.planned.key(self.run.store.journal, step - 1)
            unit = Unit(key=key, chunk=step - 1)
            # A reward model alone rewards the answers: then the step has no critiques.
            known = self.run.store.rows(Critique, unit.key) if judges.sources else ()
            judged = judges.judge(self.stage, unit, candidates, known)
            if judged is not None:
                budget.settle(unit.key, cost_of(judged.cost, judge=True))
        if judged is None:
            self.run.flow.raise_error()
            budget.check()
        return judged

    def _with_judgements(
        self, judges: StepJudges, unit: Unit, tables: Tables, cost: UnitStats
    ) -> tuple[RowsByType, UnitStats]:
        """Return a step's rows and cost, with the judgements of its answers.

        The judgements were made in this process, or are read from the replies that another one
        stored.
        """
        step = unit.chunk + 1
        candidates = from_table(Candidate, tables[Candidate])
        judged = self._judged.pop(step, None) or self._judge(judges, step, candidates)
        if judged is None:
            raise Stopped
        self._judged.pop(step, None)
        part_scores = judges.scores(candidates, judged.critiques)
        rewards = from_table(Reward, tables[Reward])
        numbers = judges.numbers(self.stage.planned, step, part_scores)
        return {
            **tables,
            Reward: [judges.as_sum(reward, part_scores) for reward in rewards],
            Statistic: [*from_table(Statistic, tables[Statistic]), *numbers],
            **({Critique: judged.critiques} if judges.sources else {}),
            **({FilterCount: judged.filter_counts} if judged.filter_counts else {}),
        }, cost + as_a_judges(judged.cost)


def step_cost(run: Run, settings: OnlineSettings) -> Cost:
    """Return the maximum cost of a step: its rollouts, each at the maximum length."""
    answers = settings.rollouts * run.config.policy.sampling.max_tokens
    tokens = max(settings.rollouts * settings.max_length, answers)
    policy = run.models.initial
    money = run.prices.money(policy, prompt_tokens=tokens - answers, tokens=answers)
    return Cost(tokens=tokens, money=money)


def rollout_cost(run: Run, tables: Tables) -> UnitStats:
    """Return the cost of a step's rollouts, and the number without a reward or an answer."""
    candidates, rewards = as_frame(tables[Candidate]), as_frame(tables[Reward])
    tokens = int(candidates["completion_tokens"].sum())
    prompt_tokens = int(candidates["prompt_tokens"].sum())
    return UnitStats(
        rows=candidates.height,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        money=run.prices.money(run.models.initial, prompt_tokens=prompt_tokens, tokens=tokens),
        calls=candidates.height,
        unscored=rewards["score"].null_count(),
        failed=int((candidates["finish_reason"] == "failed").sum()),
    )
