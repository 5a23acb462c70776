"""Training a reward model from an iteration's pairs, and publishing it (AlpacaFarm, Section 2.2).

It begins with the body of M_0, regardless of the current policy, or with the model of
`training.reward.model`. It is published next to the checkpoints, under the hash of its files, with
the statistics of each step of its training: they show how the distribution of its scores drifted.
"""

from pathlib import Path

from ...configs.load import semantic
from ...policies.engines.chat_template import template_text
from ...policies.trainers.job import TrainJob
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed
from ...stores.lake import REWARD_MODELS
from ...stores.records import Pair, RewardModel, Statistic
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.reporter import UnitStats
from ..run.run import Verb
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
from .train import parts_with_rows, require_enough

TRAIN_REWARD = Verb("train_reward", semantics=3)
ELSEWHERE = {"model": None, "template": None}
"""Settings whose place is no part of a key: the identity of what stands there is."""


def train_reward(it: Iteration, pairs: Rows[Pair]) -> RewardModel:
    """Train a reward model on the pairs and commit it, unless that is done.

    Raises:
        NothingToTrainOn: if there are fewer pairs than `training.min_pairs`, or M_0's weights are
            not available.
    """
    it.run.flow.settle()
    config, start = it.run.config, _start(it)
    params: Json = {
        "start": start.identity,
        "settings": semantic(config.training.reward.model_copy(update=ELSEWHERE)),
        "sees_end": config.reward.sees_end,
        "bucket_width": config.pairs.bucket_width,
        **fit_params(policy_fit(it.run.config)),
    }
    pending = it.whole(TRAIN_REWARD, params, pairs)

    def run_units(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            require_enough(it.run, it.number, pairs, start)
            row, told = _train(it, unit, pairs)
            stage.commit(unit, {RewardModel: [row], Statistic: told}, UnitStats(rows=row.steps))

    places = it.run.places.of_training(config.training.devices)
    planned = it.run.run_stage(it.number, "train_reward", pending, run_units, places=places)
    it.run.decide_by(planned)
    key = planned.key(it.run.store.journal, 0)
    (model,) = it.run.store.rows(RewardModel, key)
    return model


def _start(it: Iteration) -> Served:
    """Return the model whose body the reward model begins with."""
    return it.run.models.reward_start or it.run.models.initial


def _template(it: Iteration) -> str | None:
    """Return the text of the template of the model that it begins with; None for its own."""
    settings = it.run.config.training.reward
    return it.run.models.template if settings.model is None else template_text(settings.template)


def _train(it: Iteration, unit: Unit, pairs: Rows[Pair]) -> tuple[RewardModel, list[Statistic]]:
    """Train in a work folder and publish the result; return its row and its statistics."""
    run = it.run
    run.models.make_room()
    job = TrainJob(
        method="reward",
        model=Path(_start(it).location),
        reference=None,
        data=tuple(parts_with_rows(run, pairs)),
        output=run.store.folder / "work" / unit.key,
        settings=run.config.training.reward,
        seed=derive_seed(run.config.seed, "train", unit.key) % 2**32,
        processes=training_processes(run, run.config.training.reward),
        fit=training_fit(run, "reward"),
        template=_template(it),
        sees_end=run.config.reward.sees_end,
        bucket_width=run.config.pairs.bucket_width,
    )
    shown = steps_shown(run, it.number, "train_reward", job.output)
    publishing = Publishing(run=run, place=REWARD_MODELS, on_progress=shown)
    identity, result = publishing.publish(job)
    report_training(run, it.number, "train_reward", "reward model", result)
    row = RewardModel(
        reward_model_id=identity,
        parent_id=_start(it).identity,
        iteration=it.number,
        path=f"{REWARD_MODELS}/{identity}",
        steps=result.steps,
        metrics=metrics_json(result.metrics),
    )
    told = mix_statistics(run, it.number, job.method, pairs)
    return row, [*told, *step_statistics(it.number, job.method, result)]
