"""Every way in which a trainer can fail is told apart, tried again if that may help, and bounded.

The trainers here are stand-ins that behave as one does in that trouble; nothing is loaded.
"""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from trainings import DIE, SFT, plain_job, safetensors, scripted, stand_in
from waiting import ended, wait_until

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.preflight import needed_bytes, parameters
from lpfloop.policies.trainers.train_model import TrainerProgress, TrainingError, prepare, train
from lpfloop.policies.trainers.trainer_process import LOCK, LONGEST_LOOK_S, Silence, alone
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"processes": 3}, r"batch_size 4 is not a multiple of .*3 x 2 = 6"),
        ({"settings": SFT}, "dpo cannot be trained with SFTTraining"),
        ({"data": ()}, "no data"),
        ({"data": (Path("/no/such.parquet"),)}, "/no/such.parquet does not exist"),
        ({"reference": Path("/no/model")}, "/no/model does not exist"),
    ],
)
def test_an_unfit_job_is_refused_before_anything_starts(tmp_path: Path, change, message):
    job = replace(plain_job(tmp_path), **change)
    with pytest.raises(TrainingError, match=message) as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "refused"
    assert not job.output.exists()


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            "import os; os.kill(os.getpid(), 9)",
            "killed",
            "killed by SIGKILL .*before its first step",
        ),
        ("import os; os.kill(os.getpid(), 11)", "killed", "killed by SIGSEGV before"),
        ("raise MemoryError('CUDA out of memory')", "failed", "exit code 1: MemoryError: CUDA out"),
        ("pass", "incomplete", "without a complete model"),
        (
            (
                "import subprocess, sys; subprocess.run([sys.executable, '-c', "
                "'import os; os.kill(os.getpid(), 9)'], check=True)"
            ),
            "killed",
            "killed by SIGKILL",
        ),
    ],
)
def test_every_end_of_the_child_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, message: str
):
    stand_in(monkeypatch, code)
    with pytest.raises(TrainingError, match=message + r".*; log: .*train\.log$") as e:
        train(plain_job(tmp_path), log=tmp_path / "train.log")
    assert e.value.kind == kind


def test_an_interrupted_parent_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    rows = [
        {"event": "start", "resumed_from": 0, "pid": 0},
        {"event": "step", "step": 1, "max_steps": 2, "metrics": {"loss": 1.0}},
    ]
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"open({str(job.folder('metrics.jsonl'))!r}, 'a').write({lines!r})\n"
        "time.sleep(60)"
    )
    stand_in(monkeypatch, code)

    def interrupt(progress: TrainerProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, log=tmp_path / "train.log", on_progress=interrupt)
    for pid in (tmp_path / "pids").read_text().split():
        # A killed grandchild is not ours to wait for: the kernel takes a moment to end it.
        wait_until(partial(ended, int(pid)))


TRANSIENT = {
    "killed": DIE,
    "failed": "raise MemoryError('CUDA out of memory')",
    "hung": "hang()",
    "incomplete": "pass",
}


@pytest.mark.parametrize("kind", TRANSIENT)
def test_what_may_go_well_the_next_time_is_tried_again_and_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, TRANSIENT[kind], TRANSIENT[kind], "finish()")
    with caplog.at_level(logging.WARNING, "lpfloop.trainer"):
        result = train(job, log=tmp_path / "log" / "train.log", retries=2, stall_s=2)
    assert result.metrics == {"loss": 0.5}
    assert len(tries.read_text()) == 3
    told = [r.getMessage() for r in caplog.records]
    assert [t[-37:] for t in told] == [
        "train.log; starting it again (1 of 2)", "train.log; starting it again (2 of 2)",
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "retries"), [("killed", 0), ("failed", 1), ("incomplete", 2)])
def test_retries_are_bounded_and_nothing_is_left_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, retries: int
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, TRANSIENT[kind])
    with pytest.raises(TrainingError) as e:
        train(job, log=tmp_path / "train.log", retries=retries)
    assert e.value.kind == kind
    assert len(tries.read_text()) == 1 + retries
    assert not (job.output / "result.json").exists()


@pytest.mark.parametrize("kind", ["refused", "diverged", "unchanged"])
def test_what_would_end_alike_again_is_final_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, f"fault({kind!r})", "finish()")
    with pytest.raises(TrainingError, match=f"it said {kind}; log: ") as e:
        train(job, log=tmp_path / "train.log", retries=5)
    assert e.value.kind == kind
    assert len(tries.read_text()) == 1


def test_the_fault_of_an_earlier_attempt_is_not_that_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = plain_job(tmp_path)
    scripted(monkeypatch, job, "fault('incomplete')", DIE)
    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=tmp_path / "train.log", retries=1)


def test_a_trainer_that_hangs_is_ended_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
    with pytest.raises(
        TrainingError, match=r"made no step for \d+ s after step 1 of 9: it hangs; log: "
    ) as e:
        train(job, log=tmp_path / "train.log", on_progress=seen.append, stall_s=2)
    assert e.value.kind == "hung"
    assert [p.step for p in seen] == [1]
    for pid in pids.read_text().split():
        wait_until(partial(ended, int(pid)))


def test_silence_ends_with_each_sign_and_a_parent_that_slept_itself_blames_nobody():
    silence = Silence(100.0, sign=0)
    assert silence.look(0, 100.5) == 0.5
    assert silence.look(0, 101.0) == 1.0
    assert silence.look(1, 101.2) == 0.0
    assert silence.look(1, 101.7) == 0.5
    assert silence.look(1, 86_400.0) == 0.5 + LONGEST_LOOK_S


def test_what_a_poll_raises_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    pid = tmp_path / "pid"
    scripted(monkeypatch, job, f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); hang()")

    def stop() -> bool:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(job, log=tmp_path / "train.log", is_to_end=stop, retries=3)
    wait_until(partial(ended, int(pid.read_text())))


def test_a_work_folder_has_one_trainer_and_is_free_when_that_one_dies(tmp_path: Path):
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
            prepare(job, patience_s=0.01)
        assert e.value.kind == "hung"
        holder.kill()
        with alone(job, patience_s=60):
            assert holder.wait() == -9


def test_a_model_that_is_no_safetensors_file_is_refused(tmp_path: Path):
    job = plain_job(tmp_path)
    (job.model / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(TrainingError, match=r"model\.safetensors is no safetensors file") as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "refused"


def test_the_room_that_a_training_needs(tmp_path: Path):
    job = plain_job(tmp_path)
    layer = "model.layers.0.mlp.up_proj.weight"
    (job.model / "model.safetensors").write_bytes(safetensors({layer: [10, 20], "b": [3]}))
    assert parameters(job.model) == 203
    adapters = 2 * (10 + 20)
    fits = {
        "narrow": TrainingFit(weights="bfloat16"),
        "bytes": TrainingFit(optimizer="adamw_8bit"),
        "adapted": TrainingFit(lora=LoRAConfig(r=2)),
        "halved": TrainingFit(lora=LoRAConfig(r=2), publish="bfloat16"),
    }
    # Each epoch is one step. After each but the last a checkpoint may be made, and three are there
    # at a time.
    for epochs, checkpoints in ((1.0, 0), (2.0, 1), (4.0, 3), (40.0, 3)):
        settings = job.settings.model_copy(update={"epochs": epochs})
        trained = replace(job, settings=settings)
        assert needed_bytes(trained) == 4 * 203 * (1 + 3 * checkpoints)
        needed = {name: needed_bytes(replace(trained, fit=fit)) for name, fit in fits.items()}
        assert needed == {
            "narrow": 4 * 203 * (1 + 3 * checkpoints),
            "bytes": 4 * 203 + (4 + 1 + 1) * 203 * checkpoints,
            "adapted": 4 * 203 + 4 * adapters * (1 + 3 * checkpoints),
            "halved": 2 * 203 + 4 * adapters * (1 + 3 * checkpoints),
        }


def test_a_full_disk_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, "finish()")
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    shape = [free // 4, 2]
    (job.model / "model.safetensors").write_bytes(safetensors({"a": shape}))
    with pytest.raises(TrainingError, match=r"needs \d+\.\d GB more room in .*; make room") as e:
        train(job, log=tmp_path / "train.log", retries=2)
    assert e.value.kind == "refused"
    assert not tries.exists()
