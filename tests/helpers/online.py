"""A fake trainer of online methods: the rows of its steps depend on the job alone.

Like the real trainer, it saves a checkpoint at every third step and the last, and resumes from it;
the store and the loop are the real ones.
"""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rows import CANDIDATE, REWARD, ROLLOUT
from world import look, loop

import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.configs.training import GroupTraining, OnlineSettings
from lpfloop.loop.stages.online_rl import whole_settings
from lpfloop.policies.engines.canary import write_canary
from lpfloop.policies.trainers.faults import halted_error
from lpfloop.policies.trainers.job import Method, OnlineJob, TrainJob
from lpfloop.policies.trainers.step_files import (
    UNSCORED,
    PromptToSample,
    StepRows,
    draws_of_step,
    planned_steps,
    prompts_of_step,
    read_judged,
    read_prompts,
    statistics,
    write_answers,
    write_step,
)
from lpfloop.policies.trainers.step_policies import (
    finished_policy,
    published_steps,
    seal_policy,
    step_job,
)
from lpfloop.policies.trainers.train_model import TrainResult
from lpfloop.policies.trainers.work_folder import TrainerProgress
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.records import SCORED

INTERVAL = 3
"""Steps between two checkpoints of the fake trainer."""

ROLLOUTS = 4

ONLINE = (
    "policy.engine.kind=scripted", "policy.engine.script=world:policy",
    "critic.engine.kind=scripted", "critic.engine.script=world:critic", "reward.model=tiny",
    "assessment.reference=null", "assessment.oracle=null", "assessment.reward=false",
    "assessment.kl=false", "prompts.held_out_share=0.25", "prompts.per_iteration=6",
    "prompts.max_test=2", "prompts.dev_share=0", "prompts.chunk=2",
    "prompts.parts={sft: 0, preference: 0, unlabeled: 6}", f"training.ppo.rollouts={ROLLOUTS}",
    f"training.ppo.batch_size={ROLLOUTS}", "training.ppo.micro_batch_size=2",
    "training.ppo.epochs=5", "training.ppo.max_steps=null", "policy.sampling.max_tokens=16",
    "training.ppo.max_length=64", "iterations=1",
)  # fmt: skip
STEPS = 6 * 5 // ROLLOUTS


def online_config(prompts: Path, *overrides: str) -> RunConfig:
    """Return the configuration of a PPO run with the fake trainer: one iteration, seven steps."""
    return load_config("tiny", "ppo", (*ONLINE, f"prompts.source={prompts}", *overrides), {})


def train_online(
    job: TrainJob,
    *,
    on_progress: Callable[[TrainerProgress], None] | None = None,
    on_answers: Callable[[int], None] | None = None,
    before: Callable[[TrainJob, int], None] = lambda _job, _step: None,
    **_: object,
) -> TrainResult:
    """Make the steps after the last checkpoint, report each, and write a model of the job."""
    assert isinstance(job.settings, OnlineSettings)
    assert job.online is not None
    asked = read_prompts(job.data)
    steps = planned_steps(len(asked), job.settings)
    checkpoint = job.folder("checkpoint")
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(done + 1, steps + 1):
        before(job, step)
        write_step(job.output, step, _made(job, step, asked, on_answers))
        if step % INTERVAL == 0 or step == steps:
            # Write it atomically, as a kill may come from another thread.
            checkpoint.with_suffix(".new").write_text(str(step))
            checkpoint.with_suffix(".new").replace(checkpoint)
        if on_progress is not None:
            on_progress(TrainerProgress(step=step, max_steps=steps, metrics={"loss": 0.5}))
    settings = whole_settings(job.settings)
    weights = hashlib.sha256(f"{job.online.identity} {job.seed} {settings}".encode())
    model = job.folder("model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}\n")
    (model / "weights").write_text(weights.hexdigest())
    write_canary(job.output, ())
    for step in published_steps(job.settings, steps):
        part = step_job(job, step)
        if finished_policy(part) is None:
            between = part.folder("model")
            between.mkdir(parents=True, exist_ok=True)
            (between / "config.json").write_text("{}\n")
            (between / "weights").write_text(f"{weights.hexdigest()} after {step}")
            write_canary(part.output, ())
            seal_policy(part)
    return TrainResult(output=model, steps=steps, metrics={"loss": 0.5}, seconds=0.0, history=())


def _made(
    job: TrainJob,
    step: int,
    asked: Sequence[PromptToSample],
    on_answers: Callable[[int], None] | None,
) -> StepRows:
    """Return the rows of a step, with rewards from the job's judges."""
    assert job.online is not None
    assert isinstance(job.settings, OnlineSettings)
    group = job.settings.group if isinstance(job.settings, GroupTraining) else 1
    count = job.settings.rollouts // group
    places = prompts_of_step(len(asked), job.seed, step=step, rollouts=count)
    found = step_rows(
        job.online, step, [asked[place] for place in places for _ in range(group)], job.method
    )
    if not job.online.reward_sources:
        return found
    write_answers(job.output, step, found.candidates)
    judged = read_judged(job.output, step, job.online.reward_sources)
    if judged is None:
        assert on_answers is not None
        on_answers(step)
        judged = read_judged(job.output, step, job.online.reward_sources)
    if judged is None:
        raise halted_error(job)
    own = {row.candidate_id: row.score or 0.0 for row in found.rewards}
    weights = job.online.weights
    sums = dict[str, float | None]()
    for name, scores in judged.items():
        parts = [(weights[source], score) for source, score in scores.items()]
        whole = sum(weight * score for weight, score in parts if score is not None)
        part = weights.get("reward", 0.0) * own[name]
        missing = any(score is None for _, score in parts)
        sums[name] = None if missing else whole + part
    rewarded = [
        replace(row, score=score, status=SCORED if score is not None else UNSCORED)
        for row in found.rewards
        for score in [sums[row.candidate_id]]
    ]
    return replace(found, rewards=rewarded)


def step_rows(
    online: OnlineJob, step: int, asked: Sequence[PromptToSample], method: Method = "ppo"
) -> StepRows:
    """Return the rows of a step: every number and text depends on the rollout's seed alone."""
    sampling = canonical_json(online.sampling.model_dump(mode="json"))
    found = StepRows(
        candidates=[],
        rewards=[],
        rollouts=[],
        statistics=statistics(
            online.iteration, method, step, {"loss": 0.5, "kl": 0.1, "length": 5.0}
        ),
    )
    for draw in draws_of_step(online, step, asked):
        place = {
            "candidate_id": draw.candidate_id,
            "prompt_id": draw.prompt.prompt_id,
            "iteration": online.iteration,
        }
        candidate = replace(
            CANDIDATE, **place, kind="rollout", policy=online.policy, model=online.model,
            text=f"I say {draw.seed}.", prompt_tokens=7, completion_tokens=5, logprob=-1.0,
            seed=draw.seed, sampling=sampling,
        )  # fmt: skip
        reward = replace(
            REWARD, **place, reward_model=online.reward_id, score=random.Random(draw.seed).random(),
            status=SCORED,
        )  # fmt: skip
        rollout = replace(
            ROLLOUT, **place, step=step, kl=0.0, logprob=-1.0, reference_logprob=-1.0, tokens=5,
            value=0.0, advantage_mean=0.0, advantage_std=1.0, quantile=None,
        )  # fmt: skip
        found.candidates.append(candidate)
        found.rewards.append(reward)
        found.rollouts.append(rollout)
    return found


def die_once(job: TrainJob, step: int, *, at: int) -> None:
    """Kill this process before a step, the first time."""
    died = job.output.parent.parent.parent.parent / "died"
    if step == at and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def turned(lake: Path, *, config: RunConfig, dies_at: int = 0, fork: str | None = None) -> None:
    """Run the loop with the fake trainer in this process, and check the result."""
    before = lpfloop.loop.stages.publish.train
    lpfloop.loop.stages.publish.train = partial(train_online, before=partial(die_once, at=dies_at))
    try:
        loop(lake, config=config, name="b" if fork else "a", fork=fork)
    finally:
        lpfloop.loop.stages.publish.train = before
    look(lake, name="b" if fork else "a")
