"""Every preset runs at the command in its own head: what it asks, of whom, how often."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from all_judges import judge
from crashing import Silent
from endpoints import answering
from preset_heads import HeadCommand, head_command, many_prompts, sizes, write_files, write_pool

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import PRESETS, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.plan import Plan, plan_of
from lpfloop.loop.daemon.rehearsal import Rehearsal, rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.missing_needs import parts_used
from lpfloop.loop.recipes.roles import needed_roles, require_named
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.people_labels import labels_of
from lpfloop.stores.lake import RunReader

WORLDS = ("paper", "own")
EVERY = [(world, variant) for world in WORLDS for variant in RECIPES]
MODELS = ("critique-model", "reflective-sft", "task-reward")
"""Recipes that make models for others, in one round."""
HEADS = [
    *(("paper", variant) for variant in ("rlrf", "dpo", "chatglm-dpo", "ultrafeedback-dpo")),
    *(("own", variant) for variant in ("rlrf", "reward-only", "critique-model")),
    *((world, variant) for world in WORLDS for variant in MODELS[1:]),
    *(("own", variant) for variant in ("expert-iteration", "chatglm-rs", "ultrafeedback-dpo")),
]
"""A variant of each head, and of each way of learning."""
URL = "http://127.0.0.1:9/v1"
TABLE = Path(__file__).parents[2] / "docs" / "presets.md"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with the files that heads name, in which commands are given."""
    before = Path.cwd()
    os.chdir(tmp_path)
    write_files(tmp_path, count=40, held_out=4)
    write_pool(tmp_path, URL)
    yield tmp_path
    os.chdir(before)


@pytest.fixture
def named(tiny_policy: Path, tiny_reward: Path) -> dict[str, str]:
    """Models for what stands in heads."""
    policies = ("MODEL_FOLDER", "LLAMA_FOLDER", "M0_FOLDER", "SFT_FOLDER", "ULTRALM_FOLDER")
    others = {"REWARD_FOLDER": str(tiny_reward), "URL": URL}
    return {**dict.fromkeys(policies, str(tiny_policy)), **others}


def configured(command: HeadCommand, named: dict[str, str]) -> RunConfig:
    return command.options(named).resolved()


def row_of(command: HeadCommand, rehearsal: Rehearsal, plan: Plan) -> str:
    """Return the line of the table about a plan."""
    used = parts_used(RECIPES[command.variant].recipe, rehearsal.config)
    parts = {part.name: part.total for part in rehearsal.sample.parted if part.name in used}
    prompts = parts or {"train": rehearsal.sample.share.total}
    stages = [stage for stage in plan.stages if "smoke" not in stage.stage]
    verbs, roles = Counter[str](), Counter[str]()
    for stage in stages:
        verbs[stage.stage.partition(":")[0]] += round(stage.calls)
    for role in plan.roles:
        roles[role.role.partition(":")[0].removeprefix("prompts.").partition(".")[0]] += 1
    told = (
        f"`{command.world}` `{command.variant}`",
        listed({**prompts, **{split: plan.groups.get(split, 0) for split in ("dev", "held-out")}}),
        ", ".join(f"{name} ({count})" if count > 1 else name for name, count in roles.items()),
        f"{len({stage.stage for stage in stages})}",
        listed(verbs),
        ", ".join(f"{s.stage} {s.steps:,}" for s in stages if s.steps) or "none",
    )
    return f"| {' | '.join(told)} |"


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


@pytest.mark.parametrize(("world", "variant"), EVERY)
def test_each_head_names_all_that_its_variant_asks(
    here: Path, named: dict[str, str], world: str, variant: str
) -> None:
    """No role is left over for the shipped toy, and none is missing."""
    command = head_command(world, variant)
    if (world, variant) == ("own", "reward-only"):
        assert "reward.model=REWARD_FOLDER" in command.text
    config = configured(command, named)
    roles = needed_roles(config)
    require_named(roles, variant)
    assert "tiny" not in {role.model for role in roles}


@pytest.mark.parametrize(("world", "variant"), HEADS)
def test_the_command_of_a_head_gets_to_its_end(
    here: Path, named: dict[str, str], world: str, variant: str
) -> None:
    """With stand-ins for models and trainer: every stage of the run, on the files that it reads."""
    config = configured(head_command(world, variant), named)
    prompts = load_prompts(config.prompts, seed=config.seed)
    labels = labels_of(config, here)
    plan = plan_of(rehearse(config, prompts, labels=labels), prompts)
    assert plan.ends is None
    assert {stage.iteration for stage in plan.stages} == set(range(config.iterations + 1))
    assert plan.totals["calls"]


@pytest.mark.parametrize("world", WORLDS)
def test_chatglms_presets_compare_by_its_own_criteria_and_sample_in_several_ways(
    world: str,
) -> None:
    config = load_config(world, "chatglm-ppo", [], {})
    assert (config.annotation.pool, config.completion.pool) == ("chatglm", "chatglm")
    assert config.training.ppo.scheduler == "constant"
    assert config.training.ppo.missing_eos == "below"


def test_no_default_of_alpacafarm_stands_unsaid_in_what_the_papers_presets_do_by_ppo() -> None:
    for name in ("chatglm", "ultrafeedback"):
        said = yaml.safe_load((PRESETS / "paper" / f"{name}.yaml").read_text())["training"]["ppo"]
        assert {"kl_coef", "scheduler", "warmup_steps", "inner_epochs", "missing_eos"} <= set(said)
        assert {"whiten_rewards", "whiten_advantages", "missing_eos_penalty"} <= set(said)
    assert load_config("paper", "ultrafeedback-ppo", [], {}).evaluation.temperature == 0.7
    assert load_config("paper", "ultrafeedback-bon", [], {}).evaluation.temperature == 1.0


def test_the_judges_of_chatglms_head_can_be_asked_in_chinese(
    here: Path, named: dict[str, str]
) -> None:
    command = head_command("paper", "chatglm-rs")
    comment = (PRESETS / "paper" / "chatglm.yaml").read_text().partition("are Chinese.")[2]
    said = re.findall(r"--set (\S+-zh)", comment)
    assert len(said) == 3
    with answering(judge) as url:
        write_files(here, count=12, held_out=2)
        options = command.options({**named, "URL": url})
        config = replace(options, settings=(*options.settings, *said, *SERVED)).resolved()
        with pytest.raises(NothingToTrainOn):
            run_loop(Job(config=config, lake=here / "lake", name="a"), Silent(), StopSignal())
    run = RunReader(here / "lake" / "runs" / "a")
    reviews = run.scan("prompt_reviews").collect()
    assert set(reviews["status"]) == {"scored"}
    assert set(reviews["intention"]) == {"知识问答"}
    assert set(run.scan("preferences").collect()["status"]) == {"scored"}
    run.close()


@pytest.mark.parametrize("variant", ["ultrafeedback-dpo", "ultrafeedback-bon", "ultrafeedback-ppo"])
def test_all_prompts_are_graded(here: Path, named: dict[str, str], variant: str) -> None:
    """Once 28,792 of 63,967: a tenth was held out, and half kept for a part, used or not."""
    config = configured(head_command("paper", variant), named)
    plan = plan_of(rehearse(config, many_prompts(200, 4)), many_prompts(200, 4))
    graded = [s for s in plan.stages if s.stage.startswith("grade:complete:")]
    assert {stage.calls for stage in graded} == {200}
    assert len(graded) == 4


def test_a_paper_preset_makes_as_many_rounds_as_its_paper() -> None:
    for path in sorted((PRESETS / "paper").glob("*.yaml")):
        one = path.stem in ("alpacafarm", "chatglm", "grouped", "ultrafeedback", *MODELS)
        assert ("\niterations: 1" in path.read_text()) == one, path


@pytest.mark.slow
@pytest.mark.parametrize(("world", "variant"), EVERY)
def test_the_table_tells_what_each_preset_asks(
    here: Path, named: dict[str, str], world: str, variant: str
) -> None:
    """At the sizes that the heads describe."""
    command = head_command(world, variant)
    config = configured(command, named)
    row = full_row(here, command, config, *sizes(world, variant))
    assert row in TABLE.read_text().splitlines()


def full_row(here: Path, command: HeadCommand, config: RunConfig, count: int, held_out: int) -> str:
    """Return the line about so many prompts; without a file of them, a share is held out."""
    own = held_out or round(count * config.prompts.held_out_share)
    dev = round(count * config.prompts.dev_share)
    taught = command.variant == "sft"  # by the file, whose answers have the ids of its prompts
    write_files(here, count=count if taught else 4, held_out=own)
    prompts = many_prompts(count - dev - (0 if held_out else own), own, dev)
    if taught:
        prompts = load_prompts(config.prompts, seed=config.seed)
    rehearsal = rehearse(config, prompts, labels=labels_of(config, here))
    assert rehearsal.ends is None
    return row_of(command, rehearsal, plan_of(rehearsal, prompts))


SERVED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=crashing:policy",
    "assessment.kl=false",
    "assessment.reference=null",
    "prompts.held_out=null",
    "prompts.chunk=5",
    "smoke.train=false",
    "iterations=1",
    "training.min_pairs=1000000",
)
"""A scripted policy, and an end where training would begin: the rest is as the head has it."""


@pytest.mark.parametrize(
    ("world", "variant", "rows"),
    [
        ("own", "rlrf", {"critiques"}),
        ("own", "dpo", {"preferences"}),
        ("paper", "chatglm-dpo", {"preferences", "prompt_reviews"}),
        ("own", "ultrafeedback-dpo", {"grades"}),
        ("paper", "ultrafeedback-ppo", {"grades"}),
    ],
)
def test_the_judges_of_a_head_can_be_an_endpoint(
    here: Path, named: dict[str, str], world: str, variant: str, rows: set[str]
) -> None:
    """One served model plays every judge; what it was asked is what the plan said."""
    with answering(judge) as url:
        write_pool(here, url, served="m")
        write_files(here, count=12, held_out=2)
        command = head_command(world, variant)
        options = command.options({**named, "URL": url})
        config = replace(options, settings=(*options.settings, *SERVED)).resolved()
        prompts = load_prompts(config.prompts, seed=config.seed)
        plan = plan_of(rehearse(config, prompts), prompts)
        with pytest.raises(NothingToTrainOn):
            run_loop(Job(config=config, lake=here / "lake", name="a"), Silent(), StopSignal())
    run = RunReader(here / "lake" / "runs" / "a")
    for table in rows:
        assert set(run.scan(table).collect()["status"]) == {"scored"}
    planned = {(s.iteration, s.stage): s.units for s in plan.stages}
    for stage in run.journal.stages():
        assert planned[stage.iteration, stage.stage] == stage.planned
    run.close()
