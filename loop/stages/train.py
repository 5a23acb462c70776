"""Training a policy from an iteration's rows, and publishing the checkpoint."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...configs.load import semantic
from ...policies.trainers.job import Method, Settings, TrainJob
from ...policies.trainers.train_model import TrainResult
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.failpoints import reach
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed
from ...stores.lake import CHECKPOINTS
from ...stores.records import (
    Candidate,
    Checkpoint,
    Demonstration,
    FilterCount,
    Pair,
    PairingOutcome,
    Statistic,
    UnpairedAnswer,
)
from ...stores.schemas import TABLES, Row
from ..run.handles import Trainable, join_keys
from ..run.iteration import Iteration
from ..run.models import Served, is_endpoint
from ..run.outcomes import NothingToTrainOn
from ..run.reporter import UnitStats
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from .data_mixture import mix_statistics
from .publish import (
    Publishing,
    metrics_json,
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
    run, beside, config = it.run, supervision(it), it.run.config.training
    policy = run.models.initial if start == "initial" else it.policy
    reference = run.models.initial if config.reference == "initial" else policy
    params: Json = {
        "policy": policy.params,
        "reference": reference.identity,
        "settings": semantic(_settings(run, rows)),
        **thought_params(run),
        **fit_params(policy_fit(run.config)),
    }
    pending = it.whole(TRAIN, params, rows)
    if beside is not None:
        pending = beside.add_to(pending)

    def run_units(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            require_enough(run, it.number, rows, policy)
            row, told, result = _train_and_publish(it, unit, rows, policy, reference, beside)
            stage.commit(unit, {Checkpoint: [row], Statistic: told}, UnitStats(rows=row.steps))
            report_training(run, it.number, "train", METHODS[rows.row_type], result)

    places = run.places.of_training(config.devices)
    planned = run.run_stage(it.number, "train", pending, run_units, places=places)
    reach("checkpoint.committed")
    run.decide_by(planned)
    (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
    return checkpoint


def _train_and_publish(
    it: Iteration,
    unit: Unit,
    rows: Trainable,
    policy: Served,
    reference: Served,
    beside: Supervision | None,
) -> tuple[Checkpoint, list[Statistic], TrainResult]:
    """Train in a work folder and publish the result; return its row and its statistics."""
    run, method, settings = it.run, METHODS[rows.row_type], _settings(it.run, rows)
    run.models.make_room()
    run.verify(policy)
    run.verify(reference)
    work = run.store.folder / "work" / unit.key
    same, keys = reference.identity == policy.identity, _keys(run, rows)
    thoughts = run.store.when_there_is_room(lambda: thoughts_file(run, rows.row_type, keys, work))
    job = TrainJob(
        method=method,
        model=Path(policy.location),
        reference=None if same or method == "sft" else Path(reference.location),
        data=tuple(parts_with_rows(run, rows)),
        output=work,
        settings=settings,
        seed=derive_seed(run.config.seed, "train", unit.key) % 2**32,
        processes=training_processes(run, settings),
        fit=training_fit(run, method),
        template=run.models.template,
        supervised=None if beside is None else beside.as_job(work),
        turns=turn_form(run, policy, thoughts),
    )
    shown = steps_shown(run, it.number, "train", work)
    identity, result = Publishing(run=run, on_progress=shown).publish(job)
    row = Checkpoint(
        checkpoint_id=identity,
        parent_id=policy.identity,
        reference_id=reference.identity,
        iteration=it.number,
        recipe=run.config.recipe.name,
        path=f"{CHECKPOINTS}/{identity}",
        steps=result.steps,
        metrics=metrics_json(result.metrics),
    )
    told = mix_statistics(run, it.number, method, rows)
    return row, [*told, *step_statistics(it.number, method, result)], result


def _settings(run: Run, rows: Trainable) -> Settings:
    return getattr(run.config.training, METHODS[rows.row_type])


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


def keep_policy(it: Iteration) -> Checkpoint:
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
            f"{_cut_answers(run, iteration)}"
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
        elif TABLES[FilterCount] in held:
            for counted in run.store.rows(FilterCount, key):
                filtered[counted.outcome] += counted.count
    counted = (("prompts by outcome", prompts), ("by what a filter did", filtered))
    return "; ".join(
        f"{what}: {', '.join(f'{n} {name}' for name, n in counts.most_common())}"
        for what, counts in counted
        if counts
    )


def _cut_answers(run: Run, iteration: int) -> str:
    """Return how many samples of an iteration were cut off, as text; empty if none was."""
    store = run.store
    keys = [unit for unit in store.journal.keys(iteration, "sample") if store.journal.is_done(unit)]
    ends = [row.finish_reason for key in keys for row in store.rows(Candidate, key)]
    cut, bound = ends.count("length"), run.config.policy.sampling.max_tokens
    if not cut:
        return ""
    counts = f"{cut:,} of {len(ends):,} samples"
    return f"; {counts} were cut off at policy.sampling.max_tokens={bound}"


def parts_with_rows(run: Run, rows: Trainable) -> list[Path]:
    """Return the verified files that have rows to train on."""
    store, table = run.store, TABLES[rows.row_type]
    sizes = [(key, store.journal.parts_of(key)[table]) for key in _keys(run, rows)]
    return [store.verified_path(rows.row_type, key) for key, part in sizes if part.rows]


def _keys(run: Run, rows: Trainable) -> list[str]:
    return [key for keys in join_keys(run.store.journal, rows.stages) for key in keys]
