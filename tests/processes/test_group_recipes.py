"""Groups of answers, judged within a step: requested, kept, committed and refused ones."""

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import world
from online import train_online
from world import KILLED, Attempt, calls, look, loop, quick_folder, seen, stand_ins, write_prompts

import lpfloop.loop.stages.online_steps
import lpfloop.loop.stages.publish
import lpfloop.policies.trainers.step_files
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.policies.trainers.train_model import train as train_really
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import RunReader, run_folder

STEPS, ASKED, GROUP = 3, 2, 2
ANSWERS = STEPS * ASKED * GROUP


def config(prompts: Path, *overrides: str, recipe: str = "grpo") -> RunConfig:
    """Return the configuration of three steps of four answers, judged by a scripted critic."""
    method = f"training.{recipe.replace('-', '_')}"
    settings = (
        "policy.engine={kind: scripted, script: 'world:policy'}",
        "policy.sampling.max_tokens=16",
        "critic.engine={kind: scripted, script: 'world:critic'}",
        "reward.model=tiny",
        "assessment.kl=false",
        "prompts={held_out_share: 0.25, dev_share: 0, per_iteration: 6, max_test: 2, chunk: 2}",
        f"prompts.source={prompts}",
        f"{method}={{prompts_per_step: {ASKED}, group: {GROUP}, max_steps: {STEPS}}}",
        f"{method}={{batch_size: 2, micro_batch_size: 2, max_length: 64}}",
        "iterations=1",
    )
    return load_config("tiny", recipe, (*settings, *overrides), {})


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts"))


def turned(lake: Path, config: RunConfig, **how: object) -> Path:
    """Run the loop with the fake trainer in this process."""
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = partial(train_online, **how)  # pyright: ignore[reportArgumentType]
        loop(lake, config=config)
    return run_folder(lake, "a")


@pytest.mark.parametrize("recipe", ["grpo", "online-dpo"])
def test_step_is_one_unit(tmp_path: Path, prompts: Path, recipe: str) -> None:
    folder = turned(tmp_path, config(prompts, recipe=recipe))
    with closing(RunReader(folder)) as reader:
        drawn = reader.scan("candidates", iteration=1).filter(kind="rollout").collect()
        critiques = reader.scan("critiques", iteration=1).collect()
        rewards = reader.scan("rewards", iteration=1).collect()
        (checkpoint,) = reader.scan("checkpoints", iteration=1).collect().to_dicts()
        stages = {s.stage: s for s in reader.journal.stages()}
    of_steps = critiques.filter(pl.col("candidate_id").is_in(drawn["candidate_id"].to_list()))
    assert drawn.height == of_steps.height == rewards.height == ANSWERS
    assert set(rewards["reward_model"]) == {"critic"}
    # The lake suffices to compute a reward again: the share of the rated aspects that pass.
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating")).list.drop_nulls()
    share = ratings.list.eval(pl.element() == 1).list.mean()
    shares = of_steps.select("candidate_id", "status", share=share)
    both = rewards.join(shares, on="candidate_id", suffix="_of_critique")
    scored = both.filter(status_of_critique="scored")
    assert scored.height
    assert scored["score"].to_list() == scored["share"].to_list()
    unscored = both.filter(pl.col("status_of_critique") != "scored")
    assert unscored["score"].null_count() == unscored.height
    stage = stages[recipe.replace("-", "_")]
    assert (stage.planned, stage.done) == (STEPS, STEPS)
    assert (checkpoint["recipe"], checkpoint["steps"]) == (recipe, STEPS)


def killing(lake: Path, *, config: RunConfig) -> None:
    turned(lake, config)
    look(lake)


def dies_judging(lake: Path, *, config: RunConfig) -> None:
    """Die once the second step's judgements are written, before the trainer reads them."""
    write = lpfloop.policies.trainers.step_files.write_judged

    def written(work: Path, step: int, judged: object) -> None:
        write(work, step, judged)  # pyright: ignore[reportArgumentType]
        if step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    lpfloop.loop.stages.online_steps.write_judged = written
    turned(lake, config)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, prompts: Path) -> Path:
    lake = tmp_path_factory.mktemp("whole")
    Attempt(lake=lake, work=partial(killing, config=config(prompts))).finish()
    return lake


def test_killed_in_a_step(tmp_path: Path, uninterrupted: Path, prompts: Path) -> None:
    settings = config(prompts)
    with quick_folder(tmp_path) as lake:
        work = partial(dies_judging, config=settings)
        assert Attempt(lake=lake, work=work).start() == KILLED
        Attempt(lake=lake, work=partial(killing, config=settings)).finish()
        assert seen(lake) == seen(uninterrupted)
        assert calls(lake) == calls(uninterrupted)


REAL = (
    "policy.engine.kind=transformers",
    "policy.model=tiny",
    "policy.sampling.max_tokens=12",
    "critic.model=tiny",
)
TINY_CRITIC = (
    "critic.engine.kind=transformers",
    # The tiny critic gives all answers to unknown prompts the same rating.
    "reward.model=tiny",
    "recipe.rewards.reward=0.5",
)


def really(lake: Path, *, config: RunConfig, dies_at: int = 0) -> None:
    """Run the loop with the real trainer; die after writing the judgements of step `dies_at`."""
    write = lpfloop.policies.trainers.step_files.write_judged

    def written(work: Path, step: int, judged: object) -> None:
        write(work, step, judged)  # pyright: ignore[reportArgumentType]
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    lpfloop.loop.stages.online_steps.write_judged = written
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = train_really
        loop(lake, config=config)
    look(lake)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "critic"),
    [("grpo", ()), ("online-dpo", ()), ("grpo", TINY_CRITIC)],
    ids=["grpo", "online-dpo", "grpo by the tiny critic"],
)
def test_real_training_killed(tmp_path, prompts, recipe, critic, monkeypatch) -> None:
    """It is killed while judging and then while training, and ends with the same rows."""
    monkeypatch.setattr(world, "HANGS_S", 1800.0)
    method = recipe.replace("-", "_")
    lengths = f"training.{method}={{max_steps: 2, max_length: 128}}"
    settings = config(prompts, *REAL, lengths, *critic, recipe=recipe)
    training = partial(really, config=settings)
    with quick_folder(tmp_path) as lake:
        Attempt(lake=lake, work=training).finish()
        whole, asked = seen(lake), calls(lake)
    assert whole.rows["rollouts"] > 0
    with quick_folder(tmp_path) as lake:
        judging = partial(really, config=settings, dies_at=2)
        assert Attempt(lake=lake, work=judging).start() == KILLED
        # It repeats both steps: the first from its rows, the second from stored replies.
        assert Attempt(lake=lake, work=training, points={"stage.unit#1": "kill"}).start() == KILLED
        Attempt(lake=lake, work=training).finish()
        assert seen(lake) == whole
        assert calls(lake) == asked


def test_budget_ends_between_steps(tmp_path: Path, uninterrupted: Path, prompts: Path) -> None:
    whole, lake = run_folder(uninterrupted, "a"), tmp_path
    with closing(RunReader(whole)) as reader:
        before = sum(
            s.totals.get("judge_calls", 0) for s in reader.journal.stages() if not s.iteration
        )
    limit = f"budget.judge_calls={before + ASKED * GROUP + 3}"
    with pytest.raises(BudgetReachedError, match=r"budget\.judge_calls"):
        turned(lake, config(prompts, limit))
    with closing(RunReader(run_folder(lake, "a"))) as reader:
        (stage,) = [s for s in reader.journal.stages() if s.stage == "grpo"]
        assert stage.done == 1
    assert run_digest(turned(lake, config(prompts))) == run_digest(whole)


REFUSED = {
    "reward.model is none": ("recipe.rewards={reward: 1}", "reward.model=none"),
    "cannot judge answers to any train prompt": ("recipe.rewards={verifier: 1, critic: 0}",),
    "policy.sampling.top_p is 0.9": ("policy.sampling.top_p=0.9",),
}


def test_unrewardable_setup_refused(tmp_path: Path, prompts: Path) -> None:
    for reason, overrides in REFUSED.items():
        with pytest.raises(ConfigError, match=reason):
            loop(tmp_path, config=config(prompts, *overrides))
        assert not (tmp_path / "runs").exists()
