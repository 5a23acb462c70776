"""Who plays which role is named before anything is written; who is not asked is not loaded."""

import json
from pathlib import Path

import pytest
from crashing import Silent, Telling, write_prompts
from endpoints import answering
from typer.testing import CliRunner, Result

from lpfloop.configs.load import load_config, stored_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon import doctor
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.roles import NeededRole, needed_roles
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader

TINY_POLICY = str(Path(doctor.__file__).parents[1] / "tiny" / "models" / "policy")
NAMED = ("policy.engine.kind=scripted", "critic.engine.kind=scripted")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def said(told: Result) -> str:
    return " ".join(told.stderr.split())


def roles(config: RunConfig) -> dict[str, NeededRole]:
    return {role.name: role for role in needed_roles(config)}


def test_own_prompts_are_not_judged_by_the_toy(tmp_path: Path) -> None:
    """Nobody named a critic: once the shipped model of a million parameters took its place."""
    prompts, lake = write_prompts(tmp_path), tmp_path / "lake"
    told = invoke("run", "--policy", TINY_POLICY, "--prompts", prompts, "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert "no model is named as critic, which the recipe rlrf asks (critique, evaluate): " in (
        said(told)
    )
    assert "--critic FOLDER or URL" in said(told)
    assert not lake.exists()


@pytest.mark.parametrize("config", [(), ("--config", "tiny")])
def test_own_prompts_are_not_answered_by_the_toy(tmp_path: Path, config: tuple[str, ...]) -> None:
    prompts, lake = write_prompts(tmp_path), tmp_path / "lake"
    told = invoke("run", *config, "--prompts", prompts, "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    for option in ("--policy FOLDER or URL", "--critic FOLDER or URL"):
        assert option in said(told)
    assert not lake.exists()


def test_a_toy_that_is_named_is_taken(tmp_path: Path) -> None:
    prompts = f"prompts.source={write_prompts(tmp_path)}"
    named = load_config("tiny", None, (prompts, "critic.model=tiny"), {})
    assert (named.policy.model, named.critic.model, named.reward.model) == ("none", "tiny", "none")
    # A script that somebody chose plays the role, not the preset's model.
    scripted = load_config("tiny", None, (prompts, *NAMED), {})
    assert {role for role, needed in roles(scripted).items() if needed.named} == {
        "policy",
        "critic",
    }


def test_scripts_of_the_tiny_world_do_not_judge_other_prompts(tmp_path: Path) -> None:
    source = f"prompts.source={write_prompts(tmp_path)}"
    asked = roles(load_config("tiny", "chatglm-ppo", (source, *NAMED), {}))
    unnamed = {name for name, role in asked.items() if not role.named}
    assert unnamed == {"annotation.strong", "annotation.medium", "annotation.weak"}
    assert asked["annotation.strong"].engine == RunConfig().annotation.strong.engine


def test_without_prompts_there_is_no_run(tmp_path: Path) -> None:
    told = invoke("run", "--policy", TINY_POLICY, "--lake", tmp_path / "lake")
    assert told.exit_code == Exit.BAD_INPUT
    assert "no prompts are named: --prompts FILE" in said(told)


def test_nothing_configured_is_the_tiny_world() -> None:
    config = load_config(None, None, (), {})
    named = (config.prompts.source, config.policy.model, config.critic.model, config.reward.model)
    assert named == ("tiny",) * 4


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("rlrf", {"policy", "critic", "reward"}),
        ("reward-only", {"policy", "critic", "reward"}),
        ("critique-model", {"policy", "critic"}),
        ("reflective-sft", {"policy", "critic"}),
        ("task-reward", {"policy", "annotation"}),
        ("sft", {"policy", "annotation"}),
        ("dpo", {"policy", "annotation"}),
        ("ppo", {"policy", "annotation"}),
        ("ultrafeedback-dpo", {"policy", "annotation", "grading"}),
        ("chatglm-ppo", {"policy", "annotation", "prompts.quality"}),
    ],
)
def test_each_recipe_asks_its_own_roles(variant: str, expected: set[str]) -> None:
    """In the tiny world, where every role has a model and answers are compared with a reference."""
    asked = roles(load_config("tiny", variant, (), {}))
    assert {"annotation" if name.startswith("annotation.") else name for name in asked} == expected


CRITIQUED = {
    *("rlrf", "critique-model", "reflective-sft", "kto", "critique-distillation"),
    *("grpo", "rloo", "online-dpo"),
}


@pytest.mark.parametrize("variant", RECIPES)
def test_outside_the_tiny_world_only_what_a_recipe_asks_must_be_named(variant: str) -> None:
    asked = roles(load_config("own", variant, ("prompts.quality.judge=none",), {}))
    critiques = variant in CRITIQUED
    grades = variant.startswith("ultra")
    assert ("critic" in asked) == critiques
    assert ("grading" in asked) == grades
    # Nor does one who judges itself ask anybody else.
    alone = variant in ("reward-only", "sft", "self-rewarding")
    compares = not (critiques or grades or alone)
    assert ("annotation.strong" in asked) == compares
    assert "reward" not in asked


def test_what_is_configured_beside_the_recipe_asks_too(tmp_path: Path) -> None:
    assessed = ("assessment.reference=x.json", "prompts.quality.judge=model", "critic.model=c")
    asked = roles(load_config("own", "sft", (*assessed, "reward.model=r"), {}))
    assert asked["critic"].needed_by == ("evaluate",)
    assert asked["annotation.weak"].needed_by == ("evaluate",)
    assert asked["reward"].needed_by == ("evaluate",)
    # Who judges prompts is the critic, unless somebody else is named.
    assert asked["prompts.quality"].model == "c"


def test_a_recipe_that_needs_no_critic_runs_without_one(tmp_path: Path) -> None:
    """No critique stage, no rating: they are absent, not zero."""
    made = (
        *("policy.engine.kind=scripted", "policy.engine.script=scripts:policy"),
        "smoke.prompts=0",  # These annotators repeat what they are asked.
        *(f"annotation.{role}.engine.kind=scripted" for role in ("strong", "medium", "weak")),
    )
    lake = tmp_path / "lake"
    overrides = (*SMALL_RUN, f"prompts.source={write_prompts(tmp_path)}", *made)
    config = load_config("own", "dpo", overrides, {})
    with pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    run = RunReader(lake / "runs" / "a")
    assert not [stage for stage in run.journal.stages() if "critique" in stage.stage]
    metrics = set(run.scan("evaluations").collect()["metric"])
    assert "mean_length" in metrics
    assert not [name for name in metrics if name.startswith(("rating", "critic"))]
    assert "critic" not in json.loads(run.journal.meta("fingerprint") or "{}")
    run.close()


SMALL_RUN = (
    "smoke.prompts=0",
    "prompts.chunk=4",
    "assessment.kl=false",
    "training.min_pairs=1000",
    "prompts.parts={sft: 0, preference: 6, unlabeled: 0}",
    "iterations=1",
)


def test_a_run_that_once_loaded_a_critic_goes_on_without(tmp_path: Path) -> None:
    """The version before loaded and noted the critic of every run, asked or not."""
    lake = tmp_path / "lake"
    prompts = write_prompts(tmp_path)
    config = load_config(
        "own",
        "sft",
        (*SMALL_RUN, f"prompts.source={prompts}", "policy.engine.kind=scripted", "iterations=0"),
        {},
    )
    run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    folder = lake / "runs" / "a"
    reader = Reader(folder)
    stored = json.loads(reader.meta("fingerprint") or "{}")
    values = json.loads(reader.meta("config") or "{}")
    reader.close()
    assert "critic" not in stored
    journal = Journal(folder)
    old = {**stored, "critic": {"model": "x"}, "reward": "y"}
    journal.set_meta([("fingerprint", json.dumps(old))])
    journal.close()
    again = stored_config(values, (), {})
    run_loop(Job(config=again, lake=lake, name="a"), Silent(), StopSignal())


def test_the_doctor_names_a_role_that_nobody_plays(tmp_path: Path) -> None:
    source = f"prompts.source={write_prompts(tmp_path)}"
    found = doctor.diagnose(load_config("own", None, (source,), {}), tmp_path).findings
    missing = {f.about: f.remedy for f in found if f.status == "missing"}
    assert missing["critic"] == "--critic FOLDER or URL"
    assert missing["policy"] == "--policy FOLDER or URL"
    unasked = doctor.diagnose(load_config("own", "sft", (source,), {}), tmp_path).findings
    assert "critic engine" not in {f.about for f in unasked}
    assert "critic model" not in {f.about for f in unasked}


def test_a_reward_alone_must_be_named(tmp_path: Path) -> None:
    words = ("--variant", "reward-only", "--policy", TINY_POLICY)
    told = invoke("run", *words, "--prompts", write_prompts(tmp_path), "--lake", tmp_path / "lake")
    assert told.exit_code == Exit.BAD_INPUT
    assert "the recipe reward-only goes by a reward" in said(told)
    assert "--set reward.model=FOLDER" in said(told)


OWN_RECIPE = """
from lpfloop.configs.recipes import Recipe
from lpfloop.parts import critique, sample, train

def judged(it, cfg: Recipe):
    drafts = sample(it, it.prompts(), n=2)
    return train(it, critique(it, drafts))
"""


def test_a_recipe_of_ones_own_is_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_RECIPE)
    asked = roles(load_config("own", f"{path}:judged", (), {}))
    assert asked["critic"].needed_by == ("critique", "evaluate")
    assert asked["policy"].needed_by == ("sample", "train", "evaluate")


def test_a_policy_that_cannot_be_trained_is_told_before_it_is_asked(tmp_path: Path) -> None:
    """A URL may be sampled for its pairs; who wanted a better model reads so ahead of the bill."""
    asked = list[str]()

    def answer(messages: list[dict[str, str]]) -> str:
        asked.append(messages[-1]["content"])
        return f"It is {len(asked)}."

    class Reading(Telling):
        def note(self, text: str) -> None:
            super().note(f"{len(asked)} asked: {text}")

    scripted = ("critic.engine.kind=scripted", "smoke.prompts=0", "training.min_pairs=1")
    with answering(answer) as url:
        named = (f"policy.model={url}", f"prompts.source={write_prompts(tmp_path)}", *scripted)
        config = load_config("own", "rlrf", (*named, "recipe.n=1", "recipe.m=0"), {})
        reporter = Reading()
        with pytest.raises(NothingToTrainOn):
            run_loop(Job(config=config, lake=tmp_path, name="a"), reporter, StopSignal())
    assert len(asked) > 0
    assert f"0 asked: the policy is served at {url}" in reporter.notes[0]
    assert "exit code 4" in reporter.notes[0]
