"""The loop's verdicts on real rows: it never continues from a worse policy, killed or not."""

import json
from contextlib import closing

import pytest
from typer.testing import CliRunner
from world import RISING_AND_FALLING, skilled_run

from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.result_block import result_lines
from lpfloop.loop.lake.query.format_figures import format_bounds, format_level
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.model_names import checkpoints, model_of
from lpfloop.loop.lake.query.run_verdicts import run_verdict
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.statistics.decisions import level_of_look
from lpfloop.loop.library.read_only_run import run_summary
from lpfloop.loop.report.result_table import result_table
from lpfloop.loop.report.run_answer import run_answer
from lpfloop.loop.run.stop import Regressed, Stopped
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder


def test_policy_that_loses_a_task_is_left(tmp_path, monkeypatch):
    skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING)
    run = open_run(tmp_path / "lake", "a")
    made = checkpoints(run)
    assert [c.iteration for c in made] == [0, 1, 2, 3]
    # M_3 descends from M_1; the lake keeps M_2.
    assert made[3].parent_id == made[1].checkpoint_id
    assert made[2].parent_id == made[1].checkpoint_id
    assert (run.folder / made[2].path).is_dir()
    found = run_verdict(run, made)
    assert (found.best.iteration, found.latest.iteration) == (3, 3)
    assert [i.standing and i.standing.accepted for i in found.iterations] == [True, False, True]
    left = found.iterations[1].standing
    assert left is not None
    assert "math" in left.reason
    run.close()


def test_best_and_latest_may_differ(tmp_path, monkeypatch):
    """M_2 lost half of its math accuracy."""
    skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING[:3])
    run = open_run(tmp_path / "lake", "a")
    assert model_of(run, "best").iteration == 1
    assert model_of(run, "latest").iteration == 2
    run.close()
    command = ["verdict", "a", "--lake", str(tmp_path / "lake"), "--json"]
    answer = json.loads(CliRunner().invoke(app, command).stdout)
    assert (answer["best"]["iteration"], answer["latest"]["iteration"]) == (1, 2)
    assert [i["verdict"] for i in answer["iterations"]] == ["better", "undecided"]


def test_change_has_one_interval(tmp_path, monkeypatch):
    """All outputs show the verdict's interval, at its level."""
    skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING)
    lake = tmp_path / "lake"

    def asked(*words):
        return CliRunner().invoke(app, [*words, "--lake", str(lake)]).stdout

    with closing(open_run(lake, "a")) as run:
        made = checkpoints(run)
        row = run_verdict(run, made).iterations[-1].of("held-out", "initial")
        assert row is not None
        shown = format_bounds(row.figure, row.low, row.high)
        results = run_results(run)
        figure = results.figure(row.figure)[row.iteration]
        assert (figure.change_low, figure.change_high) == (row.low, row.high)
        assert (
            figure.change_level == row.level == pytest.approx(level_of_look(0.05, 3, (True, True)))
        )
        assert shown in run_answer(run).sentences[0]
        assert shown in result_lines(run)[0]
        blocks = result_table(results).blocks
        cells = [cell for block in blocks for _, of in block.lines for cell in of]
        assert any(shown in cell.change for cell in cells)
        assert shown in str(run_summary(run))
        assert "held-out prompts (test)" in str(run_summary(run))
    for words in (["status", "a"], ["verdict", "a"], ["compare", "a", "--against", "M_0"]):
        text = asked(*words, *(["--format", "table"] if words[0] == "compare" else []))
        assert shown in text, words
        assert format_level(row.level) in text, words
    document = json.loads(asked("verdict", "a", "--json"))["iterations"][-1]
    (of_all,) = [r for r in document["against"]["initial"]["held-out"] if r["scope"] == "all"]
    assert of_all["level"] == row.level


def test_run_may_stop_at_regression(tmp_path, monkeypatch):
    with pytest.raises(Regressed, match="M_1"):
        skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING, "verdict.on_regression=stop")
    run = open_run(tmp_path / "lake", "a")
    assert checkpoints(run)[-1].iteration == 2
    assert run.journal.events("end")[-1].startswith("Regressed: ")
    run.close()


def test_run_ends_when_converged(tmp_path, monkeypatch):
    """RLRF, Section 3.4: until it converges."""
    level = {"math": 0.6, "facts": 0.6}
    skills = ({"math": 0.3, "facts": 0.5}, *[level] * 6)
    skilled_run(tmp_path, monkeypatch, skills, "verdict.converged_after=2")
    run = open_run(tmp_path / "lake", "a")
    assert [c.iteration for c in checkpoints(run)] == [0, 1, 2, 3]
    assert run.journal.events("end")[-1] == "done: no new best in 2 iterations"
    run.close()
    # The run is over: another call does nothing unless it raises `converged_after`.
    skilled_run(tmp_path, monkeypatch, skills, "verdict.converged_after=2")
    skilled_run(tmp_path, monkeypatch, skills, "verdict.converged_after=3")
    run = open_run(tmp_path / "lake", "a")
    assert [c.iteration for c in checkpoints(run)] == [0, 1, 2, 3, 4]
    run.close()


def test_stopped_run_resumes_to_same_digest(tmp_path, monkeypatch):
    """The lake stores the best policy, so that every resume knows it."""
    whole = tmp_path / "whole"
    whole.mkdir()
    skilled_run(whole, monkeypatch, RISING_AND_FALLING)
    expected = run_digest(run_folder(whole / "lake", "a"))
    (tmp_path / "prompts.jsonl").write_bytes((whole / "prompts.jsonl").read_bytes())
    with pytest.raises(Stopped):
        skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING, stop_after=46)
    skilled_run(tmp_path, monkeypatch, RISING_AND_FALLING)
    assert run_digest(run_folder(tmp_path / "lake", "a")) == expected
