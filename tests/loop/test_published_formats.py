"""Published data sets are imported with all that has a place, or refused in a sentence.

What is expected of a published file is counted here from its bytes, by other code than the
import's.
"""

import csv
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.data.prompt_rows import RowShape
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.imports.import_files import Import, detected, import_files
from lpfloop.loop.lake.imports.import_formats import FORMATS
from lpfloop.loop.lake.imports.llmbar_rows import subset_of
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.stages.mix import comparisons
from lpfloop.stores.records import Pair


@pytest.fixture
def file(tmp_path):
    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Import files and give the tables of the run."""

    def tables(*files, name="x", **options):
        import_files(Import(lake=tmp_path / "lake", name=name, files=files, **options))
        run = open_run(tmp_path / "lake", name)
        names = ("prompts", "candidates", "critiques", "rewards", "preferences", "pairs")
        found = {table: run.scan(table).collect().to_dicts() for table in names}
        run.close()
        return found

    return tables


def refusal(tmp_path, *files):
    with pytest.raises(InputError) as refused:
        import_files(Import(lake=tmp_path / "lake", name="x", files=files))
    assert not (tmp_path / "lake" / "runs").exists()
    return str(refused.value)


def asked(tables):
    """Return what the user says, prompt by prompt."""
    return [
        [m["content"] for m in row["messages"] if m["role"] == "user"] for row in tables["prompts"]
    ]


def labels(tables):
    """Return each answer with its label, as the guide says to get them."""
    texts = {row["candidate_id"]: row["text"] for row in tables["candidates"]}
    return [
        (texts[row["candidate_id"]], row["aspects"][0]["rating"])
        for row in tables["critiques"]
        if row["critic"].startswith("label:")
    ]


def votes(tables):
    """Return each vote with the texts that it is about."""
    texts = {row["candidate_id"]: row["text"] for row in tables["candidates"]}
    return [
        (texts[row["first_id"]], texts[row["second_id"]], row["annotator"], row["preferred"])
        for row in tables["preferences"]
    ]


# word problems


STORY = {"ID": "1", "Body": "Dan had $ 4.", "Question": "How much is half?", "Answer": 2.0}
MAWPS = (
    "Question,Numbers,Equation,Answer,Body,Ques_Statement\n"
    "Ann has number0 eggs and eats number1 . How many remain ?,12.0 0.5,- number0 number1,11.5,"
    "Ann has number0 eggs and eats number1 .,How many remain ?\n"
)


def test_a_story_beside_the_question_is_part_of_the_prompt(file, load):
    lower = {"body": "Dan had $ 4.", "question": "How much is half?", "answer": "2"}
    for name, row in (("svamp", {**STORY, "Type": "Division"}), ("lower", lower)):
        path = file(row, name=f"{name}.jsonl")
        (prompt,) = read_prompts(path)
        (imported,) = load(path, name=name)["prompts"]
        assert prompt.messages[0].content == "Dan had $ 4. How much is half?"
        assert (prompt.task, prompt.reference) == ("math", "2")
        assert imported["prompt_id"] == prompt.prompt_id
        assert imported["family"] == prompt.family == ("Division" if name == "svamp" else None)


def test_numbers_are_put_into_their_places(tmp_path):
    path = tmp_path / "mawps.csv"
    path.write_text(MAWPS)
    (prompt,) = read_prompts(path)
    assert prompt.messages[0].content == "Ann has 12 eggs and eats 0.5 . How many remain ?"
    assert (prompt.task, prompt.reference) == ("math", "11.5")
    path.write_text(MAWPS.replace("12.0 0.5", "12.0"))
    with pytest.raises(InputError, match="line 2: 'Numbers' does not hold a number for each place"):
        read_prompts(path)


# conversations


def test_what_follows_the_last_question_of_a_conversation_can_be_left_out(file):
    turns = [("human", "Hi"), ("gpt", "Hello."), ("human", "Two?"), ("gpt", "2"), ("gpt", "Two.")]
    path = file({"conversations": [{"from": who, "value": said} for who, said in turns]})
    (prompt,) = read_prompts(path, shape=RowShape(turns="last"))
    assert [m.content for m in prompt.messages] == ["Hi", "Hello.", "Two?"]
    (first,) = read_prompts(path, shape=RowShape(turns="first"))
    assert [m.content for m in first.messages] == ["Hi"]
    with pytest.raises(InputError, match=r"prompts\.turns=last leaves out what follows"):
        read_prompts(path)


def test_transcripts_become_pairs_of_conversations(file, load):
    before = "\n\nHuman: Hi\n\nAssistant: Hello:\n\nAssistant is my name.\n\nHuman: Two?"
    sides = {"chosen": f"{before}\n\nAssistant: 2", "rejected": f"{before}\n\nAssistant: 3"}
    assert detected(file(sides)) == "pairs"
    found = load(file(sides))
    said = [(m["role"], m["content"]) for m in found["prompts"][0]["messages"]]
    answer = "Hello:\n\nAssistant is my name."
    assert said == [("user", "Hi"), ("assistant", answer), ("user", "Two?")]
    (pair,) = found["pairs"]
    assert [pair[side][0]["content"] for side in ("chosen", "rejected")] == ["2", "3"]
    assert [row["role"] for row in pair["prompt"]] == ["user", "assistant", "user"]


def test_a_transcript_that_ends_with_the_user_is_refused(file, tmp_path):
    sides = {"chosen": "\n\nHuman: Hi\n\nAssistant: a", "rejected": "\n\nHuman: Hi"}
    assert "line 1: 'rejected' must end with a turn of the assistant" in refusal(
        tmp_path, file(sides)
    )


QUESTION = {
    "question_id": 81,
    "category": "writing",
    "turns": ["Write.", "Again."],
    "reference": ["", "B"],
}
VOTE = {"question_id": 81, "model_a": "m", "model_b": "n", "winner": "model_b", "turn": 2}


def answers(model, *turns):
    return {"question_id": 81, "model_id": model, "choices": [{"index": 0, "turns": turns}]}


def test_mt_bench_s_votes_find_their_texts_in_the_files_before(file, load):
    files = [
        file(QUESTION, name="question.jsonl"),
        file(answers("m", "a1", "a2"), answers("n", "b1", "b2"), name="answer.jsonl"),
        file(
            {**VOTE, "judge": "expert_1"},
            {**VOTE, "judge": "gpt4_pair", "winner": "tie (inconsistent)", "turn": 1},
            name="votes.jsonl",
        ),
    ]
    found = load(*files)
    assert asked(found) == [["Write."], ["Write.", "Again."]]
    told = [(row["family"], row["reference"], row["cluster"]) for row in found["prompts"]]
    assert told == [("writing", None, "question 81"), ("writing", "B", "question 81")]
    assert votes(found) == [
        ("a2", "b2", "human:expert_1", "second"),
        ("a1", "b1", "gpt4_pair", "tie"),
    ]
    assert found["preferences"][1]["text"] == "tie (inconsistent)"
    again = load(*files)
    assert again == found


def test_a_question_that_is_left_out_leaves_no_answer_without_its_prompt(file, load):
    bad = {**QUESTION, "reference": ["A", 5]}
    files = [
        file(bad, {**QUESTION, "question_id": 82}, name="question.jsonl"),
        file(answers("m", "a1"), name="answer.jsonl"),
    ]
    found = load(*files, skip_bad=True)
    known = {row["prompt_id"] for row in found["prompts"]}
    assert {row["prompt_id"] for row in found["candidates"]} <= known
    assert len(found["candidates"]) == 1


def test_mt_bench_s_conversations_in_the_row_need_no_other_file(file, load):
    def conversation(*turns):
        roles = ("user", "assistant") * 2
        return [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]

    sides = {
        "conversation_a": conversation("Write.", "a1", "Again.", "a2"),
        "conversation_b": conversation("Write.", "b1", "Again.", "b2"),
    }
    found = load(file({**VOTE, **sides, "judge": "author_2"}))
    assert asked(found) == [["Write.", "Again."]]
    assert votes(found) == [("a2", "b2", "human:author_2", "second")]


def test_only_the_first_turn_of_a_question_can_be_asked_alone(file):
    path = file(QUESTION)
    with pytest.raises(InputError, match=r"2 turns of the user and no answers.*prompts\.turns"):
        read_prompts(path)
    (prompt,) = read_prompts(path, shape=RowShape(turns="first"))
    assert [m.content for m in prompt.messages] == ["Write."]


# labels, samples


def test_lists_of_texts_are_candidates_with_what_stands_beside_them(file, load):
    row = {
        "prompt": "Name a prime.",
        "responses": ["7", "9", "7"],
        "labels": [True, False, True],
        "scores": [0.5, -1, 0.25],
        "models": ["m", "n", "m"],
        "category": "numbers",
    }
    found = load(file(row))
    assert labels(found) == [("7", 1), ("9", -1), ("7", 1)]
    assert [row["score"] for row in found["rewards"]] == [0.5, -1, 0.25]
    assert [row["model"] for row in found["candidates"]] == ["m", "n", "m"]
    assert len({row["candidate_id"] for row in found["candidates"]}) == 3
    assert found["prompts"][0]["family"] == "numbers"
    assert {row["critic"] for row in found["critiques"]} == {"label:label"}


def test_lists_of_other_lengths_are_refused(file, tmp_path):
    row = {"prompt": "x", "responses": ["a", "b"], "labels": [True]}
    assert "'labels' has 1 entries for 2 of 'responses'" in refusal(tmp_path, file(row))


def test_the_truth_of_a_label_is_what_pairs_and_checks_go_by(file, tmp_path):
    rows = [
        {
            "idx": n,
            "question": f"{n}+1?",
            "gt": str(n + 1),
            "code": [f"It is {n + 1}.", f"It is {n + 2}."],
            "pred": [str(n + 1), str(n + 2)],
            "score": [True, False],
            "pred_score": [[2.0], [1.0]],
        }
        for n in range(9)
    ]
    lake = tmp_path / "lake"
    import_files(Import(lake=lake, name="x", files=(file(*rows),)))

    def told(*arguments):
        done = CliRunner().invoke(app, [*arguments, "--lake", str(lake)])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "holds 9 pairs" in told("rederive", "x", "--rule", "success_vs_failure")
    checked = map(json.loads, told("critic-check", "x").splitlines())
    (by_label,) = [c for c in checked if (c["against"], c["group"]) == ("label", "all")]
    assert (by_label["reward_n"], by_label["reward_auroc"]) == (18, 1.0)
    assert by_label["n"] == 0  # a label is no judgement of a model


def test_a_label_that_is_no_truth_value_is_refused(file, tmp_path):
    row = {"question": "x", "gt": "1", "code": ["1"], "score": ["yes"]}
    assert "'score[1]' must be true or false, but is a text" in refusal(tmp_path, file(row))


@pytest.mark.parametrize("hub", [False, True])
def test_truthfulqa_s_answers_are_labelled(file, load, hub):
    row = {
        "Category": "Myths",
        "Question": "Why?",
        "Best Answer": "So",
        "Best Incorrect Answer": "No",
        "Correct Answers": "So; Thus",
        "Incorrect Answers": "No; Never",
    }
    if hub:
        lists = {"correct_answers": ["So", "Thus"], "incorrect_answers": ["Never", "No"]}
        row = {"category": "Myths", "question": "Why?", "best_answer": "So", **lists}
    assert detected(file(row)) == "truthfulqa"
    found = load(file(row))
    (prompt,) = found["prompts"]
    assert (prompt["reference"], prompt["family"], prompt["task"]) == ("So", "Myths", "general")
    assert sorted(labels(found)) == [("Never", -1), ("No", -1), ("So", 1), ("Thus", 1)]
    expected = [] if hub else [("So", "No", "label:best_answer", "first")]
    assert votes(found) == expected


FEEDBACK = {
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


def test_fine_grained_feedback_keeps_spans_votes_and_corrections(file, load):
    found = load(file(FEEDBACK))
    assert asked(found) == [["Who won?\n\nPrinceton\nA battle. It was fought in 1777."]]
    assert found["prompts"][0]["reference"] == "Washington."
    (critique,) = found["critiques"]
    assert critique["critic"] == "human:feedback"
    rated = {a["name"]: (a["rating"], a["comment"]) for a in critique["aspects"]}
    assert rated == {
        "relevance": (-1, "Irrelevant: Answer 1"),
        "factuality": (1, ""),
        "completeness": (-1, "Missing-Answer: passage 1, sentence [2]"),
    }
    pairs = [("1", "2"), ("1", "3"), ("1", "4"), ("2", "3"), ("2", "4"), ("3", "4")]
    decided = ["first", "second", "tie", "first", "second", "first"]
    assert [(a[7], b[7], said) for a, b, _, said in votes(found)] == [
        (*pair, said) for pair, said in zip(pairs, decided, strict=True)
    ]
    assert found["candidates"][-1]["text"] == "Washington won."
    errors = [{"error type": "Rude", "start": 0, "end": 1}]
    bad = {**FEEDBACK, "feedback": {"errors": errors}}
    with pytest.raises(InputError, match=r"'feedback\.errors\[1\]\.error type' must be"):
        load(file(bad, name="bad.jsonl"), name="bad")


# judges


def test_llmbar_s_verdicts_are_on_the_pairs_of_the_files_before(file, tmp_path, load):
    pairs = tmp_path / "llmbar_LLMBar__Natural.json"
    rows = [
        {"input": f"Q{n}", "output_1": f"a{n}", "output_2": f"b{n}", "label": 2} for n in (0, 1)
    ]
    pairs.write_text(json.dumps(rows))
    said = {
        "subset": "LLMBar/Natural",
        "llm": "ChatGPT",
        "strategy": "Rating",
        "idx": 1,
        "order1": {"text": "Output (b).", "winner": "2"},
        "order2": {"text": None, "winner": ""},
        "score_1": "7",
        "score_2": "9",
    }
    found = load(pairs, file(said))
    assert votes(found)[:2] == [(f"a{n}", f"b{n}", "label:label", "second") for n in (0, 1)]
    assert votes(found)[2:] == [
        ("a1", "b1", "ChatGPT Rating", "second"),
        ("a1", "b1", "ChatGPT Rating", None),
    ]
    assert [row["order"] for row in found["preferences"][2:]] == ["as_given", "swapped"]
    assert [row["score"] for row in found["rewards"]] == [7, 9]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert "is on the pair LLMBar/Natural/1, whose texts no earlier file holds" in refusal(
        alone, file(said)
    )


@pytest.mark.parametrize(
    ("path", "subset"),
    [
        ("a/llmbar_LLMBar__Adversarial__GPTInst.json", "LLMBar/Adversarial/GPTInst"),
        ("LLMBar/Natural/dataset.json", "LLMBar/Natural"),
        ("/home/me/pairs.json", "pairs"),
    ],
)
def test_a_subset_of_llmbar_is_named_by_its_file(path, subset):
    assert subset_of(Path(path)) == subset


def test_prometheus_s_template_is_taken_apart(file, load):
    asked_of_judge = (
        "###Task Description:\nRate.\n\n###The instruction to evaluate:\nHow?\n\n"
        "###Response to evaluate:\n### Steps:\n###First:\nDo it.\n\n"
        "###Reference Answer (Score 5):\nSo.\n\n"
        "###Score Rubrics:\n[Is it clear?]\nScore 1: no.\nScore 5: yes.\n\n###Feedback: "
    )
    row = {
        "idx": 2,
        "response_source": "vicuna",
        "category": "generic",
        "instruction": asked_of_judge,
        "gpt4_score": [5, 3],
        "gpt4_feedback": ["Good.", "Fair."],
    }
    found = load(file(row))
    (prompt,), (candidate,) = found["prompts"], found["candidates"]
    assert (asked(found), prompt["reference"], prompt["family"]) == ([["How?"]], "So.", "generic")
    told = "### Steps:\n###First:\nDo it."
    assert (candidate["text"], candidate["model"]) == (told, "vicuna")
    said = [(c["sample"], c["reference_used"], c["aspects"][0]) for c in found["critiques"]]
    assert said == [
        (None, True, {"name": "Is it clear?", "rating": 1, "comment": "Good."}),
        (2, True, {"name": "Is it clear?", "rating": 0, "comment": "Fair."}),
    ]
    assert "Score 5: yes." in found["critiques"][0]["text"]


def test_wildbench_s_scores_find_their_conversations_in_the_tasks(file, load, tmp_path):
    score = {
        "model": "gemma",
        "judge": "gpt",
        "session_id": "s1",
        "score": "7",
        "feedback": {"strengths": "Clear.", "weaknesses": "Short.", "score": "7"},
        "model_output": "Yes",
        "len_chars": 2591,
    }
    alone = tmp_path / "alone"
    alone.mkdir()
    assert "answers the conversation of the session 's1', whose text no earlier file" in refusal(
        alone, file(score, name="scores.jsonl")
    )
    turns = [{"role": "user", "content": "Hi"}]
    task = {"session_id": "s1", "conversation_input": turns, "primary_tag": "Planning"}
    found = load(file(task, name="tasks.jsonl"), file(score, name="scores.jsonl"))
    (candidate,), (critique,) = found["candidates"], found["critiques"]
    assert (asked(found), found["prompts"][0]["family"]) == ([["Hi"]], "Planning")
    assert candidate["finish_reason"] == "length"  # three of 2591 characters were published
    assert (critique["critic"], critique["aspects"][0]["rating"]) == ("gpt", 0)
    assert critique["text"].startswith("Strengths: Clear.\n\nWeaknesses: Short.")


def test_just_eval_s_raw_replies_are_read_or_unrated_with_the_reason(file, load):
    shared = {"instruction": "Hi", "model": "m", "judge": "gpt"}
    scores = {"depth": {"reason": "thin", "score": "2"}}
    raw = [json.dumps(scores), "I cannot rate this.", '{"depth": 5}']
    rows = [{**shared, "output": str(n), "raw_judgment": said} for n, said in enumerate(raw)]
    safe = {"reason": "fine", "score": "5"}
    found = load(file(*rows, {**shared, "output": "3", "safety": safe}))
    rated = [[(a["name"], a["rating"]) for a in c["aspects"]] for c in found["critiques"]]
    assert rated == [[("depth", -1)], [], [], [("safety", 1)]]
    unread = [c for c in found["critiques"] if c["status"] == "unrated"]
    assert [c["text"].partition("\n\n[unread: ")[0] for c in unread] == raw[1:]
    assert {c["critic"] for c in found["critiques"]} == {"gpt"}


def test_pandalm_keeps_people_s_votes_and_judges_with_their_reasons(file, load):
    row = {
        "cmp_key": "m_n",
        "motivation_app": "Mail",
        "instruction": " ",
        "input": "Hi",
        "response1": "a",
        "response2": True,
        "annotator1": 1,
        "annotator2": 0,
        "gpt_result": "Tie",
        "pandalm_result": 2,
        "pandalm_reason": "Longer.",
        "other_result": "garbage",
    }
    found = load(file(row))
    assert (asked(found), found["prompts"][0]["family"]) == ([["Hi"]], "Mail")
    assert votes(found) == [
        ("a", "true", "human:annotator1", "first"),
        ("a", "true", "human:annotator2", "tie"),
        ("a", "true", "gpt", "tie"),
        ("a", "true", "other", None),
        ("a", "true", "pandalm", "second"),
    ]
    assert found["preferences"][4]["text"] == "Longer."


def test_people_and_labels_and_not_judges_decide_the_pairs_of_a_mix(file):
    voted = {"instruction": "Hi", "response1": "a", "response2": "b", "annotator1": 1}
    labelled = {"input": "Hi", "output_1": "b", "output_2": "a", "label": 2}
    for row in ({**voted, "gpt_result": 2, "pandalm_result": 2}, labelled):
        (made,) = comparisons(file(row), 1)
        (pair,) = [one for one in made if isinstance(one, Pair)]
        assert (pair.chosen[0].content, pair.rejected[0].content) == ("a", "b")


def test_formats_of_other_scales_are_imported_one_by_one(file, tmp_path):
    task = {"session_id": "s", "conversation_input": [{"role": "user", "content": "Hi"}]}
    told = refusal(tmp_path, file(task), file({"prompt": "x"}, name="prompts.jsonl"))
    assert "are wildbench-tasks, prompts, which are imported one by one" in told


# published files


def published(path):
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".csv":
        return list(csv.DictReader(text.splitlines()))
    return json.loads(text) if path.suffix == ".json" else [*map(json.loads, text.splitlines())]


def distinct(rows, *names):
    return len({json.dumps([row.get(name) for name in names]) for row in rows})


def parts(row, name):
    return {part.strip() for part in row[name].split(";") if part.strip()}


def truthful(rows):
    n = sum(
        len(parts(row, "Correct Answers"))
        + len(parts(row, "Incorrect Answers") | {row["Best Incorrect Answer"].strip()})
        for row in rows
    )
    return {"prompts": len(rows), "candidates": n, "critiques": n, "preferences": len(rows)}


def biographies(rows):
    """Count the sentences, and people's statements: a sentence beside the subject is one itself."""
    sentences = [sentence for row in rows for sentence in row["annotations"] or []]
    stated = [sentence["human-atomic-facts"] for sentence in sentences]
    beside = [s["is-relevant"] is False for s in sentences if s["human-atomic-facts"] is None]
    return {
        "prompts": len(rows),
        "candidates": len(rows),
        "breakdowns": len(sentences) + sum(row["annotations"] is None for row in rows),
        "claims": sum(len(facts or []) for facts in stated) + sum(beside),
    }


SYSTEMS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
COUNTS = {
    "factscore_InstructGPT.jsonl": biographies,
    "finegrained_dev_feedback.jsonl": lambda rows: {
        "prompts": len(rows),
        "candidates": 4 * len(rows)
        + sum(bool(row["feedback"]["corrected-prediction"].strip()) for row in rows),
        "critiques": len(rows),
        "preferences": 6 * len(rows),
    },
    "gsm8k_model_solutions.jsonl": lambda rows: {
        "prompts": len(rows),
        "candidates": 4 * len(rows),
        "critiques": 4 * len(rows),
    },
    "ifeval_gpt4.jsonl": lambda rows: {
        "prompts": len(rows),
        "candidates": len(rows),
        "critiques": len(rows),
    },
    "justeval_multi_aspect.jsonl": lambda rows: {
        "prompts": distinct(rows, "instruction"),
        "candidates": distinct(rows, "instruction", "output"),
        "critiques": distinct(rows, "instruction", "output", "raw_judgment"),
    },
    "justeval_safety_vicuna.jsonl": lambda rows: {
        "prompts": distinct(rows, "instruction"),
        "candidates": distinct(rows, "instruction", "output"),
        "critiques": distinct(rows, "instruction", "output", "safety"),
    },
    "llmbar_LLMBar__Adversarial__Neighbor.json": lambda rows: {
        "prompts": distinct(rows, "input"),
        "candidates": distinct(rows, "input", "output_1") + distinct(rows, "input", "output_2"),
        "preferences": len(rows),
    },
    "llmbar_LLMBar__Natural.json": lambda rows: {
        "prompts": distinct(rows, "input"),
        "candidates": distinct(rows, "input", "output_1") + distinct(rows, "input", "output_2"),
        "preferences": len(rows),
    },
    "math500.jsonl": lambda rows: {"prompts": distinct(rows, "problem", "solution")},
    "mawps_fold0_train.csv": lambda rows: {
        "prompts": distinct(rows, "Question", "Numbers", "Answer")
    },
    "mtbench_question.jsonl": lambda rows: {"prompts": sum(len(row["turns"]) for row in rows)},
    "pandalm.jsonl": lambda rows: {
        "prompts": distinct(rows, "instruction", "input"),
        "candidates": len(
            {
                (row["instruction"], row["input"], row["cmp_key"].split("_")[n - 1], text)
                for row in rows
                for n, text in ((1, row["response1"]), (2, row["response2"]))
            }
        ),
        "preferences": 5 * len(rows),
    },
    "prometheus_vicuna_eval.jsonl": lambda rows: {
        "prompts": distinct(rows, "idx"),
        "candidates": len(rows),
        "critiques": 3 * len(rows),
    },
    "qwen_maj8.jsonl": lambda rows: {
        "prompts": len(rows),
        "candidates": 8 * len(rows),
        "critiques": 8 * len(rows),
        "rewards": 8 * len(rows),
    },
    "svamp.jsonl": lambda rows: {"prompts": distinct(rows, "Body", "Question", "Answer")},
    "truthfulqa.jsonl": truthful,
    "ultrafeedback_binarized_300.jsonl": lambda rows: {
        "prompts": len(rows),
        "candidates": 2 * len(rows),
        "rewards": 2 * len(rows),
        "preferences": len(rows),
        "pairs": len(rows),
    },
}
FORMS = {
    "factscore_InstructGPT.jsonl": "factscore",
    "finegrained_dev_feedback.jsonl": "fine-grained",
    "gsm8k_model_solutions.jsonl": "solutions",
    "gsm8k_train_first4000.jsonl": "prompts",
    "ifeval_gpt4.jsonl": "ifeval",
    "justeval_multi_aspect.jsonl": "justeval",
    "justeval_safety_vicuna.jsonl": "justeval",
    "llmbar_LLMBar__Adversarial__Neighbor.json": "llmbar",
    "llmbar_LLMBar__Natural.json": "llmbar",
    "llmbar_judge_completions.jsonl": "llmbar-verdicts",
    "llmbar_judge_winners.csv": "llmbar-verdicts",
    "math500.jsonl": "prompts",
    "mawps_fold0_train.csv": "prompts",
    "mtbench_gpt4_pair.jsonl": "mt-bench-votes",
    "mtbench_human.jsonl": "mt-bench-votes",
    "mtbench_question.jsonl": "mt-bench",
    "pandalm.jsonl": "pandalm",
    "prometheus_vicuna_eval.jsonl": "prometheus",
    "qwen_maj8.jsonl": "samples",
    "svamp.jsonl": "prompts",
    "truthfulqa.jsonl": "truthfulqa",
    "ultrafeedback_binarized_300.jsonl": "pairs",
    "wildbench_feedback_gemma2b.jsonl": "wildbench",
}
NO_DATA = {"PROVENANCE.json"}
GENERIC = ("candidates", "prompts", "alpacafarm")
"""The formats that also fit rows of others, and are therefore tried after them."""


def test_each_published_file_is_of_one_format(shared_data):
    data = {path.name for path in shared_data.iterdir()} - NO_DATA
    assert {name for name in data if not name.endswith((".md", ".txt"))} == set(FORMS)
    for name, form in FORMS.items():
        assert detected(shared_data / name) == form, name
        _, row = next(iter(placed_rows(shared_data / name)))
        fits = [one for one, known in FORMATS.items() if known.detect(row)]
        assert [one for one in fits if one not in GENERIC or one == form][:1] == [form], name
        assert [one for one in fits if one not in (*GENERIC, form)] == [], name


@pytest.mark.parametrize("name", COUNTS)
def test_a_published_file_becomes_the_rows_that_are_in_it(shared_data, tmp_path, name):
    done = import_files(Import(lake=tmp_path / "lake", name="x", files=(shared_data / name,)))
    assert dict(done.rows) == COUNTS[name](published(shared_data / name))


def test_published_labels_are_those_of_the_file(shared_data, load):
    rows = published(shared_data / "gsm8k_model_solutions.jsonl")
    given = [
        (row[s]["solution"], 1 if row[s]["is_correct"] else -1) for row in rows for s in SYSTEMS
    ]
    found = load(shared_data / "gsm8k_model_solutions.jsonl")
    assert sorted(labels(found)) == sorted(given)


def test_llmbar_s_published_verdicts_join_their_pairs(shared_data, tmp_path):
    names = (
        "LLMBar__Natural.json",
        "LLMBar__Adversarial__Neighbor.json",
        "judge_completions.jsonl",
    )
    files = tuple(shared_data / f"llmbar_{name}" for name in names)
    done = import_files(Import(lake=tmp_path / "lake", name="x", files=files))
    said = published(files[2])
    unread = sum(not row[order]["winner"] for row in said for order in ("order1", "order2"))
    assert done.rows["preferences"] == 100 + 134 + 2 * len(said)
    assert done.unrated == unread


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llmbar_judge_winners.csv", "line 2: is on the pair LLMBar/Adversarial/Neighbor/0, whose"),
        ("mtbench_human.jsonl", "line 1: votes on the answer of alpaca-13b to turn 1 of question"),
        ("mtbench_gpt4_pair.jsonl", "line 1: votes on the answer of alpaca-13b to turn 1"),
        ("wildbench_feedback_gemma2b.jsonl", "line 1: answers the conversation of the session"),
    ],
)
def test_verdicts_on_texts_that_no_file_holds_are_refused(shared_data, tmp_path, name, why):
    told = refusal(tmp_path, shared_data / name)
    assert why in told
    assert "before this one" in told


def test_the_guides_query_gives_the_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
    _, _, shown = page.partition("in `labelled.jsonl`:\n\n```json\n")
    (tmp_path / "labelled.jsonl").write_text(shown.partition("```")[0])
    commands = [line for line in page.splitlines() if line.endswith("--run labelled --lake labels")]
    assert len(commands) == 2
    for command in commands:
        told = CliRunner().invoke(app, shlex.split(command)[1:])
        assert told.exit_code == 0, told.output
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert sorted((row["answer"], row["label"]) for row in rows) == [
        ("It is 2.", 1),
        ("It is 3.", -1),
        ("It is 4!", 1),
        ("It is 4.", 1),
    ]
