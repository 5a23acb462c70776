"""`lpfloop judge-check`: its table, JSON output, plots, runs as sources, and bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judge_check import check
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading, judgments_of
from lpfloop.loop.evaluation.judgments import collect
from lpfloop.loop.lake.imports.import_formats import named_layout

EXAMPLES = Path(__file__).parents[2] / "examples" / "imports"
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


def measured(lake, *sources, name, form=None):
    reading = JudgmentReading(layout=named_layout(form))
    found = collect(judgments_of([str(source) for source in sources], lake, reading))
    return {each.name: each for each in check(found)}[name]


def test_table_and_rows(tmp_path):
    rows = [alpaca("human:a", 1), alpaca("human:b", 1), alpaca("human:c", 2), alpaca("gpt", 1)]
    path = write(tmp_path / "a.json", [*rows, alpaca("gpt", None)])
    people, judge = json.loads(call(tmp_path, path, "--json").stdout)
    assert (people["kind"], judge["kind"]) == ("people", "judge")
    agreed = [judge[f"agreement{end}"] for end in ("", "_low", "_n")]
    assert agreed == [1.0, None, 1]
    assert (judge["unread"], judge["worst"], judge["best"]) == (1, 0.5, 1.0)
    table = call(tmp_path, path, "--format", "table")
    assert table.exit_code == 0
    assert "gpt" in table.stdout
    named = call(tmp_path, path, "--human", "gp", "--json")
    assert {each["kind"] for each in json.loads(named.stdout)} == {"people"}


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
    assert (found.measures["agreement"].value, found.measures["agreement"].instructions) == (0.5, 2)


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


def test_examples_of_verdicts_without_texts(tmp_path):
    vote = {"question_id": 1, "model_a": "m", "model_b": "n", "turn": 1}
    said = [("expert_1", "model_b"), ("gpt", "tie (inconsistent)")]
    votes = write(tmp_path / "a.jsonl", [{**vote, "judge": j, "winner": w} for j, w in said])
    found = measured(tmp_path, votes, name="gpt", form=f"{EXAMPLES}/mt_bench.py:votes")
    assert (found.verdicts, found.measures["agreement"].value) == (1, 0)
    row = {"subset": "Natural", "idx": 0, "llm": "GPT", "strategy": "CoT", "label": 2}
    judged = write(tmp_path / "b.jsonl", [{**row, "winner_order1": "1", "winner_order2": ""}])
    found = measured(tmp_path, judged, name="GPT CoT", form=f"{EXAMPLES}/llmbar.py:verdicts")
    assert (found.verdicts, found.unread, found.measures["agreement"].value) == (1, 1, 0)


def test_gpt_4_and_people_on_mt_bench(shared_data, tmp_path):
    names = ("mtbench_human.jsonl", "mtbench_gpt4_pair.jsonl")
    files = (shared_data / name for name in names)
    found = measured(tmp_path, *files, name="gpt4_pair", form=f"{EXAMPLES}/mt_bench.py:votes")
    # Zheng et al. 2023: 85 % if neither votes for a tie; this file has half of their votes.
    assert found.measures["decided"].value == pytest.approx(0.85, abs=0.04)
