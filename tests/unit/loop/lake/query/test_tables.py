"""Lists of a run's rows: each filter keeps exactly its rows, in their order."""

from contextlib import closing
from dataclasses import replace

import polars as pl
import pytest
from lakes import (
    PROMPTS,
    RUNS,
    SAMPLES,
    asked_lake,
    make_units,
    unit_rows,
    unordered_candidates,
    write_run,
)
from rows import PROMPT, REWARD

from lpfloop.loop.lake.query.runs import NoSuchRunError, open_run
from lpfloop.loop.lake.query.tables import ListError, rows, words
from lpfloop.stores.derived import DerivedError
from lpfloop.stores.failpoints import arm
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import Candidate, Prompt, Reward
from lpfloop.stores.sealed import DamagedError

ROWS = PROMPTS * SAMPLES * 2
EACH = PROMPTS * 2
"""Rows of each sample number k, in both iterations."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists") / "lake"
    asked_lake(folder)
    return folder


@pytest.fixture
def run(lake):
    reader = open_run(lake, RUNS[0])
    yield reader
    reader.close()


def numbers(found, column="candidate_id"):
    """Return the sample numbers of the rows, and the number of rows."""
    frame = found.collect()
    return set(frame[column].str.split("-").list.last().cast(pl.Int64)), frame.height


def test_filters_of_critiques_and_candidates(run, subtests):
    for table in ("critiques", "candidates"):
        for wanted, expected in [
            ({}, ({0, 1, 2, 3}, ROWS)),
            ({"rating": -1}, ({2}, EACH)),
            ({"aspect": "Factuality", "rating": 0}, ({1}, EACH // 2)),
            ({"unscored": True}, ({3}, EACH)),
            ({"min_reward": 1, "max_reward": 2.0}, ({1, 2}, EACH * 2)),
            ({"kind": "refinement"}, ({1}, EACH)),
            ({"split": "train", "kind": "refinement"}, ({1}, EACH)),
            ({"rating": -1, "task": "fact", "kind": "sample"}, ({2}, EACH // 2)),
        ]:
            with subtests.test(table=table, wanted=wanted, expected=expected):
                assert numbers(rows(run, table, wanted)) == expected
        assert numbers(rows(run, table, {"rating": -1}, iteration=2)) == ({2}, EACH // 2)
        assert numbers(rows(run, table, limit=3)) == ({0, 1, 2}, 3)
        assert numbers(rows(run, table, limit=3, start=ROWS - 2)) == ({2, 3}, 2)


def test_filters_by_text(run, subtests):
    for table, wanted, expected in [
        ("candidates", {"text": r"/^Answer [01]/"}, {0, 1}),
        ("candidates", {"text": r"/^answer/"}, set()),
        ("critiques", {"text": "\u202e\x1b[31m OF prompt-3"}, {0, 1, 2, 3}),
    ]:
        with subtests.test(table=table, wanted=wanted, expected=expected):
            assert numbers(rows(run, table, wanted))[0] == expected


def test_a_list_can_be_sorted(run):
    found = rows(run, "candidates", sort="-reward", limit=EACH + 1).collect()["reward"].to_list()
    assert found == [3.0] * EACH + [2.0]
    texts = rows(run, "critiques", sort="length").collect()["text"].str.len_chars().to_list()
    assert texts == sorted(texts)


def test_filters_of_pairs(run, subtests):
    for wanted, count in [
        ({}, EACH),
        ({"rule": "success_vs_failure"}, EACH),
        ({"aspect": "Factuality", "rating": -1}, EACH // 2),
        ({"task": "math", "min_reward": 4}, PROMPTS // 2),
        ({"text": "2 + 3"}, EACH),
    ]:
        with subtests.test(wanted=wanted, count=count):
            assert rows(run, "pairs", wanted).collect().height == count
    margins = rows(run, "pairs", sort="-margin", limit=2).collect()
    assert margins["chosen_reward"].to_list() == [4.0, 4.0]


def test_any_table_can_be_listed(run):
    assert rows(run, "rewards", {"kind": "refinement"}, iteration=1).collect().height == PROMPTS
    assert rows(run, "prompts", {"task": "math"}, sort="-prompt_id").collect()[
        "prompt_id"
    ].to_list() == ["prompt-4", "prompt-2", "prompt-0"]


def test_unknown_words_are_refused(run, subtests):
    for table, wanted, told in [
        ("critiques", {"task": "maths"}, "fact, math"),
        ("critiques", {"aspect": "Taste"}, "Completeness, Factuality, Logical Correctness"),
        ("candidates", {"kind": "x"}, "external, greedy, refinement, rollout, sample"),
        ("pairs", {"rule": "x"}, "success_vs_failure"),
        ("candidates", {"text": "/(/"}, "not a valid regular expression"),
        ("candidates", {"rule": "x"}, "no filter 'rule'"),
        ("answers", {}, "no table 'answers'"),
    ]:
        with (
            subtests.test(table=table, wanted=wanted, told=told),
            pytest.raises(ListError, match=told),
        ):
            rows(run, table, wanted)
    with pytest.raises(ListError, match="no column to sort by 'size'"):
        rows(run, "pairs", sort="size")
    with pytest.raises(NoSuchRunError, match="does not have iteration 9"):
        rows(run, "pairs", iteration=9)
    with pytest.raises(DerivedError):
        rows(run, "pairs", derived="none")


def test_words_of_filters(run):
    assert words(run, "candidates", "task", 100) == ["fact", "math"]
    assert words(run, "critiques", "aspect", 100) == [
        "Completeness",
        "Factuality",
        "Logical Correctness",
    ]


def test_many_rows_keep_their_order_and_are_listed_once(tmp_path):
    """A candidate with several rewards is one row, with the last reward."""
    answers = unordered_candidates(0, 15_000)
    names = sorted({answer.prompt_id for answer in answers})
    told = [
        replace(REWARD, candidate_id=a.candidate_id, prompt_id=a.prompt_id, score=float(n + again))
        for again in (0, 1)
        for n, a in enumerate(answers)
    ]
    tables = {
        Prompt: [replace(PROMPT, prompt_id=name) for name in names],
        Candidate: answers,
        Reward: told,
    }
    reader = RunReader(write_run(tmp_path, "many", {1: tables}))
    stored = reader.scan("candidates").collect()["candidate_id"].to_list()
    found = rows(reader, "candidates").collect()
    assert found["candidate_id"].to_list() == stored
    scores = dict(zip(found["candidate_id"], found["reward"], strict=True))
    assert scores["cand-0-17"] == 18
    page = rows(reader, "candidates", {"task": PROMPT.task, "min_reward": 100}, limit=50, start=200)
    passing = [name for name in stored if scores[name] >= 100]
    assert page.collect()["candidate_id"].to_list() == passing[200:250]
    reader.close()


def test_lists_of_an_unfinished_run(tmp_path, subtests):
    """Rows lie in the journal, in files, or in a file some of whose units are pending again."""

    def require_same_rows(state):
        reader = RunReader(tmp_path / "a")
        with subtests.test(state), closing(reader):
            stored = reader.scan("candidates").collect()
            assert rows(reader, "candidates").collect()[stored.columns].equals(stored)
            page = rows(reader, "candidates", limit=7, start=3).collect()[stored.columns]
            assert page.equals(stored[3:10])
            last = rows(reader, "candidates", sort="-candidate_id", limit=9).collect()
            names = sorted(stored["candidate_id"], reverse=True)[:9]
            assert last["candidate_id"].to_list() == names
            said = rows(reader, "critiques", {"aspect": "Readability"}, limit=50).collect()
            assert said.equals(reader.scan("critiques").collect())

    with arm({"lake.seal": "enospc"}):
        writer = make_units(tmp_path / "a", [4, 5, 6])
        writer.seal()
    require_same_rows("in the journal")
    writer.seal()
    require_same_rows("in files")
    writer.journal.lose("1-1")
    require_same_rows("pending again")
    with arm({"lake.seal": "enospc"}):
        writer.commit("1-1", unit_rows(1, 5), {})
        writer.flush()
        require_same_rows("made again")
    writer.close()


def test_a_list_has_the_rows_of_the_moment_it_was_asked_for(tmp_path):
    with arm({"lake.seal": "enospc"}):
        writer = make_units(tmp_path / "a", [4, 5])
    reader = RunReader(tmp_path / "a")
    found = rows(reader, "candidates", limit=100), rows(reader, "candidates")
    writer.journal.lose("1-0")
    writer.close()
    assert [frame.collect().height for frame in found] == [9, 9]
    assert rows(reader, "candidates", limit=100).collect().height == 5
    reader.close()


def test_altered_files_are_not_listed(tmp_path, subtests):
    make_units(tmp_path / "a", [4, 5]).close()
    (altered,) = tmp_path.glob("a/files/candidates/*.parquet")
    data = bytearray(altered.read_bytes())
    for place in range(4, len(data) // 4):
        data[place] ^= 1
    altered.write_bytes(data)
    reader = RunReader(tmp_path / "a")
    for limit in (5, None):
        with subtests.test(limit=limit), pytest.raises(DamagedError, match="lake repair"):
            rows(reader, "candidates", limit=limit).collect()
    assert rows(reader, "critiques", limit=5).collect().height == 5
    reader.close()
