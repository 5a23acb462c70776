"""Lists of a run's rows: each filter keeps exactly the rows that it names, in their order."""

import json

import polars as pl
import pytest
from asked import PROMPTS, RUNS, SAMPLES, make_lake
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.lake.query.failures import counted, failures
from lpfloop.loop.lake.query.forms import By
from lpfloop.loop.lake.query.row_lists import ListError, RowSelection, candidates, critiques, pairs
from lpfloop.loop.lake.query.runs import open_run

ROWS = PROMPTS * SAMPLES * 2
EACH = PROMPTS * 2
"""Of each sample number k, in both iterations."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists") / "lake"
    make_lake(folder)
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


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RowSelection(), ({0, 1, 2, 3}, ROWS)),
        (RowSelection(iteration=2), ({0, 1, 2, 3}, ROWS // 2)),
        (RowSelection(task="math"), ({0, 1, 2, 3}, ROWS // 2)),
        (RowSelection(rating=-1), ({2}, EACH)),
        (RowSelection(aspect="Factuality", rating=0), ({1}, EACH // 2)),
        (RowSelection(aspect="Completeness"), ({0, 1, 2}, EACH // 2 * 3)),
        (RowSelection(unscored=True), ({3}, EACH)),
        (RowSelection(min_reward=1, max_reward=2), ({1, 2}, EACH * 2)),
        (RowSelection(kind="refinement"), ({1}, EACH)),
        (RowSelection(kind="external"), (set(), 0)),
        (RowSelection(limit=3), ({0, 1, 2}, 3)),
        (RowSelection(rating=-1, iteration=1, task="fact", kind="sample"), ({2}, EACH // 4)),
    ],
)
@pytest.mark.parametrize("listed", [critiques, candidates])
def test_filters_of_critiques_and_candidates(run, listed, wanted, expected):
    assert numbers(listed(run, wanted)) == expected


@pytest.mark.parametrize(
    ("listed", "wanted", "expected"),
    [
        (candidates, RowSelection(min_length=20, max_length=30), {1, 2}),
        (critiques, RowSelection(max_length=10), set()),
        (critiques, RowSelection(min_length=10), {0, 1, 2, 3}),
        (candidates, RowSelection(text="ANSWER 2"), {2}),
        (candidates, RowSelection(text=r"/^Answer [01]/"), {0, 1}),
        (candidates, RowSelection(text=r"/^answer/"), set()),
        (critiques, RowSelection(text="\u202e\x1b[31m OF prompt-3"), {0, 1, 2, 3}),
        (candidates, RowSelection(text="."), set()),
        (candidates, RowSelection(text="/"), set()),
    ],
)
def test_filters_by_length_and_text(run, listed, wanted, expected):
    assert numbers(listed(run, wanted))[0] == expected


def test_rows_come_in_the_order_in_which_they_were_made(run):
    made = run.scan("candidates").collect()
    wanted = RowSelection(task="fact", min_reward=0, kind="sample")
    found = candidates(run, wanted).collect()["candidate_id"].to_list()
    assert found == [i for i in made["candidate_id"] if i in set(found)]
    first = candidates(
        run, RowSelection(task="fact", min_reward=0, kind="sample", limit=2)
    ).collect()
    assert first["candidate_id"].to_list() == found[:2]


def test_a_list_can_be_sorted(run):
    found = (
        candidates(run, RowSelection(sort="-reward", limit=EACH + 1)).collect()["reward"].to_list()
    )
    assert found == [3.0] * EACH + [2.0]
    texts = critiques(run, RowSelection(sort="length")).collect()["text"].str.len_chars().to_list()
    assert texts == sorted(texts)
    assert (
        critiques(run, RowSelection(sort="-reward", limit=1)).collect()["candidate_id"].item()[-1]
        == "3"
    )


def test_critiques_and_pairs_have_the_columns_of_their_nouns(run):
    for table, listed in (("critiques", critiques), ("pairs", pairs)):
        for wanted in (RowSelection(), RowSelection(task="math", min_reward=-9, sort="task")):
            columns = listed(run, wanted).collect_schema()
            assert columns == run.scan(table).collect_schema()


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (RowSelection(), EACH),
        (RowSelection(min_margin=2), PROMPTS),
        (RowSelection(min_margin=9), 0),
        (RowSelection(rule="success_vs_failure", iteration=1), PROMPTS),
        (RowSelection(aspect="Factuality", rating=-1), EACH // 2),
        (RowSelection(rating=0), 0),
        (RowSelection(task="math", min_reward=4), PROMPTS // 2),
        (RowSelection(text="2 + 3"), EACH),
        (RowSelection(max_length=1), EACH),
        (RowSelection(sort="-margin", limit=2), 2),
    ],
)
def test_filters_of_pairs(run, wanted, rows):
    assert pairs(run, wanted).collect().height == rows


def test_failures_have_a_row_for_each_reason(run):
    found = failures(run, RowSelection(iteration=1)).collect()
    one = found.filter(prompt_id="prompt-1")
    assert one.select("status", "aspect", "rating", "text", "reward").rows() == [
        ("moderate", "Factuality", 0, "comment 1", 1.0),
        ("failure", "Factuality", -1, "comment 2", 2.0),
        ("unreadable", None, None, "critique 3 \u202e\x1b[31m of prompt-1", 3.0),
        ("length", None, None, "Answer 3: word word word ", 3.0),
    ]
    assert set(one["task"]) == {"fact"}
    assert set(found["kind"]) == {"sample", "refinement"}


@pytest.mark.parametrize(
    ("wanted", "statuses"),
    [
        (RowSelection(rating=-1), {"failure"}),
        (RowSelection(aspect="Factuality"), {"failure", "moderate"}),
        (RowSelection(aspect="Completeness"), set()),
        (RowSelection(unscored=True), {"unreadable"}),
        (RowSelection(kind="refinement"), {"moderate"}),
        (RowSelection(min_length=40), {"length", "unreadable"}),
        (RowSelection(max_reward=1), {"moderate"}),
        (RowSelection(text="comment 2"), {"failure"}),
    ],
)
def test_filters_of_failures(run, wanted, statuses):
    assert set(failures(run, wanted).collect()["status"]) == statuses


def test_failures_are_counted(run):
    by = {by: counted(failures(run, RowSelection()), by).collect() for by in By}
    half = EACH // 2
    assert by[By.STATUS].rows() == [
        (status, EACH, EACH) for status in ("failure", "length", "moderate", "unreadable")
    ]
    assert ("Factuality", "failure", half, half) in by[By.ASPECT].rows()
    assert ("math", "length", half, half) in by[By.TASK].rows()


@pytest.mark.parametrize(
    ("listed", "wanted", "told"),
    [
        (
            critiques,
            RowSelection(task="maths"),
            "no task 'maths' here; did you mean 'math'\\? there are: fact, math",
        ),
        (critiques, RowSelection(aspect="Fact"), "Completeness, Factuality, Logical Correctness"),
        (failures, RowSelection(aspect="Fact"), "Completeness, Factuality, Logical Correctness"),
        (candidates, RowSelection(kind="x"), "external, greedy, refinement, rollout, sample"),
        (pairs, RowSelection(rule="x"), "success_vs_failure"),
        (candidates, RowSelection(sort="x"), "completion_tokens"),
        (pairs, RowSelection(sort="kind"), "margin"),
        (candidates, RowSelection(text="/(/"), "not a valid regular expression"),
    ],
)
def test_a_word_that_the_run_does_not_know_is_refused(run, listed, wanted, told):
    with pytest.raises(ListError, match=told):
        listed(run, wanted)


def test_a_run_without_rows_has_empty_lists(tmp_path):
    from lpfloop.stores.journal import Journal
    from lpfloop.stores.lake import run_folder

    Journal.create(run_folder(tmp_path, "new"), {"config": "{}"}).close()
    reader = open_run(tmp_path, "new")
    for listed in (critiques, candidates, pairs, failures):
        assert listed(reader, RowSelection(min_reward=0, rating=-1)).collect().height == 0
    reader.close()


def invoke(lake, *arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--lake", str(lake)])


@pytest.mark.parametrize("command", ["critiques", "candidates", "pairs", "failures"])
def test_the_commands_write_every_form(lake, command):
    counts = set()
    lines = invoke(lake, command, "a", "--format", "jsonl")
    counts.add(len(lines.stdout.splitlines()))
    document = invoke(lake, command, "a", "--json")
    counts.add(len(json.loads(document.stdout)))
    parquet = invoke(lake, command, "a", "--format", "parquet")
    counts.add(pl.read_parquet(parquet.stdout_bytes).height)
    csv = invoke(lake, command, "a", "--format", "csv")
    counts.add(pl.read_csv(csv.stdout_bytes).height)
    assert len(counts) == 1
    table = invoke(lake, command, "a", "--format", "table", "--limit", "2")
    assert table.stderr == "2 rows\n"
    assert "\x1b" not in table.stdout


def test_the_commands_pass_their_filters_on(lake):
    told = "--iteration 1 --task fact --aspect Factuality --rating -1 --text 2 --sort -reward"
    bounds = "--min-reward 0 --max-reward 9 --min-length 1 --max-length 99"
    shared = (*told.split(), *bounds.split())
    for command in ("critiques", "candidates", "failures"):
        told = invoke(lake, command, "a", *shared, "--kind", "sample", "--json")
        assert len(json.loads(told.stdout)) == PROMPTS // 2, told.stderr
    margin = ("--min-margin", "0", "--rule", "success_vs_failure")
    told = invoke(lake, "pairs", "a", *shared, *margin, "--json")
    assert len(json.loads(told.stdout)) == PROMPTS // 2, told.stderr


def test_no_rows_are_no_error_and_an_unknown_word_is(lake):
    none = invoke(lake, "critiques", "a", "--rating", "-1", "--aspect", "Completeness")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "0 rows\n")
    slip = invoke(lake, "critiques", "a", "--task", "maths")
    assert (slip.exit_code, slip.stdout) == (Exit.BAD_INPUT, "")
    assert slip.stderr == (
        "error: there is no task 'maths' here; did you mean 'math'? there are: fact, math\n"
    )
    assert invoke(lake, "pairs", "a", "--derived", "x").exit_code == Exit.BAD_INPUT
    assert invoke(lake, "pairs", "a", "--json", "--format", "csv").exit_code == Exit.BAD_INPUT


def test_sql_answers_and_lists_what_can_be_asked(lake):
    told = invoke(lake, "sql", "select count(*) as n from critiques", "--run", "a", "--json")
    assert json.loads(told.stdout) == [{"n": ROWS}]
    tables = {json.loads(line)["table"] for line in invoke(lake, "sql").stdout.splitlines()}
    assert {"prompts", "ratings", "units", "events"} <= tables
    bad = invoke(lake, "sql", "select * from critiks")
    assert bad.exit_code == Exit.BAD_INPUT
    assert bad.stderr.count("\n") == 1
    assert invoke(lake, "sql", "select 1", "--run", "x").exit_code == Exit.BAD_INPUT


@pytest.mark.parametrize(
    "command",
    [
        ("config", "variants"),
        ("lake", "failpoints"),
        ("status", "a"),
        ("lake", "verify", "a"),
        ("lake", "gc", "a", "--dry-run"),
    ],
)
def test_other_commands_that_list_write_csv(lake, command):
    at = ("--lake", str(lake)) if "a" in command else ()
    told = CliRunner().invoke(app, [*command, *at, "--format", "csv"])
    assert told.exit_code == 0, told.stderr
    assert len(pl.read_csv(told.stdout_bytes).columns) > 1
