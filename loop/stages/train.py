"""Training a policy from an iteration's rows, and publishing the checkpoint."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...configs.load import semantic
from ...configs.methods import DPOTraining, SFTTraining
from ...policies.trainers.train_model import TrainJob, TrainResult
from ...policies.trainers.training_fit import fit_params
from ...stores.failpoints import reach
from ...stores.journal_reader import Unit
from ...stores.keys import Json, canonical_json, derive_seed
from ...stores.lake import CHECKPOINTS
from ...stores.records import Checkpoint, Demonstration, Pair, Receipt, Statistic, Yield
from ...stores.schemas import TABLES
from ..run.handles import Rows, joined
from ..run.iteration import Iteration
from ..run.models import Served, is_endpoint
from ..run.needs import Asks
from ..run.outcomes import NothingToTrainOn
from ..run.reporter import Advance
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from .publish import (
    Publishing,
    accelerate_config,
    step_statistics,
    training_fit,
    training_processes,
)
from .supervised_set import Supervision, supervision
from .thoughts import thought_params, thoughts_file, turn_form
from .weigh import mix_statistics

TRAIN, KEEP_POLICY = Verb("train", semantics=2), Verb("unchanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training stage of an iteration: from `policy`, mostly M_{t-1}, and its rows to M_t."""

    run: Run
    iteration: int
    policy: Served
    supervision: Supervision | None = None

    def identity(self, rows: Rows[Pair] | Rows[Demonstration]) -> Json:
        """What the checkpoint depends on besides the rows."""
        return {
            "policy": self.policy.params,
            "reference": self._reference.identity,
            "settings": semantic(self._settings(rows)),
            **thought_params(self.run),
            **fit_params(training_fit(self.run)),
        }

    def require_enough(self, rows: Rows[Pair] | Rows[Demonstration]) -> None:
        """Stop the loop if training makes no sense (see the function of this name)."""
        require_enough(self.run, self.iteration, rows, self.policy)

    def pay(self, stage: Stage, unit: Unit, rows: Rows[Pair] | Rows[Demonstration]) -> None:
        """Train in a work folder, publish the result and commit the checkpoint."""
        self.run.models.make_room()
        self.run.verify(self.policy)
        self.run.verify(self._reference)
        work = self.run.store.folder / "work" / unit.key
        method = "dpo" if rows.row_type is Pair else "sft"
        same = self._reference.identity == self.policy.identity
        keys = _keys(self.run, rows)
        thoughts = self.run.store.when_there_is_room(
            lambda: thoughts_file(self.run, rows.row_type, keys, work)
        )
        job = TrainJob(
            method=method,
            model=Path(self.policy.location),
            reference=None if same or method == "sft" else Path(self._reference.location),
            data=tuple(parts_with_rows(self.run, rows)),
            output=work,
            settings=self._settings(rows),
            seed=derive_seed(self.run.config.seed, "train", unit.key) % 2**32,
            processes=training_processes(self.run, self._settings(rows)),
            accelerate_config=accelerate_config(self.run),
            fit=training_fit(self.run),
            template=self.run.models.template,
            supervised=None if self.supervision is None else self.supervision.as_job(work),
            turns=turn_form(self.run, self.policy, thoughts),
        )
        identity, result = Publishing(run=self.run).publish(job)
        row, told = self._row(identity, result), step_statistics(self.iteration, method, result)
        told = [*mix_statistics(self.run, self.iteration, method, rows), *told]
        stage.commit(unit, {Checkpoint: [row], Statistic: told}, Advance(rows=result.steps))
        self.run.reporter.note(_summary(method, result))

    @property
    def _reference(self) -> Served:
        """The reference policy pi_ref: M_0, or the policy before this iteration."""
        initial = self.run.config.training.reference == "initial"
        return self.run.models.initial if initial else self.policy

    def _settings(self, rows: Rows[Pair] | Rows[Demonstration]) -> DPOTraining | SFTTraining:
        training = self.run.config.training
        return training.dpo if rows.row_type is Pair else training.sft

    def _row(self, identity: str, result: TrainResult) -> Checkpoint:
        finite = {k: v for k, v in result.metrics.items() if math.isfinite(v)}
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=self.policy.identity,
            reference_id=self._reference.identity,
            iteration=self.iteration,
            recipe=self.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=result.steps,
            metrics=canonical_json(finite),
        )


def train(
    it: Iteration,
    rows: Rows[Pair] | Rows[Demonstration],
    *,
    start: Literal["initial", "previous"] = "previous",
) -> Checkpoint:
    """M_t: a policy trained by DPO on pairs, or by SFT on demonstrations, and published.

    Training begins with M_{t-1}, or with M_0 where `start` is initial.

    Raises:
        NothingToTrainOn: as `require_enough`.
    """
    # Whatever goes on is over before so much is begun, even where the rows are there already.
    it.run.flow.settle()
    beside = supervision(it)
    policy = it.run.models.initial if start == "initial" else it.policy
    training = Training(run=it.run, iteration=it.number, policy=policy, supervision=beside)
    owed = it.whole(TRAIN, training.identity(rows), rows)
    if beside is not None:
        owed = beside.read_by(owed)

    def pay(stage: Stage) -> None:
        # Not `Run.make`: what is counted are the steps, not the one row.
        for unit in stage.units():
            training.require_enough(rows)
            training.pay(stage, unit, rows)

    places = it.run.places.of_training(it.run.config.training.devices)
    planned = it.run.pay(it.number, "train", owed, pay, places=places)
    reach("checkpoint.committed")
    key = planned.key(it.run.store.journal, 0)
    (checkpoint,) = it.run.store.rows(Checkpoint, key)
    return checkpoint


def keep_initial(run: Run) -> Checkpoint:
    """Commit M_0 as a checkpoint of iteration 0, if it is not yet there."""
    initial = run.models.initial
    row = Checkpoint(
        checkpoint_id=initial.identity,
        parent_id=None,
        reference_id=None,
        iteration=0,
        recipe="initial",
        path=run.config.policy.model,
        steps=0,
        metrics="{}",
    )
    work = Work(verb=TRAIN, params={"initial": initial.identity}, upstream=(), reads=lambda: [()])
    run.make(0, "initial", work, lambda _: {Checkpoint: [row]})
    return row


def unchanged(it: Iteration) -> Checkpoint:
    """M_t = M_{t-1}: end an iteration that makes something else than a policy."""
    row = replace(it.parent, iteration=it.number, recipe=it.run.config.recipe.name)
    work = Work(
        verb=KEEP_POLICY,
        params={"policy": it.policy.params, "recipe": row.recipe},
        upstream=(),
        reads=lambda: [(it.parent.checkpoint_id,)],
    )
    it.run.make(it.number, "unchanged", work, lambda _: {Checkpoint: [row]})
    return row


def require_enough(
    run: Run, iteration: int, rows: Rows[Pair] | Rows[Demonstration], start: Served
) -> None:
    """Stop the loop if training `start` on these rows makes no sense.

    Raises:
        NothingToTrainOn: with fewer rows than `training.min_pairs`, or a model without weights.
    """
    journal, table = run.store.journal, TABLES[rows.row_type]
    found = sum(journal.count(s.iteration, s.stage, table) for s in rows.stages)
    needed = run.config.training.min_pairs
    noun = "pairs" if rows.row_type is Pair else "demonstrations"
    if found < needed:
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, fewer than training.min_pairs="
            f"{needed}, so nothing was trained; {_outcomes(run, rows)}"
        )
    if is_endpoint(start.location):
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, but the policy is served at "
            f"{start.location}, so its weights cannot be trained here; "
            "give their folder with --policy"
        )


def _outcomes(run: Run, rows: Rows[Pair] | Rows[Demonstration]) -> str:
    """Say what became of the prompts that rows were made of, or of the rows that were filtered."""
    prompts, filtered = Counter[str](), Counter[str]()
    for key in _keys(run, rows):
        held = run.store.journal.parts_of(key)
        if TABLES[Yield] in held:
            prompts.update(row.outcome for row in run.store.rows(Yield, key))
        elif TABLES[Receipt] in held:
            for receipt in run.store.rows(Receipt, key):
                filtered[receipt.outcome] += receipt.count
    counted = (("prompts by outcome", prompts), ("by what a filter did", filtered))
    return "; ".join(
        f"{what}: {', '.join(f'{n} {name}' for name, n in counts.most_common())}"
        for what, counts in counted
        if counts
    )


def parts_with_rows(run: Run, rows: Rows[Pair] | Rows[Demonstration]) -> list[Path]:
    """Return the files to train on: those with rows, their bytes verified."""
    store, table = run.store, TABLES[rows.row_type]
    sizes = [(key, store.journal.parts_of(key)[table]) for key in _keys(run, rows)]
    return [store.verified_path(rows.row_type, key) for key, part in sizes if part.rows]


def _keys(run: Run, rows: Rows[Pair] | Rows[Demonstration]) -> list[str]:
    return [key for keys in joined(run.store.journal, rows.stages) for key in keys]


def _summary(method: str, result: TrainResult) -> str:
    shown = ("loss", "rewards/accuracies", "rewards/margins", "mean_token_accuracy", "adapter/kept")
    metrics: Mapping[str, float] = result.metrics
    numbers = ", ".join(f"{name} {metrics[name]:.3f}" for name in shown if name in metrics)
    return f"trained by {method}: {result.steps} steps in {result.seconds:.0f} s; {numbers}"


ASKS: Asks = {train: ("weights",)}
