"""Methods that sample while they train: their steps as units of a stage, then the checkpoint.

PPO and Quark learn from a reward model. GRPO, RLOO and online DPO learn from groups of answers to a
prompt, whose reward is a weighted sum of critic, verifier and reward model; critic and verifier
judge in the middle of a step (`step_judges`).

The trainer runs once for all steps, in a separate process that writes each step's rows to its work
folder; here a step is committed as soon as the trainer reports it. A killed trainer resumes from
its last checkpoint and repeats the steps after it. If sums are reproducible, as on the CPU, the
repeated steps are identical; otherwise a committed step keeps its first rows.
"""

from dataclasses import replace

from ...configs.grouped_recipes import Grouped, RewardWeights
from ...configs.recipes import Quark, Rewarded
from ...policies.trainers.job import Method
from ...stores.failpoints import reach
from ...stores.journal_reader import Cost
from ...stores.records import Checkpoint, RewardModel
from ..run.handles import Planned, Prompts
from ..run.iteration import Iteration
from ..run.reporter import UnitStats
from ..run.stage import Stage
from .online_steps import Steps, step_cost
from .online_work import OnlineTraining
from .publish import Publishing, report_training
from .reference_reward import references
from .reward import reward
from .sample import sample
from .step_alarms import StepWatch, keep_alarms, numbers_of
from .step_judges import StepJudges
from .supervised_set import supervision

ON_THE_WAY = "train:steps"
"""The stage of the policies that a training publishes on its way."""


def train_ppo(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after PPO on these prompts against a reward model, a step a unit."""
    return _by_model(it, "ppo", prompts, model)


def train_quark(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after Quark on these prompts by a reward model, a step a unit."""
    return _by_model(it, "quark", prompts, model)


def train_grpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after GRPO on groups of answers to these prompts, a step a unit."""
    return _by_groups(it, "grpo", prompts, rewards)


def train_rloo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after REINFORCE against the mean of the other answers, a step a unit."""
    return _by_groups(it, "rloo", prompts, rewards)


def train_online_dpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after DPO on pairs of answers sampled during training, a step a unit."""
    return _by_groups(it, "online_dpo", prompts, rewards)


def _by_model(
    it: Iteration, method: Method, prompts: Prompts, model: RewardModel | None
) -> Checkpoint:
    """Train the policy online, after committing its references and its supervised set."""
    it.require(Quark if method == "quark" else Rewarded, f"train_{method}")
    training = OnlineTraining(it=it, method=method, prompts=prompts, reward=model)
    training.require_trainable()
    found = None
    if training.settings.reference_reward:
        # r(x, y_ref), y_ref ~ M_0(x): the references of relative rewards.
        first = replace(it, policy=it.run.models.initial)
        answers = sample(first, prompts, n=1, label="sample:reference")
        found = references(it, answers, reward(it, answers, by=model))
    return _train(replace(training, references=found, supervision=supervision(it)))


def _by_groups(
    it: Iteration, method: Method, prompts: Prompts, rewards: RewardWeights
) -> Checkpoint:
    """Train the policy on groups; if the verifier has a weight, on prompts that it can verify."""
    it.require(Grouped, f"train_{method}")
    asked = it.verifiable(prompts) if rewards.verifier else prompts
    every, kept = (sum(map(len, of.chunks)) for of in (prompts, asked))
    if kept < every:
        it.run.reporter.note(
            f"{every - kept:,} of {every:,} prompts are left out: recipe.rewards.verifier counts, "
            "and the verifier cannot judge answers to them",
            "warning",
            code="W-LEFT-OUT",
            iteration=it.number,
            left_out=every - kept,
        )
    judges = StepJudges(it=it, rewards=rewards)
    training = OnlineTraining(it=it, method=method, prompts=asked, reward=None, judges=judges)
    training.require_trainable()
    return _train(replace(training, supervision=supervision(it)))


def _train(training: OnlineTraining) -> Checkpoint:
    """Train the policy online, step by step, and publish it."""
    it, run = training.it, training.it.run
    run.flow.settle()
    # The sampler, reward model and judges run next to the trainer, on any free device.
    places = run.places.of_training("auto")
    if training.judges is not None:
        places |= training.judges.where
    steps = run.run_stage(
        it.number,
        training.method,
        training.steps(),
        lambda stage: _run_steps(training, stage),
        places=places,
    )

    keep_alarms(it, training.method, steps)
    if training.published:
        run.run_stage(
            it.number,
            ON_THE_WAY,
            training.publications(steps),
            lambda stage: _publish_steps(training, steps, stage),
            places=places,
        )

    def publish(stage: Stage) -> None:
        # Not `Run.make`: its progress counts steps, not the one row.
        for unit in stage.units():
            run.models.make_room()
            job = training.job(steps.identity)
            identity, result = Publishing(run=run).publish(job)
            last = None if training.settings.choose == "last" else result.steps
            row = training.checkpoint(identity, result.steps, result.metrics, last)
            stage.commit(unit, {Checkpoint: [row]}, UnitStats(rows=result.steps))
            report_training(run, it.number, "train", training.method, result)

    planned = run.run_stage(it.number, "train", training.publication(steps), publish, places=places)
    reach("checkpoint.committed")
    run.decide_by(planned)
    (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
    return checkpoint


def _watch(training: OnlineTraining, stage: Stage) -> StepWatch | None:
    """Return the watch over each step, which knows the steps committed before."""
    it, planned = training.it, stage.planned
    if not it.run.config.alarms.watch:
        return None
    watch = StepWatch(it=it, method=training.method, steps=planned.chunks)
    journal, pending = it.run.store.journal, {unit.chunk for unit in stage.pending}
    for chunk in range(min(pending, default=planned.chunks)):
        watch.watch(numbers_of(it, planned.key(journal, chunk)))
    return watch


def _publish_steps(training: OnlineTraining, steps: Planned, stage: Stage) -> None:
    """Commit the policies that the training published on its way, each with its step's numbers."""
    run = training.it.run
    for unit in stage.units():
        run.models.make_room()
        step = training.published[unit.chunk]
        identity = Publishing(run=run).publish_step(training.job(steps.identity), step)
        metrics = numbers_of(training.it, steps.key(run.store.journal, step - 1))
        row = training.checkpoint(identity, step, metrics, step)
        stage.commit(unit, {Checkpoint: [row]}, UnitStats(rows=1))


def _run_steps(training: OnlineTraining, stage: Stage) -> None:
    """Run the trainer for all steps; commit each one, and at the end any that it did not report."""
    run = training.it.run
    run.models.make_room()
    job = training.job(stage.planned.identity)
    judges, settings = training.judges, training.settings
    steps = Steps(
        run=run,
        stage=stage,
        work=job.output,
        most=step_cost(run, settings),
        judging=Cost() if judges is None else judges.most(training.asked, settings.rollouts),
        judges=judges,
        watch=_watch(training, stage),
    )
    steps.admit()
    on_answers = None if judges is None else steps.judge_step
    publishing = Publishing(run=run, on_progress=steps.commit_steps, on_answers=on_answers)
    run.store.when_there_is_room(lambda: publishing.train(job))
    steps.settle(stage.planned.chunks)
