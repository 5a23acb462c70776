# pyright: basic
"""The steps of an online method: what they are asked, what they cost, how they are committed."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ...configs.methods import PPOTraining, QuarkTraining
from ...policies.trainers.step_files import (
    REFERENCE_ENDED,
    REFERENCE_REWARD,
    ReferenceReward,
    read_step,
)
from ...policies.trainers.train_model import TrainerProgress
from ...stores.durable import make_folder
from ...stores.frames import as_frame
from ...stores.journal_reader import Cost, Unit
from ...stores.records import Candidate, Prompt, Reward, Statistic
from ...stores.schemas import Row, to_table
from ...stores.sealing import write_parts
from ..run.reporter import Advance
from ..run.run import Run
from ..run.stage import Stage
from .step_alarms import StepWatch


@dataclass(kw_only=True)
class Steps:
    """The steps that a stage owes, each committed when the trainer has told of it."""

    run: Run
    stage: Stage
    work: Path
    most: Cost
    watch: StepWatch | None = None
    _waiting: deque[Unit] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = deque(self.stage.owed)

    def admit(self) -> None:
        """Set aside what the next step may cost.

        Raises:
            BudgetReachedError: if the budget has no room for it.
        """
        budget = self.run.budget
        if self._waiting:
            budget.require_time_and_room()
            budget.refuse(self.most)
            budget.check()
            budget.reserve(self._waiting[0].key, self.most)

    def told(self, progress: TrainerProgress) -> None:
        """Commit what is owed up to a step that the trainer tells of, and admit the next one."""
        if self.settle(progress.step):
            self.admit()

    def settle(self, last: int) -> bool:
        """Commit the owed steps up to `last`; return whether there were any."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0].chunk < last:
            unit = self._waiting.popleft()
            tables = read_step(self.work, unit.chunk + 1)
            self.stage.commit(unit, tables, spent(self.run, tables))
            if self.watch is not None:
                told = as_frame(tables[Statistic])
                self.watch.look(dict(told.select("metric", "value").iter_rows()))
        return len(self._waiting) < before


def step_cost(run: Run, settings: PPOTraining | QuarkTraining) -> Cost:
    """Return what a step can cost at most: its rollouts, each as long as it may be."""
    answers = settings.rollouts * run.config.policy.sampling.max_tokens
    tokens = max(settings.rollouts * settings.max_length, answers)
    return Cost(tokens=tokens, money=_money(run, tokens - answers, answers))


def _money(run: Run, prompt_tokens: int, tokens: int) -> float:
    policy = run.models.initial
    return run.prices.money(policy, prompt_tokens=prompt_tokens, tokens=tokens)


def spent(run: Run, tables: Mapping[type[Row], pa.Table]) -> Advance:
    """Return what the rollouts of a step cost, and how many have no reward or no answer."""
    candidates, rewards = as_frame(tables[Candidate]), as_frame(tables[Reward])
    tokens = int(candidates["completion_tokens"].sum())
    prompt_tokens = int(candidates["prompt_tokens"].sum())
    return Advance(
        rows=candidates.height,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        money=_money(run, prompt_tokens, tokens),
        calls=candidates.height,
        unscored=rewards["score"].null_count(),
        failed=int((candidates["finish_reason"] == "failed").sum()),
    )


def prompts_file(
    folder: Path,
    prompts: Sequence[Prompt],
    references: Mapping[str, ReferenceReward] | None = None,
) -> Path:
    """Leave the prompts in a Parquet file in a folder, and return it; equal prompts, equal file.

    With `references`, one for each prompt's id, it has the columns of these, too.
    """
    table: pa.Table = to_table(Prompt, prompts)
    if references is not None:
        found = [references[prompt.prompt_id] for prompt in prompts]
        table = table.append_column(REFERENCE_REWARD, pa.array([r.score for r in found]))
        table = table.append_column(REFERENCE_ENDED, pa.array([r.ended for r in found]))
    (sealed,) = write_parts([(make_folder(folder), table)])
    return folder / f"{sealed.sha256}.parquet"
