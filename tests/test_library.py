"""`lpfloop.open`: a run from Python, read-only, light to import, safe while it is written."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest
from told import M1, PAIRED, candidate, critique, prompt, told_run, write_run

import lpfloop
from lpfloop.loop.lake.query.runs import NoSuchRunError
from lpfloop.loop.lake.trace.find_row import NoSuchIdError
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Prompt

TABLES = (
    "prompts",
    "candidates",
    "critiques",
    "rewards",
    "preferences",
    "pairs",
    "demonstrations",
    "unpaired_answers",
    "yields",
    "checkpoints",
    "reward_models",
    "rollouts",
    "statistics",
    "evaluations",
    "scores",
    "grades",
    "prompt_reviews",
    "receipts",
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    told_run(folder)
    return folder


@pytest.fixture
def run(lake):
    with lpfloop.open(lake / "runs" / "told") as run:
        yield run


def loaded(code):
    """Return the modules that a fresh process has after `code`."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


# what it costs


def test_importing_the_package_loads_nothing_heavy():
    names = loaded("import lpfloop")
    assert not names & {"polars", "pyarrow", "numpy", "pydantic", "rich", "typer", "torch"}
    assert {name for name in names if name.startswith("lpfloop")} == {"lpfloop"}


def test_a_run_is_read_without_torch_or_an_extra(lake):
    code = f"import lpfloop\nrun = lpfloop.open({str(lake / 'runs' / 'told')!r})\n"
    names = loaded(code + "run.show('prompt-1')._repr_html_(); run.pairs().collect()")
    assert not names & {"torch", "transformers", "datasets", "duckdb", "lancedb", "openai"}


# opening


def test_a_run_is_opened_by_folder_by_name_or_as_the_latest(lake, monkeypatch):
    for run in (
        lpfloop.open(str(lake / "runs" / "told")),
        lpfloop.open("told", lake=lake),
        lpfloop.open(lake=str(lake)),
    ):
        assert run.name == "told"
        run.close()
    monkeypatch.setenv("LPFLOOP_LAKE", str(lake))
    with lpfloop.open("told") as run:
        assert run.folder == lake / "runs" / "told"
        assert repr(run).startswith(f"run told in {lake}/runs/told: ")
    assert repr(run) == f"lpfloop.open('{lake}/runs/told'), closed"


def test_a_run_that_is_not_there_is_refused_with_what_there_is(lake, tmp_path):
    with pytest.raises(NoSuchRunError, match="runs there: told"):
        lpfloop.open("nobody", lake=lake)
    with pytest.raises(NoSuchRunError, match=r"there is no run at .*give a run's folder"):
        lpfloop.open(tmp_path / "runs" / "x")


# rows


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_a_lazy_frame(run, table):
    rows = getattr(run, table)()
    assert isinstance(rows, pl.LazyFrame)
    assert rows.collect().columns == rows.collect_schema().names()


def test_rows_show_their_number_their_columns_and_the_first_of_them(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    title, head, first, *_, hidden = repr(run.candidates()).splitlines()
    assert title == "candidates: 17 rows, 17 columns; the first 8, .collect() reads all"
    assert head.split()[:2] == ["candidate_id", "prompt_id"]
    assert "text" in head.split()
    assert first.startswith("cand-")
    assert set(hidden.removeprefix("not shown: ").split(", ")) < set(
        run.candidates().collect_schema()
    )
    assert max(map(len, repr(run.candidates()).splitlines()[:-1])) <= 100


def test_what_is_computed_from_rows_shows_its_first_rows_and_is_not_counted(run):
    computed = run.candidates().filter(pl.col("iteration") >= 0).sort("candidate_id")
    assert str(computed).startswith("more than 8 rows, 17 columns; the first 8, ")
    assert repr(computed.head(1)).startswith("1 row, 17 columns\n")
    assert "NO_SUCH_COLUMN" in repr(run.pairs().filter(pl.col("NO_SUCH_COLUMN") == 1))


def test_messages_and_ratings_are_shown_as_texts(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "Question 1?" in repr(run.prompts())
    assert "[{" not in repr(run.critiques())


def test_a_run_tells_its_state_its_verdicts_and_its_results(run):
    told = str(run.summary())
    assert "rows: " in told
    assert "17 candidates" in told
    assert re.search(r"^prompts +figure +M_0", told, re.MULTILINE)
    assert run._repr_html_().count("<table>") == 1


def test_settings_are_plain_data(run):
    assert run.config["training"]["reference"] == "previous"


def test_rows_can_be_of_one_iteration(run):
    assert run.candidates().collect().height == 17
    assert run.candidates(iteration=1).filter(kind="greedy").collect().height == 6
    assert run.pairs(iteration=2).collect().height == 0


def test_ratings_have_a_row_for_each_aspect(run):
    ratings = run.ratings(iteration=1)
    assert isinstance(ratings, pl.LazyFrame)
    means = ratings.group_by("aspect").agg(pl.col("rating").mean(), n=pl.len()).collect()
    found = {row["aspect"]: (row["rating"], row["n"]) for row in means.to_dicts()}
    assert found == {
        "Comprehension": (1.0, 4),
        "Completeness": (0.25, 4),
        "Readability": (0.5, 4),
    }
    assert ratings.collect()["task"].unique().to_list() == ["math"]


def test_rows_become_a_dataset(run):
    datasets = pytest.importorskip("datasets")
    pairs = run.pairs(iteration=1).to_hf()
    assert isinstance(pairs, datasets.Dataset)
    assert pairs[0]["chosen"] == [{"role": "assistant", "content": "5"}]
    long = run.candidates().filter(pl.col("text").str.len_chars() > 15).select("text").to_hf()
    assert long.column_names == ["text"]


def test_without_datasets_one_sentence_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"to_hf\(\) needs datasets: .*pip install 'datasets>="):
        run.pairs().to_hf()


def test_sql_is_about_this_run_alone(lake, tmp_path):
    pytest.importorskip("duckdb")
    told_run(tmp_path)
    told_run(tmp_path, "twin")
    with lpfloop.open("told", lake=tmp_path) as run:
        found = run.sql("select run, count(*) as n from pairs group by run")
    assert found.to_dicts() == [{"run": "told", "n": 1}]


def test_rows_that_a_daemon_commits_meanwhile_are_seen_by_the_next_call(tmp_path):
    folder = run_folder(tmp_path, "live")
    writer = RunWriter(Journal.create(folder, {"config": "{}"}))
    writer.journal.plan(1, "made", "x", lambda: ["k0", "k1"])
    with lpfloop.open(folder) as run:
        writer.commit("k0", {Candidate: [candidate("a", PAIRED, "one")]}, {})
        writer.flush()
        before = run.candidates()
        writer.commit("k1", {Candidate: [candidate("b", PAIRED, "two")]}, {})
        writer.flush()
        assert before.collect().height == 1
        assert run.candidates().collect().height == 2
    writer.close()


# tracing


def test_what_is_shown_reads_as_text_as_html_and_as_rows(run):
    shown = run.show("cand-better")
    assert "▶ refinement cand-better" in str(shown)
    assert "<ins>right </ins>" in shown._repr_html_()
    assert json.loads(json.dumps(shown.document))["prompt"]["prompt_id"] == "prompt-1"
    assert shown.rows.height == 3
    assert "recipe rlrf" in str(run.show(M1))
    assert run.show(M1).rows["before"].to_list() == [pytest.approx(1 / 3)]


def test_html_holds_hostile_text_as_text(tmp_path):
    asked = replace(prompt(1), task="<img src=x onerror=alert(1)>", reference="\u202e</div>")
    answer = candidate("<b>", asked, "<script>alert(1)</script>\x1b[2J")
    said = critique(answer, 1)
    tables = {1: {Prompt: [asked], Candidate: [answer], type(said): [said]}}
    with lpfloop.open(write_run(tmp_path, "hostile", tables)) as run:
        pages = run.show("prompt-1")._repr_html_() + run.lineage("prompt-1")._repr_html_()
        pages += run.candidates()._repr_html_() + run.prompts()._repr_html_() + run._repr_html_()
        told = repr(run.candidates()) + repr(run.prompts())
    assert not [bad for bad in ("<script", "<img", "<b>", "\x1b", "\u202e") if bad in pages]
    assert not [bad for bad in ("\x1b", "\u202e") if bad in told]


def test_lineage_and_differences_are_text_html_and_data(run):
    traced = run.lineage("pair-made")
    assert str(traced).startswith("pair pair-made")
    assert traced._repr_html_().startswith("<pre>pair pair-made")
    assert traced.rows.columns == ["source", "source_kind", "relation", "target", "target_kind"]
    changed = run.diff(0, 1)
    assert "[-wrong-]{+right+}" in str(changed)
    assert "<del>wrong</del>" in changed._repr_html_()
    assert changed.changes.height == 4
    assert run.diff(1, 1, other=run).changes.height == 0


def test_an_unknown_id_is_refused(run):
    with pytest.raises(NoSuchIdError, match="id 'cand-nobody' is not in run told"):
        run.show("cand-nobody")


# the guide

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_guides_examples_run(root, tmp_path, monkeypatch, capsys):
    pytest.importorskip("datasets")
    pytest.importorskip("duckdb")
    told_run(tmp_path, "tiny-rlrf")
    monkeypatch.setenv("LPFLOOP_LAKE", str(tmp_path))
    names = {}
    for block in BLOCK.findall((root / "docs" / "python.md").read_text()):
        exec(compile(block, "docs/python.md", "exec"), names)  # noqa: S102 -- our own guide
    assert names["dataset"].num_rows == 1
    assert names["means"].height == 3
    assert names["worse"]["prompt_id"].to_list() == ["prompt-14"]
    assert "pair pair-made" in capsys.readouterr().out
