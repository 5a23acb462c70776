"""`lpfloop critic-check`, and what `status` says of the critic: on runs, and on files."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from crashing import Silent, stand_ins
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.critics.verify import Verifier
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.evaluation.critic_answers import AnswerDraw, CheckBy, judged_groups
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.digest import run_digest
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.lake import run_folder, run_names
from lpfloop.stores.records import Prompt

RUN = "a"
SCORER = '''
def score(prompts, texts):
    """Reward by the last digit."""
    return [float(text.rstrip(".")[-1]) for text in texts]
'''
SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "critic.attempts=1",
    "prompts.held_out_share=0.3",
    "prompts.dev_share=0",
    "prompts.per_iteration=8",
    "prompts.chunk=3",
    "recipe.n=6",
    "recipe.m=2",
    "training.min_pairs=1",
    "iterations=2",
    "smoke.prompts=0",
)


def write_questions(folder: Path, count: int = 40) -> Path:
    """Write sums whose answers the scripted policy meets by chance, and texts without a check."""
    path = folder / "questions.jsonl"
    sums = [
        {"question": f"What is {n} minus {n - n % 7}?", "answer": f"#### {n % 7}"}
        for n in range(count)
    ]
    texts = [{"prompt": f"Tell me about the number {n}."} for n in range(count // 4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*sums, *texts]))
    return path


def turned(lake: Path, folder: Path, *overrides: str, name: str = RUN) -> Path:
    """Turn the loop with a stand-in for training, and return the lake."""
    scorer = folder / "scorer.py"
    scorer.write_text(SCORER)
    settings = (
        *SETTINGS,
        f"prompts.source={write_questions(folder)}",
        f"reward.model={scorer}:score",
        *overrides,
    )
    lake.mkdir(exist_ok=True)
    with stand_ins(lake):
        config = load_config("tiny", "rlrf", settings, {})
        run_loop(Job(config=config, lake=lake, name=name), Silent(), StopSignal())
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    return turned(folder / "lake", folder)


@pytest.fixture
def own_lake(lake, tmp_path) -> Path:
    """A copy, to which a test may add."""
    return Path(shutil.copytree(lake, tmp_path / "lake"))


def told(lake: Path, *words: str, code: Exit = Exit.DONE):
    done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
    assert done.exit_code == code, done.output
    return done


def check(lake: Path, *words: str) -> list[dict]:
    """Return the rows of a check, as a pipe gets them."""
    done = told(lake, "critic-check", RUN, *words, "--format", "jsonl")
    return [json.loads(line) for line in done.stdout.splitlines()]


def judged(lake: Path) -> pl.DataFrame:
    """Return the answers to sums, with what was said of them and the truth, by other means."""
    run = open_run(lake, RUN)
    prompts = {p.prompt_id: p for p in frame_rows(Prompt, run.scan("prompts").collect())}
    rewards = dict(run.scan("rewards").select("candidate_id", "score").collect().iter_rows())
    said = {c["candidate_id"]: c for c in run.scan("critiques").collect().to_dicts()}
    rows = [
        {
            "iteration": c["iteration"],
            "kind": c["kind"],
            "right": c["text"][-2] == prompts[c["prompt_id"]].reference[-1],
            "read": said[c["candidate_id"]]["status"] == "scored",
            "passed": all(a["rating"] == 1 for a in said[c["candidate_id"]]["aspects"]),
            "reward": rewards.get(c["candidate_id"]),
        }
        for c in run.scan("candidates").collect().to_dicts()
        if prompts[c["prompt_id"]].task == "math" and c["candidate_id"] in said
    ]
    run.close()
    return pl.DataFrame(rows, infer_schema_length=None)


def by_hand(answers: pl.DataFrame) -> dict:
    read = answers.filter("read")
    right, passed = read["right"], read["passed"]
    return {
        "there": answers.height,
        "n": read.height,
        "unscored": answers.height - read.height,
        "approval": passed.mean(),
        "right": right.mean(),
        "precision": right.filter(passed).mean(),
        "recall": passed.filter(right).mean(),
        "specificity": (~passed).filter(~right).mean(),
    }


def test_the_figures_are_those_of_the_stored_rows(lake):
    answers = judged(lake)
    rows = check(lake, "--by", "iteration,kind", "--limit", "100000")
    assert {row["against"] for row in rows} == {"verifier"}
    groups = answers.group_by("iteration", "kind").len().height
    assert len(rows) == 1 + groups == 1 + 7  # greedy answers of three models, drafts of two
    for row in rows:
        of = answers
        if row["iteration"] is not None:
            of = answers.filter(
                (pl.col("iteration") == row["iteration"]) & (pl.col("kind") == row["kind"])
            )
        expected = by_hand(of)
        assert {name: row[name] for name in expected} == pytest.approx(expected)
        assert row["unlabelled"] == 0
        assert row["reward_n"] == of["reward"].drop_nulls().len()


def test_status_says_the_same_by_task_and_of_the_drafts(lake):
    answers = judged(lake)
    status = json.loads(told(lake, "status", RUN, "--json").stdout)
    for turn in status["iterations"]:
        number = turn["iteration"]
        own = answers.filter(pl.col("iteration") == number)
        scores = {score["benchmark"]: score for score in turn["critic"]}
        assert set(scores) == ({"held-out", "drafts"} if number else {"held-out"})
        assert {score["task"] for score in turn["critic"]} == {"math"}
        assert "critic_agreement" not in turn["metrics"]
        for benchmark, of in (
            ("held-out", own.filter(pl.col("kind") == "greedy")),
            ("drafts", own.filter(pl.col("kind") != "greedy")),
        ):
            if of.height:
                expected, score = by_hand(of), scores[benchmark]
                assert score["n"] == expected["n"]
                assert score["approval"] == pytest.approx(expected["approval"])
                assert score["verified"] == pytest.approx(expected["right"])
                assert score["precision"] == pytest.approx(expected["precision"])
                assert score["recall"] == pytest.approx(expected["recall"])
        assert (scores.get("drafts", {}).get("reward_auroc") is not None) == bool(number)
    assert "drafts 1" not in told(lake, "status", RUN).stdout
    shown = told(lake, "status", RUN, "--wide").stdout
    assert "The critic against the verifier" in shown
    assert "drafts 1" in shown
    assert "M_2, held-out" in shown


def test_a_draft_check_is_done_once_and_belongs_to_the_digest(lake, tmp_path):
    before = run_digest(run_folder(lake, RUN))
    folder = lake.parent  # The places of the run's own files are part of it.
    turned(lake, folder)
    assert run_digest(run_folder(lake, RUN)) == before
    assert run_digest(run_folder(turned(tmp_path / "b", folder), RUN)) == before


def test_by_aspect_what_counts_is_the_aspects_own_rating(lake):
    rows = [row for row in check(lake, "--by", "aspect") if row["aspect"] is not None]
    assert [row["aspect"] for row in rows] == ["Logical Correctness"]
    (whole,) = (row for row in check(lake, "--by", "") if row["group"] == "all")
    assert rows[0]["precision"] == whole["precision"]


def test_a_limit_draws_as_many_of_each_group_by_the_seed(lake):
    rows = check(lake, "--by", "kind", "--limit", "10")
    assert {row["n"] + row["unscored"] for row in rows} == {10}
    assert min(row["there"] for row in rows) > 10
    assert check(lake, "--by", "kind", "--limit", "10") == rows
    assert check(lake, "--by", "kind", "--limit", "10", "--seed", "1") != rows


def test_equal_texts_of_a_prompt_are_verified_once(lake):
    class Counting(Verifier):
        seen = 0

        def verify(self, items):
            self.seen += len(items)
            return super().verify(items)

    run = open_run(lake, RUN)
    with Counting() as verifier:
        (whole, *_) = judged_groups(run, AnswerDraw(by=(CheckBy.TASK,), limit=10**6), verifier)
    texts = run.scan("candidates").select("prompt_id", "text").collect()
    run.close()
    assert verifier.seen < whole.frame.height
    assert verifier.seen <= texts.n_unique()


def test_a_split_takes_the_answers_to_its_prompts(lake):
    (held_out, *_) = check(lake, "--split", "held-out", "--by", "kind")
    assert held_out["there"] == judged(lake).filter(pl.col("kind") == "greedy").height


def test_people_say_which_answers_are_right_and_which_of_two_is_better(own_lake, tmp_path):
    run = open_run(own_lake, RUN)
    drafts = run.scan("candidates").filter(pl.col("kind") == "sample").collect()
    run.close()
    pairs = [group.head(2)["candidate_id"].to_list() for group in drafts.partition_by("prompt_id")]
    rows = [
        {"candidate_id": name, "annotator": who, "ratings": {"Logical Correctness": rating}}
        for number, (name, _) in enumerate(pairs)
        for who, rating in (("ada", 1 if number % 2 else -1), ("bob", 1 if number % 2 else 0))
    ]
    rows += [
        {"first_id": a, "second_id": b, "annotator": "ada", "preferred": "second"} for a, b in pairs
    ]
    rows.append({"candidate_id": pairs[0][1], "annotator": "ada", "ratings": {"Readability": 1}})
    rows.append({"candidate_id": pairs[0][1], "annotator": "bob", "ratings": {"Readability": 0}})
    path = tmp_path / "people.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told(own_lake, "import", str(path), "--run", RUN, "--as", "annotations")
    found = {row["against"]: row for row in check(own_lake, "--by", "")}
    people, preferences = found["people"], found["preferences"]
    assert people["there"] == len(pairs) + 1
    assert people["unlabelled"] == 1  # two people who do not agree
    assert people["n"] + people["unscored"] == len(pairs)
    assert preferences["reward_n"] == len(pairs)
    assert 0 <= preferences["reward_auroc"] <= 1
    assert preferences["precision"] is None


def test_the_critic_is_asked_again_without_the_reference_once(own_lake, asked):
    words = ("critic-check", RUN, "--without-reference", "6")
    first = told(own_lake, *words, "--format", "jsonl")
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    assert [(row["task"], row["reference"]) for row in rows] == [("math", False), ("math", True)]
    assert [row["n"] + row["unscored"] for row in rows] == [6, 6]
    assert len(asked) == 6
    (beside,) = (name for name in run_names(own_lake) if name != RUN)
    assert beside.startswith("critique-a-without-reference-")
    again = told(own_lake, *words, "--format", "jsonl")
    assert (again.stdout, len(asked)) == (first.stdout, 6)
    other = open_run(own_lake, beside)
    critiques, prompts = other.scan("critiques").collect(), other.scan("prompts").collect()
    other.close()
    assert critiques["reference_used"].to_list() == [False] * 6
    assert prompts["prompt_id"].n_unique() == 6
    refused = told(
        own_lake, "critic-check", beside, "--without-reference", "6", code=Exit.BAD_INPUT
    )
    assert "is asked without the reference already" in refused.stderr


def test_distributions_count_each_answer_once(lake):
    rows = check(lake, "--distributions", "--limit", "100000", "--by", "kind")
    figures = {row["group"]: row for row in check(lake, "--limit", "100000", "--by", "kind")}
    for group, row in figures.items():
        own = [bar for bar in rows if bar["group"] == group]
        of = {score: [b for b in own if b["score"] == score] for score in ("rating", "reward")}
        assert sum(bar["count"] for bar in of["rating"]) == row["n"]
        assert sum(bar["count"] for bar in of["reward"]) == row["reward_n"]
        for score, right in ((s, r) for s in of for r in (True, False)):
            shares = [bar["share"] for bar in of[score] if bar["right"] is right]
            assert not shares or sum(shares) == pytest.approx(1)
        assert {bar["low"] for bar in of["rating"]} <= {-1.0, 0.0, 1.0}


def test_critiques_of_outside_answers_are_checked_by_the_name_of_their_run(tmp_path):
    rows = [
        {"id": f"r{n}", "prompt": f"{n} + 1?", "response": f"It is {n + n % 2}.", "task": "math"}
        | {"reference": str(n + 1)}
        for n in range(20)
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    critic = ("critic.engine.kind=scripted", "critic.engine.script=scripts:clear_critic")
    asked = [f"--set={setting}" for setting in critic]
    told(tmp_path, "critique", str(path), "--critic", "tiny", "--run", RUN, *asked)
    (whole, math) = check(tmp_path)
    assert (whole["n"], math["n"], math["right"]) == (20, 20, 0.5)
    assert told(tmp_path, "critic-check", RUN, "--json").stdout.startswith("{")


LABELLED = [
    {"ratings": {"A": 1}, "label": True, "reward": 1, "task": "math", "status": "scored"},
    {"ratings": {"A": 1, "B": 0}, "label": False, "reward": 2, "task": "math"},
    {"ratings": {"A": -1}, "label": -1, "reward": 0, "task": "math"},
    {"ratings": {"A": None}, "label": 1, "status": "echo", "task": "facts"},
    {"ratings": {"A": 1}, "task": "facts"},
]


def labelled(folder: Path, rows: list[dict]) -> str:
    path = folder / "labelled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_file_of_ratings_with_labels_is_checked(tmp_path):
    path = labelled(tmp_path, LABELLED)
    document = json.loads(told(tmp_path, "critic-check", path, "--json").stdout)
    whole, facts, math = document["groups"]
    assert (whole["n"], whole["unscored"], whole["unlabelled"]) == (3, 1, 1)
    assert (whole["precision"]["value"], whole["auroc"]["value"]) == (1.0, 1.0)
    assert whole["reward_auroc"]["value"] == 0.5
    assert (facts["n"], facts["auroc"]) == (0, None)
    assert math["names"] == {"task": "math"}
    shown = told(tmp_path, "critic-check", path, "--format", "table").stdout
    assert "facts, by label: no answer has both a judgement and a label" in shown


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"ratings": {"A": 2}}, "'ratings.A' must be -1, 0, 1 or null"),
        ({"ratings": {"A": 1}, "label": "yes"}, "'label' must be true or false"),
        ({"label": True}, "neither 'ratings' nor 'reward'"),
        ({"reward": "high", "label": True}, "'reward' must be a number"),
        ({"ratings": [1], "label": True}, "'ratings' must be an object"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, said):
    path = labelled(tmp_path, [LABELLED[0], row])
    refused = told(tmp_path, "critic-check", path, code=Exit.BAD_INPUT)
    assert f"labelled.jsonl, line 2: {said}" in refused.stderr


def test_a_file_without_labels_is_refused(tmp_path):
    path = labelled(tmp_path, LABELLED[-1:])
    refused = told(tmp_path, "critic-check", path, code=Exit.BAD_INPUT)
    assert "no row has a 'label'" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "there is no run 'nobody'"),
        ([RUN, "--by", "colour"], "--by colour: there is no such group; there are task, kind"),
        ([RUN, "--with-reference", "3"], "is asked with the reference already"),
        (["--without-reference", "3"], "its name comes first"),
        ([RUN, "--with-reference", "3", "--without-reference", "3"], "exclude each other"),
        ([RUN, "--split", "dev"], "has no answer on dev prompts that was critiqued or rewarded"),
        ([RUN, "--json", "--format", "csv"], "exclude each other"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_one_sentence(lake, words, said):
    before = run_names(lake)
    refused = told(lake, "critic-check", *words, code=Exit.BAD_INPUT)
    assert said in refused.stderr
    assert refused.stdout == ""
    assert run_names(lake) == before


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("critic.kind=verifier", "reward.model=none"), "the critic of run a is the verifier"),
        (("prompts.task=other",), "nothing says which answers of run a are right"),
    ],
)
def test_a_run_of_which_nothing_tells_is_refused(tmp_path, overrides, said):
    lake = turned(tmp_path / "lake", tmp_path, "iterations=0", *overrides)
    refused = told(lake, "critic-check", RUN, code=Exit.BAD_INPUT)
    assert said in refused.stderr
    assert "lpfloop import FILE --run a --as annotations" in refused.stderr
    status = json.loads(told(lake, "status", RUN, "--json").stdout)
    assert [turn["critic"] for turn in status["iterations"]] == [[]]
