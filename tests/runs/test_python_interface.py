"""Python has the commands' results: lists, measures, exports."""

import polars as pl
import pytest
from lakes import told_run

import lpfloop


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interface")
    told_run(folder)
    told_run(folder, "twin")
    with lpfloop.open("told", lake=folder) as run:
        yield run


def test_lists_take_filters(run):
    assert run.candidates(kind="greedy", limit=3).collect().height == 3
    rated = run.critiques(aspect="Completeness", rating=1).collect()
    assert 0 < rated.height < run.critiques().collect().height
    assert (
        run.candidates(sort="-completion_tokens")
        .collect()["completion_tokens"]
        .is_sorted(descending=True)
    )
    assert run.candidates(task="math").collect().columns == run.candidates().collect().columns
    with pytest.raises(ValueError, match="no task 'mats' here"):
        run.candidates(task="mats")
    assert (
        run.rows("rewards", kind="greedy").collect().height < run.rows("rewards").collect().height
    )
    assert run.sql("select count(*) as n from failures where rating = -1")["n"].item() > 0
    assert run.pairs(min_reward=10**6).collect().is_empty()


def test_measures_are_frames(run):
    assert run.compare("twin", against="twin")["runs"].to_list()[-1] == ["twin"]
    with pytest.raises(ValueError, match="not in the comparison"):
        run.compare(against="nobody")
    assert isinstance(run.critic_check(), pl.DataFrame)
    with pytest.raises(ValueError, match="--by colour: no such group"):
        run.critic_check(by="colour")
    assert run.status()["run"] == "told"
    assert run.models()["name"].to_list()[0] == "M_0"
    assert run.derived() == []
    assert run.alarms(limit=1).collect().height <= 1
    assert "rlrf" in lpfloop.recipes()["name"].to_list()


def test_table_exported_and_imported(run, tmp_path):
    done = run.export("pairs", format="trl-dpo", output=tmp_path / "pairs")
    assert sum(done.files.values()) == 1
    (name,) = done.files
    file = done.folder / name
    with lpfloop.import_files(file, name="again", lake=tmp_path / "lake") as again:
        assert again.pairs().collect().height == 1
    with pytest.raises(ValueError, match="no such"):
        lpfloop.rebuild_pairs(run, rule="no-such-rule")
