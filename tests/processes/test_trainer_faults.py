"""lpfloop distinguishes a trainer's failures, retries those that may pass, and limits the retries.

The trainers here are fakes that fail in the same way; they load no model.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from processes import ended, wait_until
from trainings import DIE, plain_job, scripted, stand_in

from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.process import alone
from lpfloop.policies.trainers.train_model import prepare, train
from lpfloop.policies.trainers.work_folder import LOCK, TrainerProgress

pytestmark = pytest.mark.crash

TRANSIENT = {
    "killed": DIE,
    "failed": "raise MemoryError('CUDA out of memory')",
    "hung": "hang()",
    "incomplete": "pass",
}
ENDS = [
    ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
    ("raise MemoryError('CUDA out of memory')", "failed", "MemoryError: CUDA out"),
    ("pass", "incomplete", "complete model"),
]


def job_in(folder: Path) -> TrainJob:
    """Return a job in a new folder."""
    folder.mkdir()
    return plain_job(folder)


def test_end_reasons_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests):
    for number, (code, kind, word) in enumerate(ENDS):
        with subtests.test(code=code):
            stand_in(monkeypatch, code)
            with pytest.raises(TrainingError, match=rf"{word}.*train\.log$") as e:
                train(job_in(tmp_path / str(number)), log=tmp_path / "train.log")
            assert e.value.kind == kind


def test_interrupted_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    rows = [
        {"event": "start", "resumed_from": 0, "pid": 0},
        {"event": "step", "step": 1, "max_steps": 2, "metrics": {"loss": 1.0}},
    ]
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"open({str(job.folder('metrics.jsonl'))!r}, 'a').write({lines!r})\n"
        "time.sleep(600)"
    )
    stand_in(monkeypatch, code)

    def interrupt(progress: TrainerProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, log=tmp_path / "train.log", on_progress=interrupt)
    for pid in (tmp_path / "pids").read_text().split():
        # The test cannot wait for a killed grandchild: the kernel takes a moment to end it.
        wait_until(partial(ended, int(pid)))


def test_retried_until_it_goes_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests):
    for kind, code in TRANSIENT.items():
        with subtests.test(kind=kind):
            job = job_in(tmp_path / kind)
            tries = scripted(monkeypatch, job, code, code, "finish()")
            result = train(job, log=tmp_path / "log" / "train.log", retries=2, hang_timeout_s=2)
            assert result.metrics == {"loss": 0.5}
            assert tries.read_text() == "xxx"


def test_retries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, TRANSIENT["incomplete"])
    with pytest.raises(TrainingError) as e:
        train(job, log=tmp_path / "train.log", retries=2)
    assert e.value.kind == "incomplete"
    assert tries.read_text() == "xxx"
    assert not (job.output / "result.json").exists()


def test_final_faults_are_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests):
    for kind in ("refused", "diverged", "unchanged"):
        with subtests.test(kind=kind):
            job = job_in(tmp_path / kind)
            tries = scripted(monkeypatch, job, f"fault({kind!r})", "finish()")
            with pytest.raises(TrainingError, match=f"it said {kind}") as e:
                train(job, log=tmp_path / "train.log", retries=5)
            assert e.value.kind == kind
            assert tries.read_text() == "x"


def test_hung_trainer_ends_with_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    pids = tmp_path / "pids"
    step = "row(event='step', step=1, max_steps=9, metrics=dict(loss=1.0))"
    scripted(
        monkeypatch,
        job,
        f"""
    row(event="start", resumed_from=0, pid=os.getpid())
    {step}
    import subprocess, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
    hang()""",
    )
    seen: list[TrainerProgress] = []
    with pytest.raises(TrainingError) as e:
        train(job, log=tmp_path / "train.log", on_progress=seen.append, hang_timeout_s=2)
    assert e.value.kind == "hung"
    assert [p.step for p in seen] == [1]
    for pid in pids.read_text().split():
        wait_until(partial(ended, int(pid)))


def test_lock_of_work_folder(tmp_path: Path):
    job = plain_job(tmp_path)
    prepare(job)
    code = (
        "import fcntl, sys\n"
        f"lock = open({str(job.output / LOCK)!r}, 'ab')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TrainingError, match="another trainer still works in") as e:
            prepare(job, retry_timeout_s=0.01)
        assert e.value.kind == "hung"
        holder.kill()
        with alone(job, retry_timeout_s=60):
            assert holder.wait() == -9


def test_halted_while_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job, pid = plain_job(tmp_path), tmp_path / "pid"
    scripted(monkeypatch, job, f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); hang()")
    with pytest.raises(TrainingError) as end:
        train(job, log=tmp_path / "train.log", is_to_end=lambda: written(pid))
    assert end.value.kind == "halted"
    wait_until(partial(ended, int(pid.read_text())))


def written(pid: Path) -> bool:
    """Return whether a process has written its id."""
    return pid.exists() and bool(pid.read_text())
