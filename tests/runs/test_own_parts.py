"""The user's recipe, verifier and reward function: those of the guide, and refused ones."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import lpfloop
from lpfloop.loop.cli.app import Exit, app
from lpfloop.policies.engines.scorers import own_reward

FILE = re.compile(r"in `(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh own\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTED = (
    "--set=policy.engine.kind=scripted",
    "--set=policy.engine.script=scripts:wordy_policy",
    "--set=critic.engine.kind=scripted",
    "--set=critic.engine.script=scripts:critic",
    "--set=reward.model=none",
    "--set=assessment.kl=false",
    "--set=prompts.per_iteration=6",
    "--set=prompts.max_test=4",
    "--set=prompts.max_dev=4",
    "--set=prompts.chunk=5",
    "--set=training.min_pairs=100000",
)
PLAIN = """
from lpfloop.parts import *

class Mine(Recipe):
    n: int = semantic(2, "answers")

def mine(it: Iteration, cfg: Mine) -> Checkpoint:
    "Nothing but samples."
    drafts = sample(it, it.prompts(), n=cfg.n)
    rewards = reward(it, drafts)
    judged = JudgedRows(candidates=drafts, rewards=rewards)
    return train(it, pair(it, judged, rule="top_reward", top_k=1))

def check(prompt, text):
    return 1

def score(prompts, texts):
    return [float(len(text)) for text in texts]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a temporary folder off the module path, with a few prompts.

    The check that a reward function can be imported runs in this process.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".")])
    for place in ("loop.daemon.opening", "policies.workers.own_check"):
        monkeypatch.setattr(f"lpfloop.{place}.require_importable", own_reward)
    rows = [{"prompt": f"What is {n} + 1?", "reference": str(n + 1)} for n in range(20)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text(PLAIN)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["run", *SCRIPTED, *arguments])


def own(*arguments, recipe="./mine.py:mine", name="a"):
    named = (f"--recipe={recipe}", f"--run={name}")
    return run(*named, "--config=tiny", "--prompts=prompts.jsonl", *arguments)


def trained_on_nothing(done):
    assert done.exit_code == Exit.NOTHING_TO_TRAIN_ON, done.stderr


def said(done):
    return " ".join(done.stderr.split())


def rows(table: str, name: str = "a", **options) -> pl.DataFrame:
    with lpfloop.open(name) as opened:
        return opened.rows(table, **options).collect()


@pytest.fixture(scope="module")
def guide(tmp_path_factory, root):
    """The guide's files and its command, as printed, with scripted engines."""
    folder = tmp_path_factory.mktemp("guide")
    text = (root / "docs" / "customise.md").read_text()
    for name, code in FILE.findall(text):
        (folder / name).write_text(code)
    (command,) = COMMAND.findall(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # The run compares every pair of a prompt, so that it compares refinements for any keys.
        everything = ("--set", "annotation.comparisons=all")
        trained_on_nothing(run(*shlex.split(command)[2:], *everything))
    return folder


def test_recipe_of_the_guide(guide, monkeypatch):
    monkeypatch.chdir(guide)
    made = rows("candidates", "mine", iteration=1)
    drafts, refined = made.filter(kind="sample"), made.filter(kind="refinement")
    assert drafts.height == 2 * drafts["prompt_id"].n_unique()
    assert refined.height == refined["prompt_id"].n_unique() > 0
    preferences = rows("preferences", "mine", iteration=1)
    compared = {*preferences["first_id"], *preferences["second_id"]}
    assert compared & {*refined["candidate_id"]}
    kept = {path.read_text() for path in Path("lake/runs/mine/own").iterdir()}
    assert kept == {path.read_text() for path in guide.glob("my_*.py")}


def test_verifier_and_reward_of_the_guide(guide, monkeypatch):
    monkeypatch.chdir(guide)
    aspects = rows("critiques", "mine", iteration=1).explode("aspects").unnest("aspects")
    assert -1 in set(aspects["rating"]) <= {-1, 1, None}
    assert aspects.filter(rating=-1)["comment"].str.starts_with("It does not name").all()
    assert "verified" in set(rows("evaluations", "mine")["metric"])
    known = {row["prompt_id"]: row["reference"] for row in rows("prompts", "mine").to_dicts()}
    texts = dict(rows("candidates", "mine", iteration=1).select("candidate_id", "text").iter_rows())
    rewards = rows("rewards", "mine", iteration=1).to_dicts()
    assert rewards
    for row in rewards:
        wanted = len((known[row["prompt_id"]] or "word " * 20).split())
        assert row["score"] == -abs(len(texts[row["candidate_id"]].split()) - wanted)


BROKEN = (
    ("--recipe", "./none.py:mine", PLAIN, "none.py"),
    ("--recipe", "./mine.py:mine", PLAIN + "\ndef (:\n", "SyntaxError"),
    ("--recipe", "./mine.py:mine", "\nimport sys\nsys.exit(3)\n", "line 3: SystemExit"),
    ("--recipe", "./mine.py:mine", "def mine(it): ...\n", "2 arguments"),
    ("--recipe", "./mine.py:mine", "def mine(it, cfg: int): ...\n", "annotate"),
    ("--recipe", "./mine.py:mine", PLAIN.replace('semantic(2, "answers")', "2"), "Mine.n"),
    ("--set", "critic.verifier=./mine.py:mine", "async def mine(a, b): ...\n", "async"),
    ("--set", "reward.model=./mine.py:mine", "def mine(one): ...\n", "2 arguments"),
)


def test_refused_functions(here, subtests):
    for option, place, code, why in BROKEN:
        with subtests.test(place=place, code=code[-40:]):
            (here / "mine.py").write_text(code)
            done = run(option, place)
            assert (done.exit_code, done.stdout) == (Exit.BAD_INPUT, "")
            assert why in said(done)
            assert not (here / "lake").exists()


def test_missing_score_and_whole_prompts(here):
    code = """
def score(prompts, texts):
    return [None, *(len(p.reference) for p in prompts[1:])]
"""
    (here / "mine.py").write_text(PLAIN + code)
    trained_on_nothing(own("--set=reward.model=./mine.py:score"))
    known = {row["prompt_id"]: row for row in rows("prompts").to_dicts()}
    found = rows("rewards")
    assert set(found["status"]) == {"scored", "no_score"}
    for row in found.to_dicts():
        worth = len(known[row["prompt_id"]]["reference"])
        assert row["score"] == (worth if row["status"] == "scored" else None)


def test_run_is_bound_to_its_file(here):
    options = ("--set=reward.model=./mine.py:score", "--set=critic.verifier=./mine.py:check")
    trained_on_nothing(own(*options))
    (copy,) = (here / "lake" / "runs" / "a" / "own").iterdir()
    (here / "mine.py").write_text(PLAIN + "# x\n")
    for done in (own(*options), CliRunner().invoke(app, ["resume", "a"])):
        assert done.exit_code == Exit.BAD_INPUT
        assert copy.name in said(done)
    shutil.copy(copy, here / "mine.py")
    trained_on_nothing(CliRunner().invoke(app, ["resume", "a"]))
