"""Training a policy or a reward model from an iteration's rows, and publishing it.

A reward model (AlpacaFarm, Section 2.2) begins with the body of M_0, regardless of the current
policy, or with the model of `training.reward.model`. It is published next to the checkpoints, under
the hash of its files. The statistics of each step show how the distribution of its scores drifted.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from ...configs.load import semantic
from ...critics.status import WAS_READ
from ...policies.engines.chat_template import template_text
from ...policies.trainers.job import Method, Settings, TrainJob
from ...policies.trainers.train_model import TrainResult
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...policies.trainers.work_folder import TrainerProgress, training_pace
from ...stores.address import run_argument
from ...stores.failpoints import reach
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed
from ...stores.lake import CHECKPOINTS, REWARD_MODELS
from ...stores.records import (
    Candidate,
    Checkpoint,
    Critique,
    Demonstration,
    Pair,
    RewardModel,
    Statistic,
    UnpairedAnswer,
)
from ...stores.schemas import TABLES, R, Row
from ..run.handles import Rows, Trainable, join_keys
from ..run.iteration import Iteration
from ..run.models import Served, is_endpoint
from ..run.reporter import UnitStats
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from ..run.stop import NothingToTrainOn
from .data_mixture import mix_statistics
from .publish import (
    Publishing,
    metrics_json,
    report_training,
    step_statistics,
    thought_params,
    training_fit,
    training_processes,
    turn_form,
)
from .supervised_set import supervision
from .training_files import thoughts_file

TRAIN, KEEP_POLICY = Verb("train", semantics=2), Verb("unchanged")
TRAIN_REWARD = Verb("train_reward", semantics=3)
METHODS: Mapping[type[Row], Method] = {
    Pair: "dpo",
    Demonstration: "sft",
    UnpairedAnswer: "kto",
}
"""How rows are trained."""
ELSEWHERE = {"model": None, "template": None}
"""Settings whose place is no part of a key: the identity of what stands there is."""


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
    run, supervised, config = it.run, supervision(it), it.run.config.training
    method = METHODS[rows.row_type]
    settings: Settings = getattr(config, method)
    policy = run.models.initial if start == "initial" else it.policy
    reference = run.models.initial if config.reference == "initial" else policy
    params: Json = {
        "policy": policy.params,
        "reference": reference.identity,
        "settings": semantic(settings),
        **thought_params(run),
        **fit_params(policy_fit(run.config)),
    }
    pending = it.whole(TRAIN, params, rows)
    if supervised is not None:
        pending = supervised.add_to(pending)

    def run_units(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            require_enough(run, it.number, rows, policy)
            run.models.make_room()
            run.verify(policy)
            run.verify(reference)
            job, keys = _job(it, unit, rows, method, settings, policy), _keys(run, rows)
            same = method == "sft" or reference.identity == policy.identity
            write = partial(thoughts_file, run, rows.row_type, keys, job.output)
            thoughts = run.store.when_there_is_room(write)
            job = replace(
                job,
                reference=None if same else Path(reference.location),
                supervised=None if supervised is None else supervised.as_job(job.output),
                turns=turn_form(run, policy, thoughts),
            )
            identity, result, statistics = _publish(it, "train", job, rows)
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
            stage.commit(
                unit, {Checkpoint: [row], Statistic: statistics}, UnitStats(rows=row.steps)
            )

    places = run.places.of_training(config.devices)
    planned = run.run_stage(it.number, "train", pending, run_units, places=places)
    reach("checkpoint.committed")
    run.decide_by(planned)
    (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
    return checkpoint


def train_reward(it: Iteration, pairs: Rows[Pair]) -> RewardModel:
    """Train a reward model on the pairs and commit it, unless that is done.

    Raises:
        NothingToTrainOn: if there are fewer pairs than `training.min_pairs`, or M_0's weights are
            not available.
    """
    it.run.flow.settle()
    run, config, settings = it.run, it.run.config, it.run.config.training.reward
    start = run.models.reward_start or run.models.initial
    params: Json = {
        "start": start.identity,
        "settings": semantic(settings.model_copy(update=ELSEWHERE)),
        "sees_end": config.reward.sees_end,
        "bucket_width": config.pairs.bucket_width,
        **fit_params(policy_fit(config)),
    }

    def run_units(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            require_enough(run, it.number, pairs, start)
            run.models.make_room()
            job = replace(
                _job(it, unit, pairs, "reward", settings, start),
                sees_end=config.reward.sees_end,
                bucket_width=config.pairs.bucket_width,
            )
            if settings.model is not None:
                job = replace(job, template=template_text(settings.template))
            identity, result, statistics = _publish(it, "train_reward", job, pairs, REWARD_MODELS)
            row = RewardModel(
                reward_model_id=identity,
                parent_id=start.identity,
                iteration=it.number,
                path=f"{REWARD_MODELS}/{identity}",
                steps=result.steps,
                metrics=metrics_json(result.metrics),
            )
            stage.commit(
                unit, {RewardModel: [row], Statistic: statistics}, UnitStats(rows=row.steps)
            )

    places = run.places.of_training(config.training.devices)
    pending = it.whole(TRAIN_REWARD, params, pairs)
    planned = run.run_stage(it.number, "train_reward", pending, run_units, places=places)
    run.decide_by(planned)
    (model,) = run.store.rows(RewardModel, planned.key(run.store.journal, 0))
    return model


def _job(
    it: Iteration, unit: Unit, rows: Trainable, method: Method, settings: Settings, start: Served
) -> TrainJob:
    """Return the training of a model on rows in the work folder of its unit."""
    run, store, table = it.run, it.run.store, TABLES[rows.row_type]
    filled = (key for key in _keys(run, rows) if store.journal.parts_of(key)[table].rows)
    return TrainJob(
        method=method,
        model=Path(start.location),
        reference=None,
        data=tuple(store.verified_path(rows.row_type, key) for key in filled),
        output=run.store.folder / "work" / unit.key,
        settings=settings,
        seed=derive_seed(run.config.seed, "train", unit.key) % 2**32,
        processes=training_processes(run, settings),
        fit=training_fit(run, method),
        template=run.models.template,
    )


def _publish(
    it: Iteration, stage: str, job: TrainJob, rows: Trainable, place: str = CHECKPOINTS
) -> tuple[str, TrainResult, list[Statistic]]:
    """Train and publish a model; return its name, the result, and the statistics of the steps."""
    run = it.run

    def show(_: TrainerProgress) -> None:
        pace = training_pace(job.output)
        if pace is not None:
            run.reporter.working(it.number, stage, str(pace), pace.eta_s)

    identity, result = Publishing(run=run, place=place, on_progress=show).publish(job)
    statistics = mix_statistics(run, it.number, job.method, rows)
    called = "reward model" if job.method == "reward" else job.method
    report_training(run, it.number, stage, called, result)
    return identity, result, [*statistics, *step_statistics(it.number, job.method, result)]


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
    reasons = f"`lpfloop status {run_argument(run.store.folder)}` counts the prompts by outcome"
    if found < needed:
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, fewer than training.min_pairs="
            f"{needed}, so nothing was trained; {reasons}{_lost_rows(run, iteration)}"
        )
    if rows.row_type is UnpairedAnswer:
        tables = (as_frame(run.store.table(UnpairedAnswer, key)) for key in _keys(run, rows))
        successes = sum(int(table["label"].sum()) for table in tables)
        if successes in (0, found):
            raise NothingToTrainOn(
                f"iteration {iteration} made {successes} successes and {found - successes} "
                f"failures, and KTO learns from both, so nothing was trained; {reasons}"
            )
    if is_endpoint(start.location):
        raise NothingToTrainOn(
            f"iteration {iteration} made {found} {noun}, but the policy is served at "
            f"{start.location}, so its weights cannot be trained here; "
            "give their folder with --policy"
        )


def _lost_rows(run: Run, iteration: int) -> str:
    """Return how many samples were cut off and how many critiques are unscored; "" if none."""
    samples = _rows_of(run, iteration, "sample", Candidate)
    critiques = _rows_of(run, iteration, "critique:sample", Critique)
    cut = sum(row.finish_reason == "length" for row in samples)
    unread = Counter(row.status for row in critiques if row.status not in WAS_READ)
    text = ""
    if cut:
        bound = run.config.policy.sampling.max_tokens
        text += f"; {cut:,} of {len(samples):,} samples were cut off at "
        text += f"policy.sampling.max_tokens={bound}"
    if unread:
        kinds = ", ".join(f"{count:,} {status}" for status, count in unread.most_common())
        text += f"; {unread.total():,} of {len(critiques):,} critiques are unscored ({kinds})"
    return text


def _rows_of(run: Run, iteration: int, stage: str, row_type: type[R]) -> list[R]:
    """Return the committed rows of a stage."""
    store = run.store
    keys = [key for key in store.journal.keys(iteration, stage) if store.journal.is_done(key)]
    return [row for key in keys for row in store.rows(row_type, key)]


def _keys(run: Run, rows: Trainable) -> list[str]:
    return [key for keys in join_keys(run.store.journal, rows.stages) for key in keys]
