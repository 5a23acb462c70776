"""IFEval's published rows: prompts with checks, and responses with verdicts on each instruction."""

import json
from collections import Counter
from pathlib import Path

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.records import Check

NAME = "ifeval_gpt4.jsonl"
LAYOUT = f"{Path(__file__).parents[2]}/examples/imports/ifeval.py:rows"
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


def test_undecidable_instructions_are_refused(file, subtests):
    for change, complaint in [
        (
            {"kwargs": [{}]},
            "'instruction_id_list' names 2 instructions, and 'kwargs' has parameters for 1",
        ),
        ({"kwargs": [{}, {}]}, "check 'keywords:frequency': the field 'keyword' is missing"),
        ({"instruction_id_list": ["a:b", "c:d"]}, "unknown check 'a:b'"),
    ]:
        with subtests.test(complaint=complaint):
            with pytest.raises(InputError) as refused:
                read_prompts(file(ROW, {**ROW, **change}))
            assert f"rows.jsonl, line 2: {complaint}" in str(refused.value)


def test_responses_keep_their_published_verdicts(shared_data, tmp_path):
    path = shared_data / NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    import_files(Import(lake=tmp_path / "lake", name="x", files=(path,), form=LAYOUT))
    run = open_run(tmp_path / "lake", "x")
    critiques = run.scan("critiques").collect().to_dicts()
    texts = {c["candidate_id"]: c["text"] for c in run.scan("candidates").collect().to_dicts()}
    run.close()
    found = Counter(
        (texts[c["candidate_id"]], a["name"], a["rating"]) for c in critiques for a in c["aspects"]
    )
    assert {c["critic"] for c in critiques} == {"ifeval:strict"}
    expected = Counter[tuple[str, str, int]]()
    for row in rows:
        verdicts = dict[str, list[bool]]()
        pairs = zip(row["instruction_id_list"], row["follow_instruction_list_strict"], strict=True)
        for name, followed in pairs:
            verdicts.setdefault(name, []).append(followed)
        expected.update(
            (row["response"], name, 1 if all(said) else -1) for name, said in verdicts.items()
        )
    assert found == expected
