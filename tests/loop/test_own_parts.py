"""The user's own recipe, verifier and reward function: those of the guide, and those refused."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import lpfloop
from lpfloop.configs.schema import ConfigError, RewardConfig
from lpfloop.critics.own_verifier import own_rating, own_verifier
from lpfloop.loop.cli.app import Exit, app
from lpfloop.policies.engines.engine import EngineError, ScoreBatch, ScoreRequest
from lpfloop.policies.engines.own_scorer import OwnScorer
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Message, Prompt

GUIDE = Path(__file__).parents[2] / "docs" / "own-parts.md"
FILE = re.compile(r"in `(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh own\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTED = (
    "--set=policy.engine.kind=scripted",
    "--set=policy.engine.script=scripts:wordy_policy",
    "--set=critic.engine.kind=scripted",
    "--set=critic.engine.script=scripts:critic",
    "--set=reward.model=none",
    "--set=assessment.kl=false",
    "--set=prompts.per_iteration=24",
    "--set=prompts.evaluated=12",
    "--set=prompts.deciding=12",
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
    """Work in a folder of one's own that is not searched for modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".")])
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["run", *SCRIPTED, *arguments])


def own(*arguments: str, name: str = "a"):
    return run("--variant", "./mine.py:mine", "--run", name, *arguments)


def said(told) -> str:
    return " ".join(told.stderr.split())


def rows(table: str, name: str, **options) -> pl.DataFrame:
    with lpfloop.open(name) as opened:
        return getattr(opened, table)(**options).collect()


# the guide


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The guide's files and its command, as printed, with scripted engines."""
    folder = tmp_path_factory.mktemp("guide")
    text = GUIDE.read_text()
    for name, code in FILE.findall(text):
        (folder / name).write_text(code)
    (command,) = COMMAND.findall(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        told = run(*shlex.split(command)[2:])
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    return folder


def test_the_guides_recipe_decides_what_is_made(guide, monkeypatch):
    monkeypatch.chdir(guide)
    made = rows("candidates", "mine", iteration=1)
    drafts = made.filter(kind="sample")
    refined = made.filter(kind="refinement")
    assert drafts.height == 2 * drafts["prompt_id"].n_unique()
    assert refined.height == refined["prompt_id"].n_unique() > 0
    preferences = rows("preferences", "mine", iteration=1)
    compared = {*preferences["first_id"], *preferences["second_id"]}
    assert compared & {*refined["candidate_id"]}


def test_the_guides_verifier_rates_the_candidates(guide, monkeypatch):
    monkeypatch.chdir(guide)
    aspects = rows("critiques", "mine", iteration=1).explode("aspects").unnest("aspects")
    assert set(aspects["rating"]) == {-1, None}
    failed = aspects.filter(rating=-1)
    assert failed["comment"].str.starts_with("It does not name").all()
    assert "verified" in set(rows("evaluations", "mine")["metric"])


def test_the_guides_reward_function_scores_them(guide, monkeypatch):
    monkeypatch.chdir(guide)
    known = {row["prompt_id"]: row["reference"] for row in rows("prompts", "mine").to_dicts()}
    texts = dict(rows("candidates", "mine", iteration=1).select("candidate_id", "text").iter_rows())
    for row in rows("rewards", "mine", iteration=1).to_dicts():
        wanted = len((known[row["prompt_id"]] or "word " * 20).split())
        assert row["score"] == -abs(len(texts[row["candidate_id"]].split()) - wanted)


def test_the_run_keeps_the_guides_files(guide):
    kept = {path.read_text() for path in (guide / "lake" / "runs" / "mine" / "own").iterdir()}
    assert kept == {path.read_text() for path in guide.glob("my_*.py")}


# names and places


def test_a_setting_of_the_users_own_is_set_and_known(here):
    (here / "mine.py").write_text(PLAIN)
    assert own("--set", "recipe.n=3").exit_code == Exit.NOTHING_TO_TRAIN_ON
    assert rows("candidates", "a", iteration=1).height == 3 * 24
    told = own("--set", "recipe.m=3", name="b")
    assert told.exit_code == Exit.BAD_INPUT
    assert "unknown key 'recipe.m'" in said(told)


def test_a_recipe_with_shipped_settings_starts_from_their_preset(here):
    code = PLAIN.replace("cfg: Mine", "cfg: RLRF") + "\nfrom lpfloop.configs.recipes import RLRF"
    (here / "mine.py").write_text("from lpfloop.configs.recipes import RLRF\n" + code)
    assert run("--variant", "./mine.py:mine").exit_code == Exit.NOTHING_TO_TRAIN_ON
    assert rows("candidates", "tiny-mine", iteration=1).height == 6 * 24


def test_a_file_names_its_recipe(here):
    (here / "mine.py").write_text(PLAIN)
    text = "extends: tiny\nrecipe: {name: ./mine.py:mine, n: 4}\n"
    (here / "mine.yaml").write_text(text)
    told = run("--config", "mine.yaml", "--run", "a")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    assert rows("candidates", "a", iteration=1).height == 4 * 24


def test_functions_of_installed_modules_are_named_by_dots(here, monkeypatch):
    package = here / "installed" / "lab" / "parts"
    package.mkdir(parents=True)
    (package / "mine.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(here / "installed")
    told = run(
        "--variant=lab.parts.mine:mine", "--run=a", "--set=critic.verifier=lab.parts.mine:check"
    )
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    (kept,) = (here / "lake" / "runs" / "a" / "own").iterdir()
    assert kept.name.startswith("mine-")


def test_several_variants_may_be_the_users_own(here):
    (here / "mine.py").write_text(PLAIN)
    told = CliRunner().invoke(app, ["run", "--variants", "./mine.py:nothing"])
    assert told.exit_code == Exit.BAD_INPUT
    assert "has no function 'nothing'" in said(told)


# what is refused before anything is made

BROKEN = {
    "no file": ("./none.py:mine", None, "none.py cannot be read: No such file"),
    "no function": ("./mine.py:none", PLAIN, "has no function 'none'"),
    "no module": ("none.such:mine", None, "no such module"),
    "syntax": ("./mine.py:mine", PLAIN + "\ndef (:\n", "SyntaxError"),
    "import": ("./mine.py:mine", "import no_such_module\n", "line 1: ModuleNotFoundError"),
    "exit": ("./mine.py:mine", "\nimport sys\nsys.exit(3)\n", "line 3: SystemExit: 3"),
    "neighbour": ("./mine.py:mine", "import beside\n", "No module named 'beside'"),
    "one argument": ("./mine.py:mine", "def mine(it): ...\n", "it is called with 2 arguments"),
    "not annotated": (
        "./mine.py:mine",
        "def mine(it, cfg): ...\n",
        "annotate its second parameter",
    ),
    "no settings": ("./mine.py:mine", "def mine(it, cfg: int): ...\n", "annotate its second"),
    "not declared": (
        "./mine.py:mine",
        PLAIN.replace('semantic(2, "answers")', "2"),
        "Mine.n must say whether it changes rows",
    ),
    "a base is missing": (
        "./mine.py:mine",
        PLAIN.replace("rewards = ", "annotate(it, drafts); rewards = "),
        "annotate, which needs Annotated among the bases of Mine",
    ),
}


@pytest.mark.parametrize(("place", "code", "why"), BROKEN.values(), ids=BROKEN)
def test_a_recipe_that_cannot_be_used_is_refused(here, place, code, why):
    (here / "beside.py").write_text("")
    if code is not None:
        (here / "mine.py").write_text(code)
    told = run("--variant", place)
    assert (told.exit_code, told.stdout) == (Exit.BAD_INPUT, "")
    assert why in said(told)
    assert len(told.stderr.splitlines()) == 1
    assert not (here / "lake").exists()


@pytest.mark.parametrize("field", ["critic.verifier", "reward.model"])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (None, "none.py"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError"),
        ("def mine(one): ...\n", "it is called with 2 arguments"),
        ("async def mine(one, two): ...\n", "an async function"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused(here, field, code, why):
    (here / "mine.py").write_text(code or "")
    place = "./none.py:mine" if code is None else "./mine.py:mine"
    told = run("--set", f"{field}={place}")
    assert told.exit_code == Exit.BAD_INPUT
    assert f"{field}: " in said(told)
    assert why in said(told)
    assert not (here / "lake").exists()


# what is refused of what they return

ASKED = Prompt(
    prompt_id="p",
    task="general",
    split="train",
    messages=(Message(role="user", content="Hello?"),),
    reference=None,
    checks=(),
    source="here",
)


def function_of(place: Path, body: str) -> str:
    place.write_text(f"def mine(one, two):\n    return {body}\n")
    return f"{place}:mine"


@pytest.mark.parametrize(
    "value", ["True", "2", "0.5", "1.0", "'1'", "(1, 2)", "(1, 'a', 'b')", "(True, '')", "[1]"]
)
def test_what_is_no_rating_never_becomes_one(tmp_path, value):
    verifier = own_verifier(function_of(tmp_path / "mine.py", value))
    assert verifier is not None
    with pytest.raises(ConfigError, match=re.escape(f":mine returned {value} for the prompt p:")):
        own_rating(verifier, ASKED, "Hello.")


@pytest.mark.parametrize(
    ("value", "rating"), [("None", None), ("-1", (-1, "")), ("(0, 'half')", (0, "half"))]
)
def test_ratings_are_taken_with_and_without_a_comment(tmp_path, value, rating):
    verifier = own_verifier(function_of(tmp_path / "mine.py", value))
    assert verifier is not None
    assert own_rating(verifier, ASKED, "Hello.") == rating


def scored(place: str, count: int = 3, batch_size: int = 2) -> tuple[float | None, ...]:
    config = RewardConfig(batch_size=batch_size)
    messages = (*ASKED.messages, Message(role="assistant", content="Hello."))
    requests = (
        ScoreRequest(request_id=str(number), messages=messages, prompt=ASKED)
        for number in range(count)
    )
    scorer = OwnScorer(place, config, scorer_digest(place))
    (result,) = scorer.score([ScoreBatch(key="k", requests=tuple(requests))])
    return result.scores


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[float('nan')] * len(two)", "returned the score nan"),
        ("[float('inf')] * len(two)", "returned the score inf"),
        ("[1.0]", "returned 1 scores for 2 texts"),
        ("[1.0] * 3", "returned 3 scores for 2 texts"),
        ("['1'] * len(two)", "returned the score '1'"),
        ("[True] * len(two)", "returned the score True"),
        ("[[1.0]] * len(two)", "returned the score [1.0]"),
        ("1.0", "TypeError: 'float' object is not iterable"),
        ("None", "TypeError: 'NoneType' object is not iterable"),
        ("(1 / 0 for _ in two)", "line 2: ZeroDivisionError"),
    ],
)
def test_what_is_no_score_never_becomes_one(tmp_path, value, why):
    with pytest.raises(EngineError, match=re.escape(why)):
        scored(function_of(tmp_path / "mine.py", value))


@pytest.mark.parametrize(
    "value", ["[1, 2.5][: len(two)]", "__import__('numpy').array([1, 2.5])[: len(two)]"]
)
def test_scores_are_asked_for_in_batches(tmp_path, value):
    assert scored(function_of(tmp_path / "mine.py", value)) == (1.0, 2.5, 1.0)


def test_a_reward_function_whose_file_has_changed_is_refused(tmp_path):
    place = function_of(tmp_path / "mine.py", "[1.0] * len(two)")
    began = scorer_digest(place)
    function_of(tmp_path / "mine.py", "[2.0] * len(two)")
    with pytest.raises(EngineError, match="has changed since the run began"):
        OwnScorer(place, RewardConfig(), began)


def test_a_bad_rating_or_score_ends_the_run_with_a_sentence(here):
    code = "\ndef check(prompt, text): return True\ndef score(prompts, texts): return [1.0]\n"
    (here / "mine.py").write_text(PLAIN + code)
    told = run("--run=a", "--set=critic.verifier=./mine.py:check", "--set=critic.kind=verifier")
    assert told.exit_code == Exit.BAD_INPUT
    assert "critic.verifier: ./mine.py:check returned True" in said(told)
    assert rows("critiques", "a").is_empty()
    told = own("--set=reward.model=./mine.py:score", name="b")
    assert told.exit_code == Exit.FAULT
    assert "error: reward.model: ./mine.py:score returned 1 scores for" in said(told)
    assert rows("rewards", "b").is_empty()


def test_a_comment_may_be_left_out_and_a_score_may_be_missing(here):
    code = "\ndef score(prompts, texts):\n    return [None, *map(len, texts[1:])]\n"
    (here / "mine.py").write_text(PLAIN + code)
    told = own("--set=reward.model=./mine.py:score", "--set=critic.verifier=./mine.py:check")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    found = rows("rewards", "a")
    assert set(found["status"]) == {"scored", "no_score"}
    assert (
        found.filter(status="no_score")["score"].null_count()
        == found.filter(status="no_score").height
    )
    verified = rows("evaluations", "a").filter(metric="verified", benchmark="held-out")
    assert verified["value"].to_list() == [1.0]


# the file belongs to the run


@pytest.fixture
def begun(here):
    """A run of a recipe, a verifier and a reward function in one file."""
    (here / "mine.py").write_text(PLAIN)
    options = ("--set=reward.model=./mine.py:score", "--set=critic.verifier=./mine.py:check")
    assert own(*options).exit_code == Exit.NOTHING_TO_TRAIN_ON
    return options


def test_a_run_goes_on_with_the_file_that_it_began_with_alone(here, begun):
    (copy,) = (here / "lake" / "runs" / "a" / "own").iterdir()
    for change in (lambda path: path.write_text(PLAIN + "# x\n"), Path.unlink):
        change(here / "mine.py")
        for told in (own(*begun), CliRunner().invoke(app, ["resume", "a"])):
            assert told.exit_code == Exit.BAD_INPUT
            if "cannot be read" not in told.stderr:
                assert f"put its copy back, lake/runs/a/own/{copy.name}" in said(told)
        assert CliRunner().invoke(app, ["status", "a"]).exit_code == Exit.DONE
    shutil.copy(copy, here / "mine.py")
    assert CliRunner().invoke(app, ["resume", "a"]).exit_code == Exit.NOTHING_TO_TRAIN_ON


def test_a_changed_file_makes_anew_what_depends_on_it_and_nothing_else(here, begun):
    (here / "mine.py").write_text(PLAIN.replace("float(len(text))", "-float(len(text))"))
    assert own("--fork", "a", *begun, name="b").exit_code == Exit.NOTHING_TO_TRAIN_ON
    before, after = rows("candidates", "a"), rows("candidates", "b")
    assert before.equals(after)
    assert set(rows("rewards", "b")["score"]) == {-score for score in rows("rewards", "a")["score"]}


def test_a_reward_function_is_shown_whole_prompts(here):
    code = """
def score(prompts, texts):
    return [
        len(p.reference or "") + 1000 * len(p.checks) + 10000 * len(p.messages[0].content)
        for p in prompts
    ]
"""
    (here / "mine.py").write_text(PLAIN + code)
    told = own("--set=reward.model=./mine.py:score")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    known = {row["prompt_id"]: row for row in rows("prompts", "a").to_dicts()}
    for row in rows("rewards", "a").to_dicts():
        p = known[row["prompt_id"]]
        length = len(p["messages"][0]["content"])
        assert row["score"] == len(p["reference"] or "") + 1000 * len(p["checks"]) + 10000 * length
