"""IFEval's published rows: prompts with checks, and responses with verdicts on each instruction."""

import json
from collections import Counter

import pytest
from crashing import Silent
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts, read_prompts
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Check

NAME = "ifeval_gpt4.jsonl"
ROW = {
    "key": 1,
    "prompt": "Write two lines in which no comma is, and tea is twice.",
    "instruction_id_list": ["punctuation:no_comma", "keywords:frequency"],
    "kwargs": [
        {"num_words": None, "keyword": None},
        {"keyword": "tea", "frequency": 2.0, "relation": "at least"},
    ],
}
CHECKS = (
    Check(kind="punctuation:no_comma", argument=""),
    Check(
        kind="keywords:frequency",
        argument='{"frequency": 2, "keyword": "tea", "relation": "at least"}',
    ),
)


@pytest.fixture
def file(tmp_path):
    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_instructions_become_checks_of_a_prompt(file):
    (prompt,) = read_prompts(file(ROW))
    assert prompt.checks == CHECKS
    listed = [{"kind": c.kind, "argument": json.loads(c.argument or "{}")} for c in CHECKS]
    (same,) = read_prompts(file({"prompt": ROW["prompt"], "checks": listed}))
    assert (same.checks, same.prompt_id) == (CHECKS, prompt.prompt_id)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"kwargs": [{}]},
            "'instruction_id_list' names 2 instructions, and 'kwargs' has parameters for 1",
        ),
        ({"kwargs": "none"}, "'kwargs' must be a list"),
        ({"kwargs": [{}, {}]}, "check 'keywords:frequency' lacks its parameter 'keyword'"),
        ({"instruction_id_list": ["a:b", "c:d"]}, "unknown check 'a:b'"),
        ({"instruction_id_list": [1, 2]}, "'checks.kind' must be a text"),
    ],
)
def test_instructions_that_cannot_be_decided_are_refused_with_their_line(file, change, complaint):
    with pytest.raises(InputError) as refused:
        read_prompts(file(ROW, {**ROW, **change}))
    assert f"rows.jsonl, line 2: {complaint}" in str(refused.value)


def test_the_published_prompts_can_be_those_of_a_run(shared_data):
    path = shared_data / NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    prompts = load_prompts(PromptsConfig(source=str(path)), seed=0)
    found = {p.messages[0].content: [c.kind for c in p.checks] for p in prompts}
    assert found == {row["prompt"]: row["instruction_id_list"] for row in rows}


def test_responses_keep_their_published_verdicts(shared_data, tmp_path):
    path = shared_data / NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    import_files(Import(lake=tmp_path / "lake", name="x", files=(path,)))
    run = open_run(tmp_path / "lake", "x")
    critiques = run.scan("critiques").collect().to_dicts()
    texts = {c["candidate_id"]: c["text"] for c in run.scan("candidates").collect().to_dicts()}
    run.close()
    found = Counter(
        (texts[c["candidate_id"]], a["name"], a["rating"]) for c in critiques for a in c["aspects"]
    )
    assert {c["critic"] for c in critiques} == {"ifeval:strict"}
    assert found == Counter(
        (row["response"], name, 1 if followed else -1)
        for row in rows
        for name, followed in zip(
            row["instruction_id_list"], row["follow_instruction_list_strict"], strict=True
        )
    )


def test_published_verdicts_are_compared_with_the_verifiers(file, tmp_path):
    right, wrong = "Tea for two\ntwo for tea", "Tea, tea"
    answered = [
        {**ROW, "response": right, "follow_instruction_list_strict": [True, True]},
        {**ROW, "response": wrong, "follow_instruction_list_strict": [False, True]},
        {
            **ROW,
            "response": "Tea alone",
            "follow_instruction_list_loose": [True, False],
            "follow_instruction_list_strict": [True, True],
        },
    ]
    lake = ["--lake", str(tmp_path / "lake")]
    path = str(file(*answered))
    told = CliRunner().invoke(app, ["import", path, "--run", "x", "--as", "ifeval", *lake])
    assert told.exit_code == 0, told.output
    checked = CliRunner().invoke(app, ["critic-check", "x", "--json", *lake])
    assert checked.exit_code == 0, checked.output
    figures = json.loads(checked.stdout)["groups"][0]
    assert (figures["against"], figures["n"]) == ("verifier", 3)
    assert figures["approval"]["value"] == pytest.approx(2 / 3)
    assert figures["right"]["value"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("verdicts", "complaint"),
    [([True], "has 1 verdicts on 2 instructions"), ([1, 0], "must be true or false")],
)
def test_verdicts_that_do_not_belong_are_refused(file, tmp_path, verdicts, complaint):
    path = file({**ROW, "response": "Tea", "follow_instruction_list_strict": verdicts})
    with pytest.raises(InputError, match=complaint):
        import_files(Import(lake=tmp_path / "lake", name="x", files=(path,)))


SCRIPTED = (
    "iterations=0",
    "policy.engine.kind=scripted",
    "policy.engine.script=probed:able",
    "critic.kind=verifier",
    "reward.model=none",
)


def test_an_evaluation_has_ifevals_accuracies_and_the_verifiers_ratings(tmp_path):
    kinds, given = ROW["instruction_id_list"], ROW["kwargs"]
    texts = ["tea and tea", "tea, tea", "Sure, see:\ntea and tea", "tea"]
    asked = [
        {
            "prompt": f"Say {said}",
            "instruction_id_list": kinds,
            "kwargs": given,
            "split": "held-out",
        }
        for said in texts
    ]
    path = tmp_path / "rows.jsonl"
    rest = [{"prompt": f"Say w{n}", "split": split} for n, split in enumerate(("train", "dev"))]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*asked, *rest]))
    config = load_config("tiny", "rlrf", (*SCRIPTED, f"prompts.source={path}"), {})
    run_loop(Job(config=config, lake=tmp_path / "lake", name="x"), Silent(), StopSignal())

    run = open_run(tmp_path / "lake", "x")
    found = run.scan("evaluations").collect().to_dicts()
    run.close()
    figures = {e["metric"]: (e["value"], e["n"]) for e in found if e["benchmark"] == "held-out"}
    assert figures["general_fulfilled"] == (1 / 4, 4)
    assert figures["checks_fulfilled"] == (5 / 8, 4)
    assert figures["general_fulfilled_loose"] == (2 / 4, 4)
    assert figures["checks_fulfilled_loose"] == (6 / 8, 4)
    assert [n for name, (_, n) in figures.items() if name.startswith("rating:")] == [4]
    ratings = {name: value for name, (value, _) in figures.items() if name.startswith("rating:")}
    assert list(ratings.values()) == [1 / 4]
