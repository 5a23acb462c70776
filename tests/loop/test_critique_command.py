"""`lpfloop critique`: a critic rates answers from a file, which are stored like a run's own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from paid import CONCURRENCY, IN_FLIGHT, KINDS, PaidJudge, paid_judge, tell
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder, run_names

SCRIPTED = ("critic.engine.kind=scripted", "critic.engine.script=scripts:critic")
LIMIT_S = 300
ROWS = [
    {"id": "right", "prompt": "2 + 2?", "response": "It is 4.", "reference": "4", "task": "math"},
    {"id": 7, "question": "2 + 3?", "answer": "So #### 5", "output": "It is 4."},
    {"prompt": "Say hello.", "response": ""},
    {"messages": [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Ho!"}]},
    {"id": "again", "prompt": "2 + 2?", "response": "It is 4.", "reference": "4", "task": "math"},
]
IDS = ["right", "7", "3", "4", "again"]


def write(folder: Path, rows: list[dict], name: str = "answers.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def many(count: int = 40) -> list[dict]:
    return [
        {"id": f"r{n}", "prompt": f"What is {n} + 1?", "response": f"{n + 1}"} for n in range(count)
    ]


def critique(lake: Path, path: Path, critic: str = "verifier", *options: str, settings=()):
    words = ["critique", str(path), "--critic", critic, "--lake", str(lake), *options]
    return CliRunner().invoke(app, [*words, *(f"--set={setting}" for setting in settings)])


def objects(done) -> list[dict]:
    assert done.exit_code == Exit.DONE, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_verifier_rates_the_rows_of_a_file_in_their_order(tmp_path):
    rows = objects(critique(tmp_path, write(tmp_path, ROWS), "verifier", "--json"))
    assert [row["id"] for row in rows] == IDS
    assert [row["ratings"] for row in rows] == [
        {"Logical Correctness": 1},
        {"Logical Correctness": -1},
        {"Comprehension": None},
        {"Comprehension": None},
        {"Logical Correctness": 1},
    ]
    assert [row["status"] for row in rows] == ["scored", "scored", "no_check", "no_check", "scored"]
    assert rows[0]["comments"] == {"Logical Correctness": "The final answer is right."}
    assert {row["critic"] for row in rows} == {"verifier"}
    assert len({row["candidate_id"] for row in rows}) == len(ROWS)


def test_people_get_two_lines_a_row_and_the_counts_beside_the_data(tmp_path):
    done = critique(tmp_path, write(tmp_path, ROWS))
    assert done.exit_code == Exit.DONE
    assert done.stdout.startswith(
        "right: scored, Logical Correctness 1\n    The final answer is right.\n7: scored, "
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "3 of 5 scored; unscored: 2 no_check" in done.stderr
    assert "scored;" not in done.stdout


def test_the_rows_are_in_the_lake_as_any_others(tmp_path):
    lake = tmp_path / "lake"
    critique(lake, write(tmp_path, ROWS))
    (name,) = run_names(lake)

    def told(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
        assert done.exit_code == Exit.DONE, done.output
        return done.stdout

    assert "unaltered" in told("lake", "verify", name, "--deep")
    assert "The final answer is wrong." in told("show", "7")
    assert len(told("critiques", name, "--rating", "-1").splitlines()) == 1
    query = "select avg(rating) as mean from ratings where aspect = 'Logical Correctness'"
    assert "0.333" in told("sql", query)
    told("export", name, "critiques", "--as", "jsonl", "--output", str(tmp_path / "out"))
    assert len((tmp_path / "out" / "train.jsonl").read_text().splitlines()) == len(ROWS)


def test_parquet_and_json_lists_are_read_too(tmp_path):
    rows = many(3)
    pl.DataFrame(rows).write_parquet(tmp_path / "answers.parquet")
    (tmp_path / "answers.json").write_text(json.dumps(rows))
    for name in ("answers.parquet", "answers.json"):
        found = objects(critique(tmp_path, tmp_path / name, "verifier", "--json"))
        assert [row["id"] for row in found] == ["r0", "r1", "r2"]


def test_a_function_of_ones_own_is_a_critic(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("def short(prompt, text):\n    return 1 if len(text) < 3 else -1, 'by length'\n")
    rows = [{"prompt": "Say a.", "response": "a"}, {"prompt": "Say b.", "response": "bbbb"}]
    path = write(tmp_path, rows)
    found = objects(critique(tmp_path, path, f"{own}:short", "--json"))
    assert [list(row["ratings"].values()) for row in found] == [[1], [-1]]
    own.write_text(own.read_text().replace("1 if", "0 if"))
    again = objects(critique(tmp_path, path, f"{own}:short", "--json"))
    assert [list(row["ratings"].values()) for row in again] == [[0], [-1]]
    assert len(run_names(tmp_path)) == 2


def test_the_same_again_asks_nothing_and_another_critic_asks_anew(tmp_path, asked):
    path = write(tmp_path, many())
    settings = (*SCRIPTED, "critic.attempts=1")
    first = critique(tmp_path, path, "tiny", "--json", settings=settings)
    rows, paid = objects(first), len(asked)
    assert paid >= len(rows)
    assert any(row["status"] != "scored" for row in rows)
    second = critique(tmp_path, path, "tiny", "--json", settings=settings)
    assert second.stdout == first.stdout
    assert len(asked) == paid
    changed = critique(tmp_path, path, "tiny", settings=(*SCRIPTED, "critic.attempts=4"))
    assert changed.exit_code == Exit.DONE
    assert len(asked) >= 2 * len(rows)
    assert len(run_names(tmp_path)) == 2


def test_a_budget_stops_it_and_resume_goes_on(tmp_path, asked):
    path = write(tmp_path, many())
    settings = (*SCRIPTED, "prompts.chunk=5")
    limited = (*settings, "budget.judge_calls=20")
    done = critique(tmp_path, path, "tiny", "--run", "a", settings=limited)
    assert done.exit_code == Exit.STOPPED
    assert "lpfloop resume RUN --max-judge-calls" in done.stderr
    assert (done.stdout, len(asked) <= 20) == ("", True)
    words = ["resume", "a", "--max-judge-calls", "1000", "--lake", str(tmp_path)]
    more = CliRunner().invoke(app, words)
    assert more.exit_code == Exit.DONE, more.output
    straight = critique(tmp_path, path, "tiny", "--run", "b", settings=settings)
    assert more.stdout == straight.stdout
    assert len({run_digest(run_folder(tmp_path, name)) for name in "ab"}) == 1


def test_what_could_not_be_read_can_be_asked_again(tmp_path, asked):
    path = write(tmp_path, many())
    settings = (SCRIPTED[0], "critic.engine.script=scripts:stammering_critic")
    once = critique(tmp_path, path, "tiny", "--run", "a", settings=(*settings, "critic.attempts=1"))
    assert "unscored: " in once.stderr
    before = len(asked)
    words = ["resume", "a", "--retry-unscored", "--lake", str(tmp_path)]
    again = CliRunner().invoke(app, words)
    assert again.exit_code == Exit.DONE, again.output
    assert "critiques of iteration 0, critique:import" in again.stderr
    assert "40 of 40 scored" in again.stderr
    assert 0 < len(asked) - before < len(many())
    twice = (*settings, "critic.attempts=2")
    assert critique(tmp_path, path, "tiny", "--run", "b", settings=twice).stdout == again.stdout
    assert len({run_digest(run_folder(tmp_path, name)) for name in "ab"}) == 1


WRONG = [
    ([{"id": "a", "prompt": "x"}], "line 1: no answer; name its field one of response, "),
    ([{"id": "a", "response": "x"}], "line 1: no prompt; name its field one of messages, "),
    ([*many(2), {"id": "a", "prompt": 3, "response": "x"}], "line 3: 'prompt' must be a text"),
    ([*many(2), many(1)[0]], "line 3: the id 'r0' is that of line 1, too"),
    (
        [{"prompt": "x", "response": "y"}, {"id": 1, "prompt": "x", "response": "y"}],
        "line 2: the id",
    ),
    ([{"prompt": "x", "response": "y", "checks": [{"kind": "no"}]}], "line 1: unknown check 'no'"),
    ([], "holds no rows"),
]


@pytest.mark.parametrize(("rows", "said"), WRONG)
def test_a_row_that_cannot_be_used_is_named_and_nothing_is_written(tmp_path, rows, said):
    lake = tmp_path / "lake"
    refused(critique(lake, write(tmp_path, rows)), f"answers.jsonl{', ' if rows else ': '}{said}")
    assert not lake.exists()


@pytest.mark.parametrize(
    ("critic", "said"),
    [
        ("gpt-4", "no such model folder"),
        ("./nowhere.py:f", "cannot be read"),
        ("http://127.0.0.1:9/v1", "cannot be reached"),
    ],
)
def test_a_critic_that_is_not_there_is_refused(tmp_path, critic, said):
    lake = tmp_path / "lake"
    refused(critique(lake, write(tmp_path, many(1)), critic), said)
    assert not lake.exists()


def refused(done, said: str) -> None:
    assert done.exit_code == Exit.BAD_INPUT
    assert said in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors == done.stderr.splitlines()[-1:]


def test_a_run_of_something_else_is_left_alone(tmp_path):
    path = write(tmp_path, many(2))
    assert critique(tmp_path, path, "verifier", "--run", "a").exit_code == Exit.DONE
    other = write(tmp_path, many(3), "other.jsonl")
    refused(critique(tmp_path, other, "verifier", "--run", "a"), "the critiques of other rows")
    loop = CliRunner().invoke(app, ["run", "--run", "a", "--lake", str(tmp_path)])
    assert loop.exit_code == Exit.BAD_INPUT
    assert "has no loop to continue" in loop.stderr


def start(lake: Path, path: Path, judge: PaidJudge) -> subprocess.Popen[str]:
    engine = (f"critic.engine.concurrency={CONCURRENCY}", "critic.engine.model_name=m")
    bare = ("critic.templates=tiny", "critic.aspects=tiny", "guard=false")
    words = ["critique", str(path), "--critic", judge.url, "--run", "a", "--json"]
    settings = [f"--set={setting}" for setting in (*engine, *bare)]
    return subprocess.Popen(
        [sys.executable, "-m", "lpfloop", *words, *settings],
        env={**os.environ, "LPFLOOP_LAKE": str(lake)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.crash
def test_a_killed_one_goes_on_over_http_and_pays_only_for_what_was_in_flight(tmp_path):
    rows = many(300)
    path = write(tmp_path, rows)
    with paid_judge(KINDS["critiques"][0]) as judge:
        process = start(tmp_path / "lake", path, judge)
        run = run_folder(tmp_path / "lake", "a")
        judge.end_client_at(150, lambda: tell(run, signal.SIGKILL, judge))
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGKILL
        stdout, stderr = start(tmp_path / "lake", path, judge).communicate(timeout=LIMIT_S)
        found = [json.loads(line) for line in stdout.splitlines()]
        assert [row["id"] for row in found] == [row["id"] for row in rows], stderr
        retried = sum(row["attempts"] - 1 for row in found)
        assert len(rows) + retried <= judge.served <= len(rows) + retried + IN_FLIGHT
        served, digest = judge.served, run_digest(run)
        again, _ = start(tmp_path / "lake", path, judge).communicate(timeout=LIMIT_S)
        assert (again, judge.served) == (stdout, served)
        assert run_digest(run) == digest


@pytest.mark.model
def test_the_tiny_critic_rates_what_it_was_made_for(tmp_path):
    rows = [
        {
            "prompt": "Sam has 15 stamps. Max has 4 fewer than Sam. How many stamps do both have?",
            "response": "Okay. 15-4=11. 15+11=26. The answer is 26.",
            "reference": "15-4=11. 15+11=26. #### 26",
            "task": "math",
        }
    ]
    (found,) = objects(critique(tmp_path, write(tmp_path, rows), "tiny", "--json"))
    assert (found["status"], found["ratings"]) == ("scored", {"Logical Correctness": 1})
    assert found["reference_used"]
