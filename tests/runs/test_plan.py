"""A run does what its plan predicts; a dry run writes nothing."""

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from world import Silent, Telling, small_config, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.recipe_names import recipe_class
from lpfloop.configs.recipes import Rewarded
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.iterations import turn
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.daemon.planning import (
    announce_plan,
    kept_plan,
    opening_lines,
    plan_lines,
    plan_run,
)
from lpfloop.loop.daemon.progress import Progress, progress
from lpfloop.loop.daemon.stand_ins import Notes, RehearsedStage, StandInScorer, StandInTrainer
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.records import Prompt

TRAINED = ("train", "train_reward", "ppo", "quark", "grpo", "rloo", "online_dpo")
SPLIT = ("annotate", "compare")
"""Annotators share these; ids that a dry run lacks decide who gets which pair."""
QUICK = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:clear_critic'}",
    "training.min_pairs=1",
    "training.ppo.max_steps=3",
    "training.quark.max_steps=3",
    "assessment.probes=null",
    "training.next_token.weight=0",
    "prompts.chunk=5",
    "iterations=1",
)


def config_of(name: str, *more: str) -> RunConfig:
    limits = ("prompts.per_iteration=8", "prompts.max_test=4", "prompts.max_dev=4")
    rewarded = ("reward.model=none",) if name == "rlrf" else ()
    return load_config("tiny", name, (*QUICK, *limits, *rewarded, *more), {})


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """A share of the tiny world's prompts, of each task and of all splits."""
    return tiny_prompts()[::40]


def done(config: RunConfig, prompts: list[Prompt], lake: Path) -> list[Progress]:
    """Return the progress of a run with scripted engines, and fake trainer and reward model."""
    stop = StopSignal()
    notes = Notes(costs={}, policy="", stages=[RehearsedStage(iteration=0, stage="")])
    with open_job(Job(config=config, lake=lake, name="a"), prompts, Silent(), stop) as run:
        run.trainer = StandInTrainer(notes=notes, policy=run.models.initial)
        run.models.scorer = lambda _=None: StandInScorer(notes=notes)
        turn(run, prompts)
        return progress(run.store.journal, running=False)


@pytest.mark.parametrize("name", RECIPES)
def test_run_as_planned(tmp_path: Path, prompts: list[Prompt], name: str) -> None:
    """A run has the stages, units and requests of its plan."""
    require_as_planned(tmp_path, prompts, config_of(name))


@pytest.mark.parametrize("name", ["rlrf", "reward-only"])
def test_schedule_as_planned(tmp_path: Path, prompts: list[Prompt], name: str) -> None:
    config = config_of(name, "recipe.train=[rs, dpo]", "iterations=3")
    require_as_planned(tmp_path, prompts, config)


def require_as_planned(tmp_path: Path, prompts: list[Prompt], config: RunConfig) -> None:
    plan = plan_run(config, prompts, tmp_path / "lake")
    made = done(config, prompts, tmp_path)
    assert plan.ends is None
    units = {(stage.iteration, stage.stage): stage.planned for stage in made}
    assert len(plan.stages) == len(units)
    assert {(stage.iteration, stage.stage): stage.units for stage in plan.stages} == units

    def asked(stages, calls_of) -> Counter[tuple[int, str]]:
        found = Counter[tuple[int, str]]()
        for stage in stages:
            if stage.stage.partition(":")[0] not in (*TRAINED, *SPLIT):
                found[stage.iteration, stage.stage] += calls_of(stage)
        return +found

    first = asked(made, lambda stage: stage.calls - stage.retries)
    assert asked(plan.stages, lambda stage: stage.calls) == first


@pytest.mark.parametrize("name", [n for n in RECIPES if issubclass(recipe_class(n), Rewarded)])
def test_configured_reward_model(tmp_path: Path, prompts: list[Prompt], name: str) -> None:
    """A recipe that trains a reward model takes the configured one in its place."""
    score = "reward.model=lpfloop.loop.smol.verified:score"
    stages = plan_run(config_of(name, score), prompts, tmp_path).stages
    assert not {"train_reward", "annotate", "grade"} & {s.stage.split(":")[0] for s in stages}
    assert any(stage.calls for stage in stages if stage.iteration)


def test_answers_of_initial_are_planned_once(tmp_path: Path, prompts: list[Prompt]) -> None:
    named = (f"annotation.{role}.model=tiny" for role in ("strong", "medium", "weak"))
    config = config_of("reward-only", "assessment.reference=initial", "iterations=2", *named)
    plan = plan_run(config, prompts, tmp_path)
    places = [(stage.iteration, stage.stage) for stage in plan.stages]
    assert len(places) == len(set(places))
    assert any(stage.startswith("compare:") for _, stage in places)


def test_prompts_that_a_rule_refuses(tmp_path: Path, prompts: list[Prompt]) -> None:
    plan = plan_run(config_of("rlrf", "prompts.rules.max_chars=60"), prompts, tmp_path)
    left_out = json.loads(json.dumps(plan.as_json()))["left_out"]
    assert left_out == plan.left_out
    assert sum(left_out.values()) > 0


def test_each_iteration_of_a_schedule(tmp_path: Path, prompts: list[Prompt]) -> None:
    for train, supervised in [
        ("dpo", set[int]()),
        ("[rs, dpo]", {1}),
        ("[rs, rs, rs, dpo]", {1, 2, 3}),
    ]:
        config = config_of("reward-only", f"recipe.train={train}", "iterations=4")
        plan = plan_run(config, prompts, tmp_path)
        made = {"pair": set[int](), "demonstrate": set[int]()}
        for stage in plan.stages:
            made.get(stage.stage, set[int]()).add(stage.iteration)
        assert made["demonstrate"] == supervised
        assert made["pair"] == {1, 2, 3, 4} - supervised


OWN_RECIPE = """
from lpfloop.configs.recipes import Recipe
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.pair import demonstrate
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.train import train


def wider(it: Iteration, cfg: Recipe):
    answers = sample(it, it.prompts(), n=4 if it.number == 3 else 2)
    judged = JudgedRows(candidates=answers, critiques=critique(it, answers))
    return train(it, demonstrate(it, judged, rule="success", top_k=1))
"""


def test_own_recipe_may_differ_later(tmp_path: Path, prompts: list[Prompt]) -> None:
    place = tmp_path / "recipe.py"
    place.write_text(OWN_RECIPE)
    chosen = (*QUICK, "iterations=5", "prompts.per_iteration=8", f"recipe.name={place}:wider")
    plan = plan_run(load_config("tiny", None, chosen, {}), prompts, tmp_path)
    calls = [s.calls for s in plan.stages if s.stage == "sample"]
    assert calls == [16, 16, 32, 16, 16]


@pytest.mark.parametrize("name", ["rlrf", pytest.param("reflective-sft", id="reflective")])
def test_failures_are_planned_as_all(tmp_path: Path, prompts: list[Prompt], name: str) -> None:
    plans = [
        plan_run(config_of(name, f"recipe.refine={which}"), prompts, tmp_path)
        for which in ("all", "failures")
    ]
    every, failures = ({(s.stage, s.units, s.calls) for s in plan.stages} for plan in plans)
    assert every == failures


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def own(folder: Path, *more: object) -> list[object]:
    """Options of a run with the user's prompts and scripted models."""
    scripts = ("policy.engine.script=world:policy", "critic.engine.script=world:critic")
    kinds = ("policy.engine.kind=scripted", "critic.engine.kind=scripted")
    settings = [f"--set={text}" for text in (*scripts, *kinds, "prompts.held_out_share=0.25")]
    lake = ("--lake", folder / "lake")
    return ["--prompts", write_prompts(folder), *lake, *settings, *more]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    told = invoke("run", *own(tmp_path, "--dry-run"))
    assert told.exit_code == 0, told.stderr
    assert not (tmp_path / "lake").exists()
    assert "critique:sample" in told.stdout
    document = json.loads(invoke("run", *own(tmp_path, "--dry-run", "--json")).stdout)
    assert document["totals"]["calls"] == sum(stage["calls"] for stage in document["stages"])
    assert document["prompts"]["train"] == {"general": 4}
    assert document["prompts"]["dev"] == document["prompts"]["held-out"] == {"general": 2}


def begun(config: RunConfig, lake: Path) -> list[str]:
    """Return the notes of a run that starts or resumes, without an iteration to run."""
    reporter = Telling()
    job = Job(config=config.model_copy(update={"iterations": 0}), lake=lake, name="a")
    run_loop(job, reporter, StopSignal(), on_begin=announce_plan)
    return reporter.notes


def test_run_keeps_its_plan(tmp_path: Path) -> None:
    config = small_config(write_prompts(tmp_path))
    first, second = begun(config, tmp_path), begun(config, tmp_path)
    assert len(first) > len(second) == 1
    kept = kept_plan(Reader(tmp_path / "runs" / "a"))
    assert kept is not None
    assert opening_lines(kept, "a")[0] == first[0]
    assert json.loads(invoke("status", "a", "--lake", tmp_path, "--json").stdout)["plan"]["head"]


def test_verifier_shown_in_plan(tmp_path: Path, subtests) -> None:
    own = tmp_path / "own.py"
    own.write_text("def rate(prompt, answer):\n    return 1.0\n")
    asked = [
        (("--critic", "verifier"), "verifier  shipped", False),
        (("--critic", f"{own}:rate"), "own.py:rate", False),
        (("--set", "critic.kind=verifier"), "verifier  shipped", False),
        (("--set", "critic.kind=both"), "verifier  shipped", True),
        ((), None, True),
    ]
    for words, named, by_model in asked:
        with subtests.test(words):
            small = ("--iterations", "1", "--set", "prompts.per_iteration=8")
            place = ("--config", "tiny", "--lake", tmp_path / "lake")
            told = CliRunner().invoke(app, ["run", "--dry-run", *small, *map(str, place), *words])
            assert told.exit_code == 0, told.stderr
            assert (named or "plan:") in told.stdout
            assert ("  verifier " in told.stdout) is (named is not None)
            assert ("  critic " in told.stdout) is by_model


def test_too_few_rows_to_train(prompts, tmp_path):
    plans = [
        plan_run(config_of("rlrf", f"training.min_pairs={least}"), prompts, tmp_path)
        for least in (1, 1000)
    ]
    warned = [[line for line in plan_lines(p) if "training.min_pairs=1000" in line] for p in plans]
    assert [len(lines) for lines in warned] == [0, 1]
    assert any("training.min_pairs=1000" in line for line in opening_lines(plans[1], "a"))
