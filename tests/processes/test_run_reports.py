"""Reports that a run writes while it works: they never delay or end it."""

import shutil
import signal
import sys
from dataclasses import replace

import pytest
from world import Telling, loop, small_config, stand_ins, write_prompts

from lpfloop.loop.daemon import run_reports as reporting
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.run_reports import run_reports
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder

pytest.importorskip("matplotlib")

ENDLESS = "exec sleep 1000"


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Job:
    """A job with a finished run, and with a report after each iteration."""
    folder = tmp_path_factory.mktemp("reported")
    lake = folder / "lake"
    lake.mkdir()
    config = small_config(write_prompts(folder), "report.each_iteration=true")
    with stand_ins(lake):
        loop(lake, config=config)
    return Job(config=config, lake=lake, name="a")


def written(job: Job):
    return run_folder(job.lake, job.name) / "report" / "report.html"


def test_last_report(job):
    reporter = Telling()
    with run_reports(job, reporter) as reports:
        reports.after(None, 0)
        reports.after(None, 1)
    assert "Run a" in written(job).read_text()
    assert reporter.notes == []


def test_last_iteration_is_reported_once(job):
    shutil.rmtree(written(job).parent, ignore_errors=True)
    with run_reports(job, Telling()) as reports:
        reports.after(None, job.config.iterations)
        assert reports._at_work is None
    assert written(job).exists()


def program(folder, line):
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def test_stopped_run_waits_for_no_report(job, tmp_path, monkeypatch):
    shutil.rmtree(written(job).parent, ignore_errors=True)
    monkeypatch.setattr(sys, "executable", program(tmp_path, ENDLESS))
    reporter, begun = Telling(), []

    def stopped():
        with run_reports(job, reporter) as reports:
            reports.after(None, 0)
            begun.append(reports._at_work)
            raise Stopped

    with pytest.raises(Stopped):
        stopped()
    # A note would show that the run waited until the report's timeout.
    assert reporter.notes == []
    assert [process.returncode for process in begun] == [-signal.SIGKILL]
    assert not written(job).exists()


@pytest.mark.parametrize(
    ("line", "limit_s", "said"),
    [
        ("echo nothing can be drawn >&2; exit 3", 900.0, "nothing can be drawn"),
        (ENDLESS, 0.0, "it took over"),
        (None, 900.0, "needs Matplotlib"),
    ],
    ids=["fails", "takes long", "no Matplotlib"],
)
def test_run_ends_without_its_report(job, tmp_path, monkeypatch, line, limit_s, said):
    if line is None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    else:
        monkeypatch.setattr(sys, "executable", program(tmp_path, line))
    monkeypatch.setattr(reporting, "LAST_S", limit_s)
    reporter, unreported = Telling(), replace(job, lake=tmp_path)
    with stand_ins(tmp_path), run_reports(unreported, reporter) as reports:
        run_loop(unreported, reporter, StopSignal(), on_turned=reports.after)
    assert [said in note for note in reporter.notes if "report" in note] == [True]
    assert not written(unreported).exists()
    assert len({run_digest(run_folder(lake, job.name)) for lake in (job.lake, tmp_path)}) == 1
