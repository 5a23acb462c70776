"""The layouts of examples/imports, on a sample row, and on the published file's first rows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run

EXAMPLES = Path(__file__).parents[2] / "examples" / "imports"
TABLES = ("prompts", "candidates", "critiques", "rewards", "preferences")


@pytest.fixture
def load(tmp_path):
    """Import rows by an example, and return the tables of the run."""

    def tables(example, *rows, scale=None):
        file = tmp_path / f"{example}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        imported(tmp_path, example, file, scale)
        run = open_run(tmp_path / "lake", example.replace("_", "-"))
        found = {table: run.scan(table).collect().to_dicts() for table in TABLES}
        run.close()
        return found

    return tables


def imported(folder, example, file, scale=None, **options):
    name = example.replace("_", "-")
    form = f"{EXAMPLES}/{example}.py:rows"
    job = Import(lake=folder / "lake", name=name, files=(file,), form=form, scale=scale, **options)
    return import_files(job)


def votes(tables):
    """Return each vote with its texts."""
    texts = {row["candidate_id"]: row["text"] for row in tables["candidates"]}
    return [
        (texts[row["first_id"]], texts[row["second_id"]], row["annotator"], row["preferred"])
        for row in tables["preferences"]
    ]


def labels(tables):
    """Return each answer with its first rating."""
    texts = {row["candidate_id"]: row["text"] for row in tables["candidates"]}
    return [
        (texts[row["candidate_id"]], row["aspects"][0]["rating"]) for row in tables["critiques"]
    ]


def test_pandalm(load):
    row = {
        "instruction": "Name it.",
        "input": "A prime",
        "cmp_key": "m_n",
        "response1": "7",
        "response2": "9",
        "annotator1": 1,
        "annotator2": 0,
        "gpt_result": "Tie",
        "gpt_reason": "Both do.",
    }
    found = load("pandalm", row)
    assert [row["model"] for row in found["candidates"]] == ["m", "n"]
    assert votes(found) == [
        ("7", "9", "human:annotator1", "first"),
        ("7", "9", "human:annotator2", "tie"),
        ("7", "9", "gpt", "tie"),
    ]


def test_helpsteer3(load):
    asked = [{"role": "user", "content": "q"}]
    row = {"context": asked, "response1": "a", "response2": "b", "domain": "code"}
    found = load("helpsteer3", *({**row, "overall_preference": n} for n in (-3, 0, 2)))
    assert found["prompts"][0]["messages"] == asked
    assert [row["preferred"] for row in found["preferences"]] == ["first", "tie", "second"]


def test_llmbar(load):
    found = load("llmbar", {"input": "Q", "output_1": "a", "output_2": "b", "label": 2})
    assert votes(found) == [("a", "b", "label:label", "second")]


def test_mt_bench(load):
    question = {"question_id": 81, "turns": ["Hi.", "Again."], "category": "writing"}
    answers = [
        {"question_id": 81, "model_id": name, "choices": [{"turns": [f"{name} 1", f"{name} 2"]}]}
        for name in ("m", "n")
    ]
    vote = {"question_id": 81, "model_a": "m", "model_b": "n", "turn": 2}
    said = [("model_b", "author_1"), ("tie", "gpt4_pair")]
    rows = [question, *answers, *({**vote, "winner": w, "judge": j} for w, j in said)]
    found = load("mt_bench", *rows)
    assert [len(row["messages"]) for row in found["prompts"]] == [1, 2]
    assert votes(found) == [
        ("m 2", "n 2", "human:author_1", "second"),
        ("m 2", "n 2", "gpt4_pair", "tie"),
    ]


def test_prometheus(load):
    parts = {"The instruction to evaluate": "Name a prime.", "Response to evaluate": "7"}
    rubric = {"Score Rubrics": "[Is it one?]\nScore 1: no.", "Feedback": ""}
    text = "".join(f"###{name}:\n{said}\n\n" for name, said in (parts | rubric).items())
    row = {"instruction": text, "gpt4_score": [5, 1], "gpt4_feedback": ["Yes.", "No."]}
    found = load("prometheus", row, scale="1-5")
    assert [row["text"] for row in found["candidates"]] == ["7"]
    assert labels(found) == [("7", 1), ("7", -1)]
    assert found["critiques"][0]["aspects"][0]["name"] == "Is it one?"


def test_just_eval(load):
    row = {"instruction": "q", "output": "a", "generator": "m"}
    scores = {"depth": {"score": "4", "reason": "Deep."}}
    rows = [{**row, "scores": scores}, {**row, "output": "b", "raw_judgment": "None."}]
    found = load("just_eval", *rows, scale="1-5")
    assert [row["status"] for row in found["critiques"]] == ["scored", "unrated"]


def test_wildbench(load, tmp_path):
    task = {"session_id": "s", "conversation_input": [{"role": "user", "content": "Hi"}]}
    score = {
        "session_id": "s",
        "model_output": "Hello.",
        "score": "9",
        "feedback": {"strengths": "Short.", "score": "9"},
    }
    found = load("wildbench", task, score, scale="1-10")
    assert labels(found) == [("Hello.", 1)]
    assert "strengths: Short." in found["critiques"][0]["text"]
    file = tmp_path / "alone.jsonl"
    file.write_text(json.dumps({**score, "session_id": "other"}))
    with pytest.raises(InputError, match=r"alone.jsonl, line 1: .*no earlier file holds"):
        imported(tmp_path, "wildbench", file, "1-10")


def test_fine_grained(load):
    row = {
        "question": "Who won?",
        "passages": [["Princeton", "A battle.", "It was fought in 1777."]],
        "gold": "Washington.",
        **{f"prediction {n}": f"Answer {n} is long." for n in range(1, 5)},
        "feedback": {
            "errors": [{"error type": "Irrelevant", "explanation": "", "start": 0, "end": 8}],
            "missing-info": [{"error type": "Missing-Answer", "passage_id": 1, "sentence_id": [2]}],
            "corrected-prediction": "Washington won.",
        },
        "preference": [1, 2, 0, 1, 2, 1],
    }
    found = load("fine_grained", row)
    (prompt,), (critique,) = found["prompts"], found["critiques"]
    asked = "Who won?\n\nPrinceton\nA battle. It was fought in 1777."
    assert (prompt["messages"][0]["content"], prompt["reference"]) == (asked, "Washington.")
    assert critique["critic"] == "human:feedback"
    assert {a["name"]: (a["rating"], a["comment"]) for a in critique["aspects"]} == {
        "relevance": (-1, "Irrelevant: Answer 1"),
        "factuality": (1, ""),
        "completeness": (-1, "Missing-Answer: passage 1, sentence [2]"),
    }
    decided = ["first", "second", "tie", "first", "second", "first"]
    assert [row["preferred"] for row in found["preferences"]] == decided
    assert found["candidates"][-1]["text"] == "Washington won."


def test_solutions(load):
    solved = {"solution": "2", "is_correct": True}
    rows = [
        {"question": "1 + 1?", "ground_truth": "2", "6B": solved},
        {"question": "2 + 2?", "gt": "4", "code": ["4", "5"], "score": [True, False]},
    ]
    assert labels(load("solutions", *rows)) == [("2", 1), ("4", 1), ("5", -1)]


def test_truthfulqa(load):
    row = {
        "Category": "Myths",
        "Question": "Why?",
        "Best Answer": "So",
        "Best Incorrect Answer": "No",
        "Correct Answers": "So; Thus",
        "Incorrect Answers": "No; Never",
    }
    found = load("truthfulqa", row)
    (prompt,) = found["prompts"]
    assert (prompt["reference"], prompt["family"], prompt["task"]) == ("So", "Myths", "general")
    assert prompt["incorrect_answers"] == ["No", "Never"]
    assert sorted(labels(found)) == [("Never", -1), ("No", -1), ("So", 1), ("Thus", 1)]
    assert votes(found) == [("So", "No", "label:best_answer", "first")]


COUNTS = {
    ("fine_grained", "finegrained_dev_feedback.jsonl"): (60, 297, 60, 0, 360),
    ("solutions", "gsm8k_model_solutions.jsonl"): (60, 240, 240),
    ("ifeval", "ifeval_gpt4.jsonl"): (60, 60, 60),
    ("just_eval", "justeval_multi_aspect.jsonl"): (60, 60, 60),
    ("just_eval", "justeval_safety_vicuna.jsonl"): (58, 58, 59),
    ("llmbar", "llmbar_LLMBar__Natural.json"): (60, 120, 0, 0, 60),
    ("mt_bench", "mtbench_question.jsonl"): (120,),
    ("pandalm", "pandalm.jsonl"): (24, 79, 0, 0, 300),
    ("prometheus", "prometheus_vicuna_eval.jsonl"): (16, 60, 180),
    ("solutions", "qwen_maj8.jsonl"): (42, 336, 336, 336),
    ("truthfulqa", "truthfulqa.jsonl"): (60, 495, 495, 0, 60),
}
"""Rows of the first 60 lines, counted by code independent of the import."""
SCALES = {"just_eval": "1-5", "prometheus": "1-5"}


def test_published_files(shared_data, tmp_path, subtests):
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {e for e, _ in COUNTS} == {
        "helpsteer3",
        "wildbench",
    }
    for (example, name), counts in COUNTS.items():
        with subtests.test(name):
            text = (shared_data / name).read_text(encoding="utf-8-sig")
            rows = json.loads(text)[:60] if name.endswith(".json") else None
            lines = map(json.dumps, rows) if rows else text.splitlines()[:60]
            file = tmp_path / f"{name}.jsonl"
            file.write_text("\n".join(lines))
            done = imported(tmp_path / name, example, file, SCALES.get(example))
            expected = dict(zip(TABLES, counts, strict=False))
            assert dict(done.rows) == {table: n for table, n in expected.items() if n}


def test_own_layout_is_refused(tmp_path, subtests):
    file, own = tmp_path / "rows.jsonl", tmp_path / "own.py"
    file.write_text('{"a": 1}\n{"a": 2}\n')
    job = Import(lake=tmp_path / "lake", name="x", files=(file,), form=f"{own}:rows")
    for body, told in [
        ("return 3", "must return a list of rows"),
        ("return [3]", "no object"),
        ("return [{'b': 1}]", "in no known format"),
        ("return row['b']", "KeyError"),
    ]:
        own.write_text(f"def rows(row):\n    {body}\n")
        with (
            subtests.test(told),
            pytest.raises(InputError, match=rf"rows.jsonl, line 1: .*{told}"),
        ):
            import_files(job)
    asked = "[{'prompt': str(row['a'])}] if row['a'] > 1 else 0"
    own.write_text(f"def rows(row):\n    return {asked}\n")
    done = import_files(replace(job, skip_bad=True))
    assert (done.read, done.rows) == (1, {"prompts": 1})
