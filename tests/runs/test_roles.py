"""lpfloop lists the model of each role before it writes, and loads only the models it uses."""

import json
from pathlib import Path

import pytest
from http_server import answering
from typer.testing import CliRunner, Result
from world import Silent, Telling, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.stores.lake import RunReader


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def said(told: Result) -> str:
    return " ".join(told.stderr.split())


def test_unnamed_roles_are_refused(tmp_path: Path, tiny_policy: Path, subtests) -> None:
    """The shipped million-parameter models get no role for the user's prompts."""
    prompts, lake = ("--prompts", write_prompts(tmp_path)), tmp_path / "lake"
    policy = ("--policy", tiny_policy)
    for words, options in (
        ((*policy, *prompts), ("--critic FOLDER or URL",)),
        (prompts, ("--policy FOLDER or URL", "--critic FOLDER or URL")),
        (policy, ("--prompts FILE",)),
        (("--recipe", "reward-only", *policy, *prompts), ("reward.model=FOLDER",)),
    ):
        with subtests.test(words=words):
            told = invoke("run", *words, "--lake", lake)
            assert told.exit_code == Exit.BAD_INPUT
            assert all(option in said(told) for option in options)
            assert not lake.exists()


def test_run_without_a_critic(tmp_path: Path) -> None:
    """No critique stage, no rating: absent, not zero."""
    made = (
        *("policy.engine.kind=scripted", "policy.engine.script=scripts:policy"),
        "smoke.prompts=0",  # These annotators repeat their prompts.
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


def test_untrainable_policy_is_noted_first(tmp_path: Path) -> None:
    """lpfloop notes, before any paid request, that it cannot train a policy at a URL."""
    asked = list[str]()

    def answer(messages: list[dict[str, str]]) -> str:
        asked.append(messages[-1]["content"])
        return f"It is {len(asked)}."

    class Reading(Telling):
        def note(self, text: str, event: str = "note", **_: object) -> None:
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


OWN_RECIPE = """
from lpfloop.configs.recipes import Recipe
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.parts import critique, pair, sample, train

def judged(it, cfg: Recipe):
    drafts = sample(it, it.prompts(), n=2)
    rated = JudgedRows(candidates=drafts, critiques=critique(it, drafts))
    return train(it, pair(it, rated, rule="rating_extremes", top_k=1))
"""


def test_own_recipe_asks_whom_it_calls(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_RECIPE)
    prompts = write_prompts(tmp_path)
    made = (f"prompts.source={prompts}", "policy.model=tiny", "critic.model=tiny")
    config = load_config("own", f"{path}:judged", made, {})
    seen = rehearse(config, load_prompts(config.prompts, seed=0)).seen
    asked = {role.name: role.needed_by for role in needed_roles(config, seen)}
    assert asked["critic"] == ("critique", "evaluate")
    assert asked["policy"] == ("sample", "train", "evaluate")
    assert seen.trainings == ("dpo",)
