"""The loop's verdicts on real rows: it never goes on from a worse policy, killed or not."""

import json

import polars as pl
import pytest
from skills import RISING_AND_FALLING, prompts_file, turned
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.model_names import checkpoints, model_of
from lpfloop.loop.lake.query.run_verdicts import run_verdict
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.outcomes import Regressed
from lpfloop.loop.run.stop import Stopped
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder


def test_a_policy_that_loses_a_task_is_not_where_the_next_iteration_begins(tmp_path, monkeypatch):
    told = turned(tmp_path, monkeypatch, RISING_AND_FALLING).notes
    run = open_run(tmp_path / "lake", "a")
    made = checkpoints(run)
    assert [c.iteration for c in made] == [0, 1, 2, 3]
    # M_3 was trained from M_1; M_2 is kept.
    assert made[3].parent_id == made[1].checkpoint_id
    assert made[2].parent_id == made[1].checkpoint_id
    assert (run.folder / made[2].path).is_dir()
    found = run_verdict(run, made)
    assert (found.best.iteration, found.latest.iteration) == (3, 3)
    assert [i.standing and i.standing.accepted for i in found.iterations] == [True, False, True]
    assert [note for note in told if "by 50.0 points in math" in note]
    run.close()


def test_best_and_latest_are_both_named_and_may_differ(tmp_path, monkeypatch):
    turned(tmp_path, monkeypatch, RISING_AND_FALLING[:3])
    run = open_run(tmp_path / "lake", "a")
    assert model_of(run, "best").iteration == 1
    assert model_of(run, "latest").iteration == 2
    run.close()
    command = ["verdict", "a", "--lake", str(tmp_path / "lake"), "--json"]
    answer = json.loads(CliRunner().invoke(app, command).stdout)
    assert (answer["best"]["iteration"], answer["latest"]["iteration"]) == (1, 2)
    assert [i["verdict"] for i in answer["iterations"]] == ["better", "undecided"]
    assert answer["best"]["checkpoint"] == answer["iterations"][0]["checkpoint"]
    text = CliRunner().invoke(app, command[:-1]).stdout
    assert "the best is M_1" in " ".join(text.split())


def test_the_lost_family_is_named_on_both_splits(tmp_path, monkeypatch):
    turned(tmp_path, monkeypatch, RISING_AND_FALLING[:3])
    run = open_run(tmp_path / "lake", "a")
    found = run_verdict(run, checkpoints(run))
    lost = found.iterations[1]
    told = str(found).rpartition("families since M_0, dev: ")[2].splitlines()
    assert told[0] == "1 fell, 1 rose, 2 as before"
    assert told[1].strip() == "math-easy 60 -> 20 (30 prompts)"
    assert [row.name for row in lost.lost("dev")] == ["math-easy"]
    assert [row.name for row in lost.lost("held-out")] == ["math-easy"]
    rows = run.scan("verdicts", iteration=2).collect()
    easy = rows.filter(pl.col("name") == "math-easy", pl.col("against") == "initial")
    assert set(easy["lost"]) == {12 / 30}
    run.close()


@pytest.mark.parametrize(
    ("setting", "parent"), [("continue", 2), ("rollback", 1)], ids=["continue", "rollback"]
)
def test_what_follows_a_regression_is_configured(tmp_path, monkeypatch, setting, parent):
    turned(tmp_path, monkeypatch, RISING_AND_FALLING, f"verdict.on_regression={setting}")
    run = open_run(tmp_path / "lake", "a")
    made = checkpoints(run)
    assert made[3].parent_id == made[parent].checkpoint_id
    run.close()


def test_a_run_may_stop_at_a_regression_and_goes_on_as_a_fork(tmp_path, monkeypatch):
    with pytest.raises(Regressed, match=r"50\.0 points in math .* the best is M_1"):
        turned(tmp_path, monkeypatch, RISING_AND_FALLING, "verdict.on_regression=stop")
    run = open_run(tmp_path / "lake", "a")
    assert checkpoints(run)[-1].iteration == 2
    assert run.journal.events("end")[-1].startswith("Regressed: ")
    run.close()


def test_a_run_ends_once_it_gains_no_more(tmp_path, monkeypatch):
    """RLRF, Section 3.4: until it converges."""
    level = {"math": 0.6, "facts": 0.6}
    skills = ({"math": 0.3, "facts": 0.5}, *[level] * 6)
    turned(tmp_path, monkeypatch, skills, "verdict.converged_after=2")
    run = open_run(tmp_path / "lake", "a")
    assert [c.iteration for c in checkpoints(run)] == [0, 1, 2, 3]
    assert run.journal.events("end")[-1] == "done: no new best in 2 iterations"
    run.close()
    # It is over: nothing is made when it is called again, unless more is asked for.
    turned(tmp_path, monkeypatch, skills, "verdict.converged_after=2")
    turned(tmp_path, monkeypatch, skills, "verdict.converged_after=3")
    run = open_run(tmp_path / "lake", "a")
    assert [c.iteration for c in checkpoints(run)] == [0, 1, 2, 3, 4]
    run.close()


def test_a_run_without_dev_prompts_goes_on_from_its_latest_policy(tmp_path, monkeypatch):
    source = prompts_file(tmp_path)
    rows = [line for line in source.read_text().splitlines() if '"split": "dev"' not in line]
    source.write_text("\n".join(rows))
    turned(tmp_path, monkeypatch, RISING_AND_FALLING, "prompts.dev_share=0")
    run = open_run(tmp_path / "lake", "a")
    made = checkpoints(run)
    assert [c.parent_id for c in made[1:]] == [c.checkpoint_id for c in made[:-1]]
    found = run_verdict(run, made)
    assert found.best == found.latest == made[-1]
    assert {row.split for i in found.iterations for row in i.rows} == {"held-out"}
    run.close()


def test_wherever_it_is_stopped_a_resumed_run_stands_as_if_it_had_not_been(tmp_path, monkeypatch):
    """The best is kept in the lake, so that no resume forgets it."""
    whole = tmp_path / "whole"
    whole.mkdir()
    turned(whole, monkeypatch, RISING_AND_FALLING)
    expected = run_digest(run_folder(whole / "lake", "a"))
    for stop_after in (25, 34, 38, 46, 52):
        folder = tmp_path / str(stop_after)
        folder.mkdir()
        (folder / "prompts.jsonl").write_bytes((whole / "prompts.jsonl").read_bytes())
        with pytest.raises(Stopped):
            turned(folder, monkeypatch, RISING_AND_FALLING, stop_after=stop_after)
        turned(folder, monkeypatch, RISING_AND_FALLING)
        assert run_digest(run_folder(folder / "lake", "a")) == expected, stop_after


def test_a_run_without_verdicts_says_so(tmp_path, monkeypatch):
    turned(tmp_path, monkeypatch, RISING_AND_FALLING[:1])
    told = CliRunner().invoke(app, ["verdict", "a", "--lake", str(tmp_path / "lake")])
    assert told.exit_code == 2
    assert "has no verdicts: it has made no policy yet" in " ".join(told.stderr.split())
