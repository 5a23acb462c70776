"""Reports that a run writes while it goes on: never in its way, and told once if they fail."""

import shutil
import signal
import sys
from dataclasses import replace

import pytest
from crashing import Telling, loop, small_config, stand_ins, write_prompts
from operated import Operated

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.run_reports import run_reports
from lpfloop.loop.run.stop import Stopped
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import run_folder

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Job:
    """A job whose run is finished, and which is to write its report after each iteration."""
    folder = tmp_path_factory.mktemp("reported")
    lake = folder / "lake"
    lake.mkdir()
    config = small_config(write_prompts(folder), "report.each_iteration=true")
    with stand_ins(lake):
        loop(lake, config=config)
    return Job(config=config, lake=lake, name="a")


def written(job: Job):
    return run_folder(job.lake, job.name) / "report" / "report.html"


def test_the_last_report_is_there_when_the_run_has_ended(job):
    reporter = Telling()
    with run_reports(job, reporter) as reports:
        reports.after(None, 0)
        reports.after(None, 1)
    assert "Run a" in written(job).read_text()
    assert reporter.notes == []


def test_whoever_stops_a_run_does_not_wait_for_its_report(job, tmp_path, monkeypatch):
    shutil.rmtree(written(job).parent, ignore_errors=True)
    endless = tmp_path / "python"
    endless.write_text("#!/bin/sh\nexec sleep 1000\n")
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    reporter, begun = Telling(), []

    def stopped():
        with run_reports(job, reporter) as reports:
            reports.after(None, 0)
            begun.append(reports._at_work)
            raise Stopped

    with pytest.raises(Stopped):
        stopped()
    # Whoever waited for it would say that it took too long.
    assert reporter.notes == []
    assert [process.returncode for process in begun] == [-signal.SIGKILL]
    assert not written(job).exists()


def test_what_goes_wrong_is_told_once_with_what_to_do(job, tmp_path):
    reporter = Telling()
    lake = tmp_path / "lake"
    (run_folder(lake, "a")).mkdir(parents=True)
    (run_folder(lake, "a") / JOURNAL).write_text("no journal")
    with run_reports(replace(job, lake=lake), reporter) as reports:
        reports.after(None, 0)
    (note,) = reporter.notes
    assert "the report could not be written" in note
    assert f"`lpfloop report a --lake {lake}` writes it" in note
    assert "report.each_iteration=false" in note


def test_without_matplotlib_the_run_says_so_once_and_goes_on(job, monkeypatch):
    shutil.rmtree(written(job).parent, ignore_errors=True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    reporter = Telling()
    with run_reports(job, reporter) as reports:
        reports.after(None, 0)
        reports.after(None, 1)
    (note,) = reporter.notes
    assert "needs Matplotlib" in note
    assert "install" in note
    assert not written(job).exists()


def test_none_is_written_where_none_is_wanted(job):
    shutil.rmtree(written(job).parent, ignore_errors=True)
    quiet = job.config.model_copy(
        update={"report": job.config.report.model_copy(update={"each_iteration": False})}
    )
    with run_reports(replace(job, config=quiet), Telling()) as reports:
        reports.after(None, 0)
    assert not written(job).exists()


def test_a_run_from_the_command_line_leaves_its_report(tmp_path):
    operated = Operated(tmp_path)
    operated.environment["LPFLOOP_REPORT__EACH_ITERATION"] = "true"
    code, _, stderr = operated.call("run", *operated.options, "--set", "iterations=1")
    assert code == 4, stderr
    page = (operated.run / "report" / "report.html").read_text()
    assert "there was nothing to train on" in page
