"""lpfloop counts, but does not use, untrainable pairs and non-finite scores."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading, file_judgments
from lpfloop.loop.lake.imports.answers_file import answers_file
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def file(tmp_path):
    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Import files; return the result, and a reader of the run's tables."""

    def run(*files, **options):
        done = import_files(Import(lake=tmp_path / "lake", name="x", files=files, **options))

        def rows(table):
            reader = open_run(tmp_path / "lake", "x")
            found = reader.scan(table).collect().to_dicts()
            reader.close()
            return found

        return done, rows

    return run


def said(text, role="assistant"):
    return [{"role": role, "content": text}]


GOOD = {"prompt": "q", "chosen": "a", "rejected": "b"}
UNFIT = {
    "identical": [
        {"prompt": "p", "chosen": "a", "rejected": "a"},
        {"prompt": "p", "chosen": "a", "rejected": " a\n"},
        {"prompt": "p", "chosen": "a", "rejected": "a", "chosen_model": "m", "rejected_model": "n"},
        {"prompt": "p", "chosen": said("a"), "rejected": said("a")},
        {"instruction": "p", "output_1": "a", "output_2": "a", "preference": 1},
    ],
    "empty": [
        {"prompt": "p", "chosen": "a", "rejected": ""},
        {"prompt": "p", "chosen": " ", "rejected": "b"},
        {"prompt": "p", "chosen": "a", "rejected": "\u2003\n"},
        {"prompt": "p", "chosen": "a", "rejected": None},
        {"prompt": "p", "chosen": said("a"), "rejected": said("")},
        {"prompt": "p", "chosen": said("a"), "rejected": said(None)},
        {"messages": said("p", "user"), "chosen": said("a")[0], "rejected": said("\n")[0]},
        {"chosen": [*said("p", "user"), *said("a")], "rejected": [*said("p", "user"), *said(" ")]},
        {"chosen": "\n\nHuman: p\n\nAssistant: a", "rejected": "\n\nHuman: p\n\nAssistant:"},
        {"chosen": "\n\nHuman: p\n\nAssistant: a", "rejected": ""},
        {"chosen": [*said("p", "user"), *said("a")], "rejected": None},
        {"chosen": "", "rejected": [*said("p", "user"), *said("a")]},
        {"prompt": "p", "chosen": "", "rejected": " "},
    ],
}


@pytest.mark.parametrize(("reason", "row"), [(r, row) for r in UNFIT for row in UNFIT[r]])
def test_unfit_pairs(reason, row, file, load):
    good = {**GOOD} if "chosen" in row else {"instruction": "q", "output_1": "a", "output_2": "b"}
    form = "pairs" if "chosen" in row else "alpacafarm"
    done, rows = load(file(row, good, row), form=form)
    assert done.notes.as_json()["unfit_pairs"] == {reason: 2}
    assert f"pairs left out: 2 {reason} (rows.jsonl, line 1)" in [*done.notes.sentences()]
    asked = [prompt["messages"][0]["content"] for prompt in rows("prompts")]
    assert (asked, len(rows("preferences"))) == (["q"], 1)
    assert [(p["prompt"][0]["content"]) for p in rows("pairs")] in (["q"], [])
    (told,) = [row for row in rows("filter_counts") if row["outcome"] == reason]
    assert (told["count"], told["examples"]) == (2, ["rows.jsonl, line 1", "rows.jsonl, line 3"])


def test_nothing_but_unfit_pairs(file, tmp_path):
    told = invoke("import", file(UNFIT["empty"][0]), "--run", "x", "--lake", tmp_path / "lake")
    assert told.exit_code == Exit.BAD_INPUT
    assert "1 empty" in told.stderr


def test_unfit_pairs_are_not_exported(file, load, tmp_path):
    load(file(GOOD, *UNFIT["identical"][:3], *UNFIT["empty"]))
    folder = tmp_path / "out"
    arguments = ("export", "x", "pairs", "--as", "trl-dpo", "--output", folder)
    assert invoke(*arguments, "--lake", tmp_path / "lake").exit_code == 0
    assert len(pq.read_table(folder / "train.parquet")) == 1


def test_numbers_of_any_type(tmp_path, load):
    path = tmp_path / "t.parquet"
    columns = {
        "prompt": ["a", "b"],
        "response": ["x", "y"],
        "score": pa.array([Decimal("8.5"), Decimal("-2.0")], pa.decimal128(4, 1)),
        "reward": pa.array(np.array([0.5, 2], np.float16)),
        "ratings": pa.array(
            [{"Correct": Decimal("1.0")}, {"Correct": Decimal("-1.0")}],
            pa.struct([("Correct", pa.decimal128(2, 1))]),
        ),
    }
    pq.write_table(pa.table(columns), path)
    done, rows = load(path)
    assert [row["score"] for row in rows("rewards")] == [8.5, 0.5, -2.0, 2.0]
    assert [row["aspects"][0]["rating"] for row in rows("critiques")] == [1, -1]
    assert not done.notes.unused


@pytest.mark.parametrize("score", ["N/A", "4/5", True, [8], {"value": 8}, "8,5"])
def test_non_numeric_scores(score, file, load):
    asked = {"prompt": "a", "response": "x"}
    done, rows = load(file({**asked, "score": score}, {**asked, "score": " 8.5 "}))
    assert [row["score"] for row in rows("rewards")] == [8.5]
    assert done.notes.unused == {"score": 1}


def test_non_numeric_pair_scores(file, load):
    done, rows = load(file({**GOOD, "metadata": {"score_chosen": "best", "score_rejected": "3"}}))
    assert [row["rejected_reward"] for row in rows("pairs")] == [3]
    assert done.notes.unused == {"metadata.score_chosen": 1}


def test_dates_not_read_as_scores(tmp_path, load):
    path = tmp_path / "t.parquet"
    day = dt.date(2026, 5, 1)
    pq.write_table(pa.Table.from_pylist([{"prompt": "a", "response": "x", "score": day}]), path)
    done, rows = load(path)
    assert rows("rewards") == []
    assert done.notes.unused == {"score": 1}


@pytest.mark.parametrize(
    ("label", "right"),
    [(True, 1), ("false", -1), ("True", 1), (0, -1), ("1", 1), ("maybe", None), (7, None)],
)
def test_labels(label, right, file, load):
    done, rows = load(file({"prompt": "a", "response": "x", "label": label}))
    found = [row["aspects"][0]["rating"] for row in rows("critiques")]
    assert found == ([] if right is None else [right])
    assert bool(done.notes.unused) == (right is None)


def test_non_numeric_ratings_counted(file, load):
    done, _ = load(file({"prompt": "a", "response": "x", "ratings": {"A": "N/A", "B": 1}}))
    assert done.notes.unused == {"ratings.A": 1}


SYSTEM_ROWS = [
    {"system": "s", "question": "q"},
    {"system": "s", "input": "q"},
    {"system": "s", "conversations": [{"from": "human", "value": "q"}]},
    {"messages": [*said("s", "system"), *said("q", "user")]},
]


@pytest.mark.parametrize("asked", SYSTEM_ROWS)
def test_system_of_a_pair(asked, file, load):
    """The system message is part of the pair, for training and for `reward-check` alike."""
    path = file({**asked, "chosen": "a", "rejected": "b"})
    _, rows = load(path)
    (pair,) = rows("pairs")
    assert pair["prompt"] == [*said("s", "system"), *said("q", "user")]
    (judgment,) = file_judgments(path, JudgmentReading())
    assert [turn.content for turn in judgment.messages] == ["s", "q"]
    assert (judgment.first.text, judgment.preferred) == ("a", "first")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"prompt": "else", "chosen": [*said("q", "user"), *said("a")]}, "'prompt' differs"),
        ({"prompt": "q", "messages": said("else", "user"), "chosen": "a"}, "'messages' differs"),
        ({"prompt": "q", "chosen": ["a", "c"]}, "'chosen' is a list of answers"),
    ],
)
def test_contradictions_refused(row, field, file, tmp_path):
    turns = isinstance(row["chosen"], list) and isinstance(row["chosen"][0], dict)
    row["rejected"] = [*said("q", "user"), *said("b")] if turns else "b"
    told = invoke("import", file(row), "--run", "x", "--lake", tmp_path / "lake")
    assert told.exit_code == Exit.BAD_INPUT
    assert f"line 1: {field}" in told.stderr


def test_empty_answer_is_an_answer(tmp_path, load):
    """An empty cell of CSV means the same as an empty text in JSON."""
    path = tmp_path / "rows.csv"
    path.write_text('prompt,response\na,x\nb,""\nc,\n')
    found = [answer.candidate.text for unit in answers_file(path, None).units(9) for answer in unit]
    assert found == ["x", "", ""]
    _, rows = load(path)
    assert [row["text"] for row in rows("candidates")] == ["x", "", ""]
