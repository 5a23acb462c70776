"""`lpfloop eval winrate` on files of annotations."""

import json
import math
from statistics import fmean, stdev

from typer.testing import CliRunner

from lpfloop.loop.cli.app import app


def row(number, preference, **fields):
    return {
        "instruction": f"instruction {number}",
        "output_1": "of the reference",
        "output_2": "of the model",
        "generator_1": "davinci",
        "generator_2": "alpaca",
        "preference": preference,
    } | fields


def call(*words):
    done = CliRunner().invoke(app, ["eval", "winrate", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def written(folder, rows, name="annotations.json"):
    path = folder / name
    path.write_text(json.dumps(rows))
    return path


def test_win_rate_of_a_file(tmp_path):
    preferences = [1, 2, 1.5, 0, None, 1.75]
    path = written(tmp_path, [row(n, p) for n, p in enumerate(preferences)])
    code, stdout, stderr = call("--preferences", str(path), "--json")
    assert code == 0, stderr
    found = json.loads(stdout)
    won = [0, 1, 0.5, 0.5, 0.75]
    assert math.isclose(found["win_rate"], fmean(won), abs_tol=1e-9)
    assert math.isclose(found["standard_error"], stdev(won) / math.sqrt(5), abs_tol=1e-9)
    assert (found["n"], found["n_draws"], found["n_unscored"]) == (5, 2, 1)
    low, high = found["interval"]
    assert 0 <= low < found["win_rate"] < high <= 1


def test_bad_file_is_one_sentence(tmp_path):
    path = written(tmp_path, [row(0, 1), row(1, 3)])
    code, stdout, stderr = call("--preferences", str(path), "--json")
    assert (code, stdout) == (2, "")
    assert len(stderr.strip().splitlines()) == 1


def test_json_has_the_figures_of_rows(tmp_path):
    rows = [
        row(n, 2 - n % 2, output_2="of the model" + " as well" * (n % 3), dataset=f"d{n % 2}")
        for n in range(40)
    ]
    path = written(tmp_path, rows)
    hard = written(
        tmp_path, [{"instruction": r["instruction"], "difficulty": 0.1} for r in rows], "hard.json"
    )
    asked = ("--preferences", path, "--by", "dataset", "--difficulty", hard)
    code, stdout, stderr = call(*asked, "--json")
    assert code == 0, stderr
    document = json.loads(stdout)
    lines = [json.loads(line) for line in call(*asked, "--format", "jsonl")[1].splitlines()]
    groups = document.pop("groups")
    assert document == lines[0]
    assert list(groups.values()) == lines[1:]
    assert 0 < document["length_controlled_win_rate"] < 1
