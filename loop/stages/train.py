"""Training a policy from an iteration's rows, and publishing the checkpoint."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...configs.load import semantic
from ...policies.trainers.job import Method, Settings, TrainJob
from ...policies.trainers.train_model import TrainResult
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.failpoints import reach
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, canonical_json, derive_seed
from ...stores.lake import CHECKPOINTS
from ...stores.records import (
    Checkpoint,
    Demonstration,
    Pair,
    PairingOutcome,
    Receipt,
    Statistic,
    UnpairedAnswer,
)
from ...stores.schemas import TABLES, Row
from ..run.handles import Trainable, joined
from ..run.iteration import Iteration
from ..run.models import Served, is_endpoint
from ..run.outcomes import NothingToTrainOn
from ..run.reporter import UnitStats
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from .data_mixture import mix_statistics
from .publish import (
    Publishing,
    report_training,
    step_statistics,
    steps_shown,
    training_fit,
    training_processes,
)
from .supervised_set import Supervision, supervision
from .thoughts import thought_params, thoughts_file, turn_form

TRAIN, KEEP_POLICY = Verb("train", semantics=2), Verb("unchanged")
METHODS: Mapping[type[Row], Method] = {
    Pair: "dpo",
    Demonstration: "sft",
    UnpairedAnswer: "kto",
}
"""How rows are trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training stage of an iteration: from `policy`, mostly M_{t-1}, and its rows to M_t."""

    run: Run
    iteration: int
    policy: Served
    supervision: Supervision | None = None

    def identity(self, rows: Trainable) -> Json:
        """Every input of the checkpoint except the rows."""
        return {
            "policy": self.policy.params,
            "reference": self._reference().identity,
            "settings": semantic(self._settings(rows)),
            **thought_params(self.run),
            **fit_params(policy_fit(self.run.config)),
        }

    def require_enough(self, rows: Trainable) -> None:
        """Raise `NothingToTrainOn` as the function `require_enough` does."""
        require_enough(self.run, self.iteration, rows, self.policy)

    def pay(self, stage: Stage, unit: Unit, rows: Trainable) -> None:
        """Train in a work folder, publish the result and commit the checkpoint."""
        self.run.models.make_room()
        self.run.verify(self.policy)
        reference = self._reference()
        self.run.verify(reference)
        work = self.run.store.folder / "work" / unit.key
        method = METHODS[rows.row_type]
        same = reference.identity == self.policy.identity
        keys = _keys(self.run, rows)
        thoughts = self.run.store.when_there_is_room(
            lambda: thoughts_file(self.run, rows.row_type, keys, work)
        )
        job = TrainJob(
            method=method,
            model=Path(self.policy.location),
            reference=None if same or method == "sft" else Path(reference.location),
            data=tuple(parts_with_rows(self.run, rows)),
            output=work,
            settings=self._settings(rows),
            seed=derive_seed(self.run.config.seed, "train", unit.key) % 2**32,
            processes=training_processes(self.run, self._settings(rows)),
            fit=training_fit(self.run, method),
            template=self.run.models.template,
            supervised=None if self.supervision is None else self.supervision.as_job(work),
            turns=turn_form(self.run, self.policy, thoughts),
        )
        shown = steps_shown(self.run, self.iteration, "train", work)
        identity, result = Publishing(run=self.run, on_progress=shown).publish(job)
        row = self._row(identity, result, reference)
        told = step_statistics(self.iteration, method, result)
        told = [*mix_statistics(self.run, self.iteration, method, rows), *told]
        stage.commit(unit, {Checkpoint: [row], Statistic: told}, UnitStats(rows=result.steps))
        report_training(self.run, self.iteration, "train", method, result)

    def _reference(self) -> Served:
        """Return the reference policy pi_ref: M_0, or the policy before this iteration."""
        initial = self.run.config.training.reference == "initial"
        return self.run.models.initial if initial else self.policy

    def _settings(self, rows: Trainable) -> Settings:
        return getattr(self.run.config.training, METHODS[rows.row_type])

    def _row(self, identity: str, result: TrainResult, reference: Served) -> Checkpoint:
        finite = {k: v for k, v in result.metrics.items() if math.isfinite(v)}
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=self.policy.identity,
            reference_id=reference.identity,
            iteration=self.iteration,
            recipe=self.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=result.steps,
            metrics=canonical_json(finite),
        )


def train(
    it: Iteration,
    rows: Trainable,
    *,
    start: Literal["initial", "previous"] = "previous",
) -> Checkpoint:
    """M_t: a policy trained by DPO on pairs, SFT on demonstrations, or KTO on unpaired answers.

    It is published. Training begins with M_{t-1}, or with M_0 if `start` is initial.

    Raises:
        NothingToTrainOn: as `require_enough`.
    """
    # Running stages finish before a training is begun, even if its rows are complete already.
    it.run.flow.settle()
    beside = supervision(it)
    policy = it.run.models.initial if start == "initial" else it.policy
    training = Training(run=it.run, iteration=it.number, policy=policy, supervision=beside)
    pending = it.whole(TRAIN, training.identity(rows), rows)
    if beside is not None:
        pending = beside.read_by(pending)

    def pay(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            training.require_enough(rows)
            training.pay(stage, unit, rows)

    places = it.run.places.of_training(it.run.config.training.devices)
    planned = it.run.run_stage(it.number, "train", pending, pay, places=places)
    reach("checkpoint.committed")
    it.run.decide_by(planned)
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


def require_enough(run: Run, iteration: int, rows: Trainable, start: Served) -> None:
    """Raise an error if `start` cannot be trained on these rows.

    Raises:
        NothingToTrainOn: with fewer rows than `training.min_pairs`, unpaired answers of one kind
            alone, or a model without weights.
    """
    journal, table = run.store.journal, TABLES[rows.row_type]
    found = sum(journal.count(s.iteration, s.stage, table) for s in rows.stages)
    needed = run.config.training.min_pairs
    noun = table.replace("_", " ")
    if found < needed:
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, fewer than training.min_pairs="
            f"{needed}, so nothing was trained; {_outcomes(run, rows)}"
        )
    _require_both(run, iteration, rows)
    if is_endpoint(start.location):
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, but the policy is served at "
            f"{start.location}, so its weights cannot be trained here; "
            "give their folder with --policy"
        )


def _require_both(run: Run, iteration: int, rows: Trainable) -> None:
    """Raise an error if all unpaired answers are successes or all are failures.

    Raises:
        NothingToTrainOn: naming the number of each.
    """
    if rows.row_type is not UnpairedAnswer:
        return
    labels = [label for key in _keys(run, rows) for label in _labels(run, key)]
    successes = sum(labels)
    if successes in (0, len(labels)):
        raise NothingToTrainOn(
            f"iteration {iteration} made {successes} successes and {len(labels) - successes} "
            "failures, and KTO learns from both, so nothing was trained; "
            f"{_outcomes(run, rows)}"
        )


def _labels(run: Run, key: str) -> list[bool]:
    return as_frame(run.store.table(UnpairedAnswer, key))["label"].to_list()


def _outcomes(run: Run, rows: Trainable) -> str:
    """Return the counts of prompts by outcome, or of rows by filter outcome, as text."""
    prompts, filtered = Counter[str](), Counter[str]()
    for key in _keys(run, rows):
        held = run.store.journal.parts_of(key)
        if TABLES[PairingOutcome] in held:
            prompts.update(row.outcome for row in run.store.rows(PairingOutcome, key))
        elif TABLES[Receipt] in held:
            for receipt in run.store.rows(Receipt, key):
                filtered[receipt.outcome] += receipt.count
    counted = (("prompts by outcome", prompts), ("by what a filter did", filtered))
    return "; ".join(
        f"{what}: {', '.join(f'{n} {name}' for name, n in counts.most_common())}"
        for what, counts in counted
        if counts
    )


def parts_with_rows(run: Run, rows: Trainable) -> list[Path]:
    """Return the verified files that have rows to train on."""
    store, table = run.store, TABLES[rows.row_type]
    sizes = [(key, store.journal.parts_of(key)[table]) for key in _keys(run, rows)]
    return [store.verified_path(rows.row_type, key) for key, part in sizes if part.rows]


def _keys(run: Run, rows: Trainable) -> list[str]:
    return [key for keys in joined(run.store.journal, rows.stages) for key in keys]
