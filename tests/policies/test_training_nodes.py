"""A training over several nodes is the training of one, and leaves no process on any of them.

The nodes are on this machine, each of one process, by gloo: a step of a stand-in for Slurm that
starts its tasks here, and actors of a real Ray cluster of two raylets.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from allocation import allocate
from altered_node import alter
from safetensors.torch import load_file
from trainings import DPO, dpo_job, make_world, same, starts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers import srun_launcher
from lpfloop.policies.trainers.train_model import (
    TrainerProgress,
    TrainingError,
    TrainJob,
    TrainResult,
    train,
)
from lpfloop.policies.trainers.trainer_job import job_json
from lpfloop.policies.trainers.trainer_steps import read_steps
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.training_requirements import require_nodes

STEPS = 6
LONG = 48
"""Steps of a training that is to be killed before its end, however late that is seen."""
SRUN = TrainingFit(nodes=2, launcher="srun")
RAY = TrainingFit(nodes=2, launcher="ray")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of two nodes here, which the environment names."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # Ray's sockets need a short path.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="r") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_worker_niceness", "0")  # as the other processes, on two shared cores
        size = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=size)
        cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield
        cluster.shutdown()


def short_job(world: Path, output: Path, steps: int = STEPS, **changes: Any) -> TrainJob:
    """Return a job of a few steps in one process, or as the changes say."""
    job = dpo_job(world, output)
    settings = DPO.model_copy(update={"epochs": steps * DPO.batch_size / 96})
    return replace(job, settings=settings, **changes)


def of(job: TrainJob) -> list[int]:
    """Return the processes of a job, on whatever node."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(job.output) in command and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def ended(job: TrainJob, within_s: float = 90.0) -> bool:
    """Whether no process of the job is left, soon."""
    deadline = time.monotonic() + within_s
    while of(job) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not of(job)


def rank(job: TrainJob, number: int) -> int:
    """Return the process of a rank of the job."""
    for pid in of(job):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={number}".encode() in environment:
            return pid
    raise AssertionError(f"no rank {number}")


def killer(job: TrainJob) -> Callable[[TrainerProgress], None]:
    """Return what kills the second rank of a job once, when a checkpoint is there."""
    killed: list[int] = []

    def kill(progress: TrainerProgress) -> None:
        if progress.step > 1 and not killed:
            killed.append(rank(job, 1))
            os.kill(killed[0], signal.SIGKILL)

    return kill


def nodes(job: TrainJob) -> list[int]:
    """Return the tasks of a job's step: each is its node's part."""
    programs = [(pid, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")) for pid in of(job)]
    return [
        pid
        for pid, program in programs
        if os.fsencode(srun_launcher.NODE_PROGRAM) in program and b"--overlap" not in program
    ]


def near(one: TrainResult, other: TrainResult, within: float = 1e-5) -> None:
    """Compare two trainings of the same batches: steps and weights."""
    names = ("loss", "grad_norm", "rewards/chosen", "logps/chosen")
    for mine, theirs in zip(one.history, other.history, strict=True):
        assert [mine[n] for n in names] == pytest.approx(
            [theirs[n] for n in names], rel=1e-3, abs=1e-4
        )
    first, second = (load_file(r.output / "model.safetensors") for r in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.allclose(second[name], atol=within), name


@pytest.mark.model
@pytest.mark.usefixtures("allocation")
def test_two_nodes_of_slurm_give_the_weights_of_one_process(world: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    alone = train(short_job(world, tmp_path / "alone"), log=log)
    job = short_job(world, tmp_path / "nodes", processes=2, fit=SRUN)
    over = train(job, log=log, checkpoint_minutes=0)
    near(over, alone)
    assert ended(job)
    told = json.loads((job.output / "accelerate.json").read_text())
    assert (told["num_machines"], told["num_processes"]) == (2, 2)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
@pytest.mark.usefixtures("allocation")
def test_if_one_rank_is_killed_all_nodes_end_and_it_goes_on_to_the_same_bits(
    world: Path, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    whole, cut = (
        short_job(world, tmp_path / name, LONG, processes=2, fit=SRUN) for name in ("whole", "cut")
    )
    uninterrupted = train(whole, log=log, checkpoint_minutes=0)

    with pytest.raises(TrainingError) as error:
        train(cut, log=log, on_progress=killer(cut), checkpoint_minutes=0)
    assert error.value.kind in ("killed", "failed")
    assert ended(cut)
    # On one machine now: where it runs is no part of what it is.
    resumed = train(replace(cut, fit=TrainingFit()), log=log)
    assert len(starts(cut.output)) == 2
    assert starts(cut.output)[1] > 0
    assert same(resumed, uninterrupted)


PARENT = """
import sys
from pathlib import Path
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.trainer_job import read_job
from lpfloop.policies.trainers.training_fit import TrainingFit
from dataclasses import replace

work = Path(sys.argv[1])
job = replace(read_job(work.parent / "told.json"), fit=TrainingFit(nodes=2, launcher=sys.argv[2]))
train(job, log=work.parent / "parent.log", checkpoint_minutes=0)
"""


def killed_parent(job: TrainJob, at: int) -> None:
    """Run the job in a process of its own, which is killed after a step, and nothing else is."""
    job.output.parent.mkdir(exist_ok=True)
    (job.output.parent / "told.json").write_text(job_json(job))
    arguments = [sys.executable, "-c", PARENT, str(job.output), job.fit.launcher]
    with subprocess.Popen(arguments) as parent:
        while parent.poll() is None:
            steps = read_steps(job.folder("metrics.jsonl"))
            if steps and steps[-1].step >= at:
                parent.kill()
            time.sleep(0.05)
    assert parent.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
@pytest.mark.usefixtures("allocation")
def test_no_rank_outlives_a_parent_that_is_killed(world: Path, tmp_path: Path) -> None:
    job = short_job(world, tmp_path / "own" / "work", LONG, processes=2, fit=SRUN)
    killed_parent(job, at=2)
    assert ended(job)
    assert train(job, log=tmp_path / "train.log").steps == LONG
    assert starts(job.output)[1] > 0


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
@pytest.mark.usefixtures("allocation")
def test_told_by_slurm_that_time_is_over_it_saves_and_ends_as_the_run_says(
    world: Path, tmp_path: Path
) -> None:
    """Slurm's signal goes to the nodes' tasks as well as to the run."""
    log = tmp_path / "train.log"
    job = short_job(world, tmp_path / "work", LONG, processes=2, fit=SRUN)
    over: list[int] = []

    def tell(progress: TrainerProgress) -> None:
        if not over:
            over.extend(nodes(job))
            for pid in over:
                os.kill(pid, signal.SIGTERM)

    with pytest.raises(TrainingError, match="it goes on from its checkpoint after step") as error:
        train(job, log=log, on_progress=tell, is_to_end=lambda: bool(over))
    assert (error.value.kind, len(over)) == ("halted", 2)
    assert ended(job)
    assert train(job, log=log).steps == LONG
    assert starts(job.output)[1] > 0


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
@pytest.mark.usefixtures("cluster")
def test_actors_of_ray_give_the_weights_of_one_process_whoever_is_killed(
    world: Path, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    alone = train(short_job(world, tmp_path / "alone", LONG), log=log)
    job = short_job(world, tmp_path / "own" / "work", LONG, processes=2, fit=RAY)
    killed_parent(job, at=2)
    assert ended(job)

    with pytest.raises(TrainingError) as error:
        train(job, log=log, on_progress=killer(job), checkpoint_minutes=0)
    assert error.value.kind in ("killed", "failed")
    assert ended(job)
    near(train(job, log=log), alone, within=1e-4)
    assert ended(job)
    assert len(starts(job.output)) == 3
    assert 0 < starts(job.output)[1] <= starts(job.output)[2]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_cannot_hold_the_nodes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*settings: str) -> TrainingConfig:
        over = ("launcher=ray", "nodes=2", "processes=auto", *settings)
        return load_config(None, None, tuple(f"training.{s}" for s in over), {}).training

    require_nodes(asked(), ["dpo"], tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"nodes: Ray: training\.nodes=3, and the cluster has 2"):
        require_nodes(asked("nodes=3"), ["dpo"], tmp_path)
    with pytest.raises(ConfigError, match="the cluster has no GPU, and on a CPU nothing is div"):
        require_nodes(asked("sharding=fsdp2"), ["dpo"], tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"nodes: Ray: nobody answers at RAY_ADDRESS="):
        require_nodes(asked(), ["dpo"], tmp_path)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("allocation")
def test_divided_over_two_nodes_it_is_the_training_of_one_process(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP2 as on GPUs, killed on the first node: each node's shards are in the work folder."""
    log = tmp_path / "train.log"
    alone = train(short_job(world, tmp_path / "alone"), log=log)
    alter(monkeypatch, srun_launcher, WORKER="fsdp_on_cpu")
    fit = replace(SRUN, sharding="fsdp2")
    job = short_job(world, tmp_path / "divided", processes=2, fit=fit)
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#2:kill")
    with pytest.raises(TrainingError):
        train(job, log=log, checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    assert ended(job)
    parts = job.output / "checkpoints" / "checkpoint-2" / "pytorch_model_fsdp_0"
    assert len(list(parts.glob("*.distcp"))) == 2
    near(train(job, log=log, checkpoint_minutes=0), alone)
    assert starts(job.output) == [0, 2]
