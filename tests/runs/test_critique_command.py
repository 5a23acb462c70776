"""`lpfloop critique`: a critic rates answers from a file; lpfloop stores them like a run's."""

import json
from pathlib import Path

from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder, run_names

SCRIPTED = ("critic.engine.kind=scripted", "critic.engine.script=scripts:critic")
ROWS = [
    {"id": "right", "prompt": "2 + 2?", "response": "It is 4.", "reference": "4", "task": "math"},
    {"id": 7, "question": "2 + 3?", "answer": "So #### 5", "output": "It is 4."},
    {"prompt": "Say hello.", "response": ""},
    {"messages": [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Ho!"}]},
    {"id": "again", "prompt": "2 + 2?", "response": "It is 4.", "reference": "4", "task": "math"},
]
IDS = ["right", "7", "3", "4", "again"]


def write(folder: Path, rows: list[dict]) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def many(count: int = 20) -> list[dict]:
    return [
        {"id": f"r{n}", "prompt": f"What is {n} + 1?", "response": f"{n + 1}"} for n in range(count)
    ]


def critique(lake: Path, path: Path, critic: str = "verifier", *options: str, settings=()):
    words = ["critique", str(path), "--critic", critic, "--lake", str(lake), *options]
    return CliRunner().invoke(app, [*words, *(f"--set={setting}" for setting in settings)])


def objects(done) -> list[dict]:
    assert done.exit_code == Exit.DONE, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_verifier_rates_rows_in_order(tmp_path):
    rows = objects(critique(tmp_path, write(tmp_path, ROWS), "verifier", "--json"))
    assert [row["id"] for row in rows] == IDS
    assert [row["ratings"] for row in rows] == [
        {"Logical Correctness": 1},
        {"Logical Correctness": -1},
        {"Correctness": None},
        {"Correctness": None},
        {"Logical Correctness": 1},
    ]
    assert [row["status"] for row in rows] == ["scored", "scored", "no_check", "no_check", "scored"]
    assert {row["critic"] for row in rows} == {"verifier"}


def test_rows_are_in_the_lake(tmp_path):
    lake = tmp_path / "lake"
    critique(lake, write(tmp_path, ROWS))
    (name,) = run_names(lake)

    def told(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
        assert done.exit_code == Exit.DONE, done.output
        return done.stdout

    assert "unaltered" in told("lake", "verify", name, "--deep")
    assert "The final answer is wrong." in told("show", "7")
    query = "select avg(rating) as mean from ratings where aspect = 'Logical Correctness'"
    assert "0.333" in told("sql", query)
    told("export", name, "critiques", "--as", "jsonl", "--output", str(tmp_path / "out"))
    assert len((tmp_path / "out" / "train.jsonl").read_text().splitlines()) == len(ROWS)


def test_repeat_queries_nobody(tmp_path, asked):
    path = write(tmp_path, many())
    settings = (*SCRIPTED, "critic.attempts=1")
    first = critique(tmp_path, path, "tiny", "--json", settings=settings)
    rows, paid = objects(first), len(asked)
    assert paid >= len(rows)
    second = critique(tmp_path, path, "tiny", "--json", settings=settings)
    assert second.stdout == first.stdout
    assert len(asked) == paid


def test_budget_then_resume(tmp_path, asked):
    path = write(tmp_path, many())
    settings = (*SCRIPTED, "prompts.chunk=5")
    limited = (*settings, "budget.judge_calls=10")
    done = critique(tmp_path, path, "tiny", "--run", "a", settings=limited)
    assert done.exit_code == Exit.STOPPED
    assert (done.stdout, len(asked) <= 10) == ("", True)
    words = ["resume", "a", "--set", "budget.judge_calls=1000", "--lake", str(tmp_path)]
    more = CliRunner().invoke(app, words)
    assert more.exit_code == Exit.DONE, more.output
    straight = critique(tmp_path, path, "tiny", "--run", "b", settings=settings)
    assert more.stdout == straight.stdout
    assert len({run_digest(run_folder(tmp_path, name)) for name in "ab"}) == 1


WRONG = [
    ([{"id": "a", "prompt": "x"}], "verifier", "line 1"),
    ([*many(2), many(1)[0]], "verifier", "line 3"),
    ([], "verifier", "no rows"),
    (many(1), "./nowhere.py:f", "cannot be read"),
]


def test_bad_input_is_refused(tmp_path, subtests):
    for rows, critic, said in WRONG:
        with subtests.test(rows=rows, said=said):
            lake = tmp_path / "lake"
            done = critique(lake, write(tmp_path, rows), critic)
            assert (done.exit_code, said in done.stderr) == (Exit.BAD_INPUT, True)
            assert not lake.exists()
