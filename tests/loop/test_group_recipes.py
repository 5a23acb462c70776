"""Groups of answers, judged in the middle of a step: what is asked, kept, committed and refused."""

import os
import signal
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from crashing import (
    KILLED,
    Attempt,
    Silent,
    calls,
    look,
    loop,
    quick_folder,
    seen,
    stand_ins,
    write_prompts,
)
from online_steps import die_once, train
from typer.testing import CliRunner

import lpfloop.loop.stages.online_steps
import lpfloop.loop.stages.publish
import lpfloop.policies.trainers.reward_exchange
from examples import CRITIQUE
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import required_prompts, run_loop
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.judged_candidates import VERIFIED, VERIFIER
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.idle_settings import require_useful
from lpfloop.loop.recipes.missing_needs import require_needs
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.recipes.sampling_needs import require_sampling
from lpfloop.loop.recipes.smoke_needs import trainings
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.step_judges import part_score
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import AspectRating

METHODS = {"grpo": "grpo", "rloo": "rloo", "online-dpo": "online_dpo"}
STEPS, ASKED, GROUP = 3, 2, 2
ANSWERS = STEPS * ASKED * GROUP


def config(prompts: Path, *overrides: str, variant: str = "grpo") -> RunConfig:
    """Return the configuration of three steps of four answers, judged by a scripted critic."""
    method = f"training.{METHODS[variant]}"
    settings = (
        "policy.engine.kind=scripted",
        "policy.engine.script=crashing:policy",
        "policy.sampling.max_tokens=16",
        "critic.engine.kind=scripted",
        "critic.engine.script=crashing:critic",
        "reward.model=tiny",
        "assessment.kl=false",
        "prompts.held_out_share=0.25",
        "prompts.dev_share=0",
        "prompts.per_iteration=6",
        "prompts.evaluated=2",
        "prompts.chunk=2",
        f"prompts.source={prompts}",
        f"{method}.prompts_per_step={ASKED}",
        f"{method}.group={GROUP}",
        f"{method}.batch_size=2",
        f"{method}.micro_batch_size=2",
        f"{method}.max_steps={STEPS}",
        f"{method}.max_length=64",
        "iterations=1",
    )
    return load_config("tiny", variant, (*settings, *overrides), {})


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts"))


def turned(lake: Path, config: RunConfig, **how: object) -> Path:
    """Turn the loop with the stand-in trainer in this process."""
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = partial(train, **how)  # pyright: ignore[reportArgumentType]
        loop(lake, config=config)
    return run_folder(lake, "a")


def asked_of_steps(lake: Path, folder: Path) -> Counter[str]:
    """Return how often the critic was asked about what a training drew."""
    with closing(RunReader(folder)) as reader:
        rows = reader.scan("critiques", iteration=1).collect()
        drawn = reader.scan("rollouts").select("candidate_id").collect()["candidate_id"]
    own = rows.filter(pl.col("candidate_id").is_in(drawn.to_list()))["critique_id"].to_list()
    found = Counter[str]()
    for line, count in calls(lake).items():
        name = line.partition(" ")[0]
        found[name] += count if name in own else 0
    return +found


@pytest.mark.parametrize("variant", METHODS)
def test_a_step_is_one_unit_with_its_answers_their_critiques_and_rewards(
    tmp_path: Path, prompts: Path, variant: str
) -> None:
    folder = turned(tmp_path, config(prompts, variant=variant))
    with closing(RunReader(folder)) as reader:
        drawn = reader.scan("candidates", iteration=1).filter(kind="rollout").collect()
        critiques = reader.scan("critiques", iteration=1).collect()
        rewards = reader.scan("rewards", iteration=1).collect()
        told = reader.scan("statistics").collect()
        (checkpoint,) = reader.scan("checkpoints", iteration=1).collect().to_dicts()
        stages = {s.stage: s for s in reader.journal.stages()}
    of_steps = critiques.filter(pl.col("candidate_id").is_in(drawn["candidate_id"].to_list()))
    assert drawn.height == of_steps.height == rewards.height == ANSWERS
    assert set(rewards["reward_model"]) == {"critic"}
    # A reward can be computed again from the lake: the share of the rated aspects that pass.
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating")).list.drop_nulls()
    shares = of_steps.select(
        "candidate_id",
        "status",
        share=ratings.list.eval(pl.element() == 1).list.mean(),
    )
    both = rewards.join(shares, on="candidate_id", suffix="_of_critique")
    scored = both.filter(status_of_critique="scored")
    assert scored.height
    assert scored["score"].to_list() == scored["share"].to_list()
    unscored = both.filter(pl.col("status_of_critique") != "scored")
    assert unscored["score"].null_count() == unscored.height
    assert set(unscored["status"]) <= {f"critic_{s}" for s in unscored["status_of_critique"]}
    assert {"score/critic", "unscored/critic"} <= set(told["metric"])
    assert set(told["method"]) == {METHODS[variant]}
    stage = stages[METHODS[variant]]
    assert (stage.planned, stage.done) == (STEPS, STEPS)
    asked = sum(asked_of_steps(tmp_path, folder).values())
    assert stage.totals["judge_calls"] == asked
    assert stage.totals["calls"] == ANSWERS + asked
    assert 0 < stage.totals["judge_tokens"] < stage.totals["tokens"]
    assert (checkpoint["recipe"], checkpoint["steps"]) == (variant, STEPS)
    for command, words in {"show": "seen.", "lineage": "criticised"}.items():
        options = [command, scored["candidate_id"][0], "--lake", str(tmp_path)]
        shown = CliRunner().invoke(app, options)
        assert shown.exit_code == 0, shown.output
        assert words in shown.output


def test_a_reward_names_its_sum_and_every_judge_of_it_is_asked(
    tmp_path: Path, prompts: Path
) -> None:
    weights = "recipe.rewards={verifier: 2, critic: 0.5, reward: 1}"
    own = "critic.verifier=scripts:verifier"
    folder = turned(tmp_path, config(prompts, weights, own, "critic.equal_answers=once"))
    with closing(RunReader(folder)) as reader:
        drawn = reader.scan("rollouts").select("candidate_id")
        rewards = reader.scan("rewards").join(drawn, on="candidate_id", how="semi").collect()
        critiques = reader.scan("critiques", iteration=1).collect()
    assert set(rewards["reward_model"]) == {"2 verifier + 0.5 critic + reward"}
    critics = critiques.filter(pl.col("candidate_id").is_in(rewards["candidate_id"].to_list()))
    judges = critics.group_by("candidate_id").agg(pl.col("critic").sort())["critic"].to_list()
    assert len(judges) == rewards["candidate_id"].n_unique() == ANSWERS
    assert all(len(asked) == 2 and VERIFIER in asked for asked in judges)
    assert rewards["score"].drop_nulls().len() > 0


def test_what_the_verifier_says_beside_a_critic_counts_by_its_own_weight_alone() -> None:
    rated = {"Factuality": 1, "Readability": 0, "Metadiscourse": None, VERIFIED: 1}
    aspects = tuple(AspectRating(name=n, rating=r, comment="") for n, r in rated.items())
    assert part_score(replace(CRITIQUE, aspects=aspects)).score == 0.5
    assert part_score(replace(CRITIQUE, aspects=aspects[-1:])).status == "not_applicable"
    by_verifier = replace(CRITIQUE, critic=VERIFIER, aspects=aspects[-1:])
    assert part_score(by_verifier).score == 1.0


def killing(lake: Path, *, config: RunConfig, dies_at: int = 0) -> None:
    """Turn the loop, and look through what it made."""
    turned(lake, config, before=partial(die_once, at=dies_at))
    look(lake)


def dies_judging(lake: Path, *, config: RunConfig) -> None:
    """Die as soon as the second step's judgements are there, before the trainer sees them."""
    write = lpfloop.policies.trainers.reward_exchange.write_judged

    def written(work: Path, step: int, judged: object) -> None:
        write(work, step, judged)  # pyright: ignore[reportArgumentType]
        if step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    lpfloop.loop.stages.online_steps.write_judged = written
    turned(lake, config)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, prompts: Path):
    lake = tmp_path_factory.mktemp("whole")
    settings = config(prompts)
    Attempt(lake=lake, work=partial(killing, config=settings)).finish()
    return settings, seen(lake), calls(lake)


@pytest.mark.crash
@pytest.mark.parametrize("place", ["a step", "judging", "journal.keep.before#2", "stage.unit#9"])
def test_a_kill_in_a_step_changes_nothing_and_nobody_is_asked_twice(
    tmp_path: Path, uninterrupted, place: str
) -> None:
    settings, whole, asked = uninterrupted
    with quick_folder(tmp_path) as lake:
        work, points = partial(killing, config=settings), {}
        if place == "a step":
            work = partial(killing, config=settings, dies_at=3)
        elif place == "judging":
            work = partial(dies_judging, config=settings)
        else:
            points = {place: "kill"}
        assert Attempt(lake=lake, work=work, points=points).start() == KILLED
        Attempt(lake=lake, work=partial(killing, config=settings)).finish()
        assert seen(lake) == whole
        if place in ("a step", "judging"):
            assert calls(lake) == asked


def test_a_budget_of_judge_calls_ends_the_run_between_steps(tmp_path: Path, prompts: Path) -> None:
    whole = turned(_made(tmp_path / "whole"), config(prompts))
    with closing(RunReader(whole)) as reader:
        before = sum(
            s.totals.get("judge_calls", 0) for s in reader.journal.stages() if not s.iteration
        )
    lake = _made(tmp_path / "limited")
    limit = f"budget.judge_calls={before + ASKED * GROUP + 3}"
    with pytest.raises(BudgetReachedError, match=r"budget\.judge_calls"):
        turned(lake, config(prompts, limit))
    with closing(RunReader(run_folder(lake, "a"))) as reader:
        (stage,) = [s for s in reader.journal.stages() if s.stage == "grpo"]
        assert stage.done == 1
    assert run_digest(turned(lake, config(prompts))) == run_digest(whole)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_plan_has_the_judges_calls_of_all_steps(tmp_path: Path, prompts: Path) -> None:
    settings = config(prompts)
    plan = planned(settings, required_prompts(settings, tmp_path), tmp_path)
    (stage,) = [stage for stage in plan.stages if stage.stage == "grpo"]
    assert (stage.steps, stage.units) == (STEPS, STEPS)
    assert (stage.calls, stage.judge_calls) == (2 * ANSWERS, ANSWERS)
    assert stage.most_tokens == ANSWERS * (16 + settings.critic.sampling.max_tokens)


def test_the_smoke_test_makes_a_step_without_its_judges(tmp_path: Path, prompts: Path) -> None:
    folder = turned(tmp_path, config(prompts, "smoke.prompts=2", "smoke.train=true"))
    with closing(RunReader(folder)) as reader:
        stages = {state.stage for state in reader.journal.stages() if state.done == state.planned}
    assert {"critique:smoke", "step:smoke:grpo", "grpo"} <= stages


def test_only_those_who_count_are_asked(prompts: Path) -> None:
    def roles(*overrides: str) -> set[str]:
        found = needed_roles(config(prompts, *overrides))
        return {r.name for r in found if {"train_grpo"} & {*r.needed_by}}

    assert roles() == {"policy", "critic"}
    assert roles("recipe.rewards={critic: 0, reward: 1}") == {"policy", "reward"}
    assert roles("recipe.rewards={critic: 0, verifier: 1}") == {"policy"}
    assert roles("recipe.rewards={critic: 0.5, reward: 1}") == {"policy", "critic", "reward"}
    assert trainings(config(prompts, variant="online-dpo")) == ("online_dpo",)


REFUSED = {
    "all weights are 0": ("recipe.rewards={critic: 0}",),
    "reward.model is none": ("recipe.rewards={reward: 1}", "reward.model=none"),
    "critic.kind is verifier": ("critic.kind=verifier",),
    "policy.sampling.temperature is 0": ("policy.sampling.temperature=0",),
    "trains its weights: name their folder": (
        "policy.model=http://127.0.0.1:9/v1",
        "policy.engine.kind=openai",
    ),
    "no verdict on answers to any train prompt": ("recipe.rewards={verifier: 1, critic: 0}",),
    "policy.sampling.top_p is 0.9": ("policy.sampling.top_p=0.9",),
}


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("variant", METHODS)
def test_what_cannot_be_rewarded_is_refused_before_anything_is_written(
    tmp_path: Path, prompts: Path, variant: str, reason: str
) -> None:
    def begun() -> None:
        settings = config(prompts, *REFUSED[reason], variant=variant)
        run_loop(Job(config=settings, lake=tmp_path, name="a"), Silent(), StopSignal())

    with pytest.raises(ConfigError, match=reason):
        begun()
    assert not (tmp_path / "runs").exists()


def test_several_critiques_of_an_answer_are_said_to_change_nothing(prompts: Path) -> None:
    settings = config(prompts, "critic.samples=3")
    require_needs(RECIPES["grpo"].recipe, settings)
    require_sampling(RECIPES["grpo"].recipe, settings)
    with pytest.raises(ConfigError, match="grpo asks for one critique of each answer"):
        require_useful(settings, ["critic.samples"])
