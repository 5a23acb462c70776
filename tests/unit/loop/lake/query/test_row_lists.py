"""Lists of a run's rows: each filter keeps exactly the rows that it names, in their order."""

import polars as pl
import pytest
from lakes import PROMPTS, RUNS, SAMPLES, asked_lake

from lpfloop.loop.lake.query.row_lists import ListError, RowSelection, candidates, critiques, pairs
from lpfloop.loop.lake.query.runs import open_run

ROWS = PROMPTS * SAMPLES * 2
EACH = PROMPTS * 2
"""Of each sample number k, in both iterations."""


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
    """Return the sample numbers of the rows, and how many rows there are."""
    rows = found.collect()
    return set(rows[column].str.split("-").list.last().cast(pl.Int64)), rows.height


def test_filters_of_critiques_and_candidates(run, subtests):
    for listed in [critiques, candidates]:
        for wanted, expected in [
            (RowSelection(), ({0, 1, 2, 3}, ROWS)),
            (RowSelection(iteration=2), ({0, 1, 2, 3}, ROWS // 2)),
            (RowSelection(rating=-1), ({2}, EACH)),
            (RowSelection(aspect="Factuality", rating=0), ({1}, EACH // 2)),
            (RowSelection(unscored=True), ({3}, EACH)),
            (RowSelection(min_reward=1, max_reward=2), ({1, 2}, EACH * 2)),
            (RowSelection(kind="refinement"), ({1}, EACH)),
            (RowSelection(limit=3), ({0, 1, 2}, 3)),
            (RowSelection(rating=-1, iteration=1, task="fact", kind="sample"), ({2}, EACH // 4)),
        ]:
            with subtests.test(listed=listed, wanted=wanted, expected=expected):
                assert numbers(listed(run, wanted)) == expected


def test_filters_by_length_and_text(run, subtests):
    for listed, wanted, expected in [
        (candidates, RowSelection(min_length=20, max_length=30), {1, 2}),
        (critiques, RowSelection(max_length=10), set()),
        (candidates, RowSelection(text=r"/^Answer [01]/"), {0, 1}),
        (candidates, RowSelection(text=r"/^answer/"), set()),
        (critiques, RowSelection(text="\u202e\x1b[31m OF prompt-3"), {0, 1, 2, 3}),
    ]:
        with subtests.test(listed=listed, wanted=wanted, expected=expected):
            assert numbers(listed(run, wanted))[0] == expected


def test_a_list_can_be_sorted(run):
    found = (
        candidates(run, RowSelection(sort="-reward", limit=EACH + 1)).collect()["reward"].to_list()
    )
    assert found == [3.0] * EACH + [2.0]
    texts = critiques(run, RowSelection(sort="length")).collect()["text"].str.len_chars().to_list()
    assert texts == sorted(texts)


def test_filters_of_pairs(run, subtests):
    for wanted, rows in [
        (RowSelection(), EACH),
        (RowSelection(min_margin=2), PROMPTS),
        (RowSelection(rule="success_vs_failure", iteration=1), PROMPTS),
        (RowSelection(aspect="Factuality", rating=-1), EACH // 2),
        (RowSelection(task="math", min_reward=4), PROMPTS // 2),
        (RowSelection(text="2 + 3"), EACH),
        (RowSelection(sort="-margin", limit=2), 2),
    ]:
        with subtests.test(wanted=wanted, rows=rows):
            assert pairs(run, wanted).collect().height == rows


def test_unknown_words_are_refused(run, subtests):
    for listed, wanted, told in [
        (critiques, RowSelection(task="maths"), "fact, math"),
        (pairs, RowSelection(rule="x"), "success_vs_failure"),
        (candidates, RowSelection(text="/(/"), "not a valid regular expression"),
    ]:
        with (
            subtests.test(listed=listed, wanted=wanted, told=told),
            pytest.raises(ListError, match=told),
        ):
            listed(run, wanted)
