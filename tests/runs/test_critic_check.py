"""`lpfloop critic-check`, and the critic's figures in `status`: on runs, and on imported files."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner
from world import Silent, stand_ins

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.frames import frame_rows
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
    "recipe.n=4",
    "recipe.m=2",
    "training.min_pairs=1",
    "iterations=2",
    "smoke.prompts=0",
)


def write_questions(folder: Path, count: int = 30) -> Path:
    """Write sums that the scripted policy solves by chance, and texts without a check."""
    path = folder / "questions.jsonl"
    sums = [
        {"question": f"What is {n} minus {n - n % 7}?", "answer": f"#### {n % 7}"}
        for n in range(count)
    ]
    texts = [{"prompt": f"Tell me about the number {n}."} for n in range(count // 4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*sums, *texts]))
    return path


def turned(lake: Path, folder: Path) -> Path:
    """Run the loop with a fake training, and return the lake."""
    scorer = folder / "scorer.py"
    scorer.write_text(SCORER)
    settings = (
        *SETTINGS,
        f"prompts.source={write_questions(folder)}",
        f"reward.model={scorer}:score",
    )
    lake.mkdir(exist_ok=True)
    with stand_ins(lake):
        config = load_config("tiny", "rlrf", settings, {})
        run_loop(Job(config=config, lake=lake, name=RUN), Silent(), StopSignal())
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    return turned(folder / "lake", folder)


def told(lake: Path, *words: str, code: Exit = Exit.DONE):
    done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
    assert done.exit_code == code, done.output
    return done


def check(lake: Path, *words: str) -> list[dict]:
    """Return the rows of a check, in a pipe's format."""
    done = told(lake, "critic-check", RUN, *words, "--format", "jsonl")
    return [json.loads(line) for line in done.stdout.splitlines()]


def judged(lake: Path) -> pl.DataFrame:
    """Return the answers to sums with critiques and true results, computed independently."""
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


def test_figures_of_the_stored_rows(lake):
    answers = judged(lake)
    rows = check(lake, "--by", "iteration,kind", "--sample", "100000")
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
        if row["reward_auroc"] is not None:
            assert row["reward_auroc_n"] == of["reward"].drop_nulls().len()


def test_imported_ratings_and_labels(tmp_path):
    rows = [
        {"ratings": {"A": 1}, "label": True, "reward": 1, "task": "general"},
        {"ratings": {"A": 1, "B": 0}, "label": False, "reward": 2, "task": "general"},
        {"ratings": {"A": -1}, "label": -1, "reward": 0, "task": "general"},
        {"ratings": {"A": 1}, "task": "advice"},
    ]
    path = tmp_path / "known.jsonl"
    named = [{"prompt": f"p{n}", "response": f"a{n}", **row} for n, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in named))
    told(tmp_path, "import", str(path), "--run", "known")
    whole, general = json.loads(told(tmp_path, "critic-check", "known", "--json").stdout)
    assert (whole["against"], whole["n"]) == ("label", 3)
    assert (whole["precision"], whole["auroc"], whole["reward_auroc"]) == (1.0, 1.0, 0.5)
    assert general["task"] == "general"
