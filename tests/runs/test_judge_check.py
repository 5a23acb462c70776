"""`lpfloop judge-check`: its table, JSON output, plots, runs as sources, and bad input."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judge_check import Settings, check
from lpfloop.loop.evaluation.judgment_formats import PEOPLE
from lpfloop.loop.evaluation.judgment_sources import judgments_of
from lpfloop.loop.evaluation.judgments import collect

LONG = "a long answer " * 5


def alpaca(annotator, preference, *, instruction="Say it.", **more):
    return {
        "instruction": instruction,
        "output_1": LONG,
        "output_2": "short",
        "annotator": annotator,
        "preference": preference,
        **more,
    }


def write(path, rows):
    listed = path.suffix == ".json"
    path.write_text(json.dumps(rows) if listed else "\n".join(map(json.dumps, rows)))
    return path


def call(lake, *arguments):
    return CliRunner().invoke(app, ["judge-check", *map(str, arguments), "--lake", str(lake)])


def measured(lake, *sources, name):
    found = collect(judgments_of([str(source) for source in sources], lake, PEOPLE))
    return {each.name: each for each in check(found, Settings(draws=100))}[name]


def test_table_and_document(tmp_path):
    rows = [alpaca("human:a", 1), alpaca("human:b", 1), alpaca("human:c", 2), alpaca("gpt", 1)]
    path = write(tmp_path / "a.json", [*rows, alpaca("gpt", None)])
    document = json.loads(call(tmp_path, path, "--json").stdout)
    assert (document["pairs"], document["instructions"]) == (1, 1)
    people, judge = document["annotators"][:2]
    assert (people["kind"], judge["kind"]) == ("people", "judge")
    agreed = judge["agreement"]
    assert (agreed["value"], agreed["low"], agreed["n"], agreed["unread"]) == (1.0, None, 1, 1)
    table = call(tmp_path, path)
    assert table.exit_code == 0
    assert "gpt" in table.stdout
    named = call(tmp_path, path, "--human", "gp", "--json")
    assert {each["kind"] for each in json.loads(named.stdout)["annotators"]} == {"people"}


def test_run_and_file_of_people(tmp_path):
    lake = tmp_path / "lake"
    rows = [alpaca("gpt", 1), alpaca("gpt", 2, instruction="Again.", input="this")]
    words = ["import", str(write(tmp_path / "judged.json", rows)), "--as", "alpacafarm"]
    done = CliRunner().invoke(app, [*words, "--run", "judged", "--lake", str(lake)])
    assert done.exit_code == 0, done.stderr
    said = [
        alpaca("human:eva", 1),
        alpaca("human:eva", 1, instruction="Again.", input="this"),
    ]
    found = measured(lake, "judged", write(tmp_path / "people.json", said), name="gpt")
    assert (found.agreement.value, found.agreement.instructions) == (0.5, 2)


def test_refused_sources(tmp_path, subtests):
    for row, word in (
        ({"a": 1}, "line 2"),
        (alpaca("gpt", 3), "line 2: 'preference'"),
        (alpaca("gpt", 1, output_1=None), "line 2: 'output_1'"),
        (alpaca("gpt", 1, price_per_example=-1), "'price_per_example'"),
    ):
        with subtests.test(word=word):
            path = write(tmp_path / "a.jsonl", [alpaca("gpt", 1), row])
            refused = call(tmp_path, path)
            assert (refused.exit_code, refused.stdout) == (Exit.BAD_INPUT, "")
            assert word in refused.stderr
    assert call(tmp_path, "nothing").exit_code == Exit.BAD_INPUT


def test_gpt_4_and_people_on_mt_bench(shared_data, tmp_path):
    names = ("mtbench_human.jsonl", "mtbench_gpt4_pair.jsonl")
    found = measured(tmp_path, *(shared_data / name for name in names), name="gpt4_pair")
    # Zheng et al. 2023: 85 % if neither votes for a tie; this file has half of their votes.
    assert found.decided.value == pytest.approx(0.85, abs=0.04)
