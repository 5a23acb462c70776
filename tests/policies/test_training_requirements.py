"""What keeps a training from its nodes is said in one sentence, before anything is paid."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from allocation import allocate
from altered_node import alter
from ray_clusters import QUIET, ray_cluster_of
from trainings import plain_job

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers import ray_launcher, srun_launcher
from lpfloop.policies.trainers.launchers import LAUNCHERS
from lpfloop.policies.trainers.node_plan import NodePlan, meet, planned, seen_plan, write_plan
from lpfloop.policies.trainers.ray_nodes import bundle
from lpfloop.policies.trainers.srun_launcher import SrunLauncher
from lpfloop.policies.trainers.train_model import TrainingError, prepare
from lpfloop.policies.trainers.trainer_job import job_json
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.training_requirements import require_nodes, require_training_places
from lpfloop.policies.workers.ray_cluster import RayCluster, RayNode

OVER = ("nodes=2", "launcher=srun", "processes=2", "dpo.micro_batch_size=2")
METHODS = ["dpo"]


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("nodes=2",), "nodes=2: launcher=local starts processes on this machine alone"),
        (
            ("launcher=srun", "accelerate_config=own.yaml"),
            "launcher=srun does not go with accelerate_config",
        ),
        (("launcher=ray", "devices=[0]"), "launcher=ray does not go with devices"),
    ],
)
def test_settings_that_exclude_one_another_are_refused(
    settings: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        training(*settings)


def test_outside_an_allocation_srun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ConfigError, match=r"^training\.launcher=srun: this is no Slurm allocation"):
        require_training_places(training(*OVER), METHODS)


@pytest.mark.usefixtures("allocation")
def test_what_the_allocation_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_training_places(training(*OVER), METHODS)
    with pytest.raises(ConfigError, match="sharding=fsdp2: no GPU is visible here"):
        require_training_places(training(*OVER, "sharding=fsdp2"), METHODS)
    with pytest.raises(ConfigError, match=r"nodes=3, and this allocation has 2 \(SLURM_JOB_NUM"):
        require_training_places(training(*OVER, "nodes=3"), METHODS)
    with pytest.raises(ConfigError, match=r"processes=3 are those of all nodes together"):
        require_training_places(training(*OVER, "processes=3"), METHODS)
    with pytest.raises(ConfigError, match=r"is not a multiple of .*\(4 x 16 = 64\)"):
        require_training_places(training("nodes=2", "launcher=srun", "processes=4"), METHODS)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="there is no `srun` on the PATH"):
        require_training_places(training(*OVER), METHODS)


def test_without_ray_its_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_launcher, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"training\.launcher=ray: ray is not installed: .*pip"):
        require_training_places(training("launcher=ray"), METHODS)


@pytest.mark.usefixtures("allocation")
def test_nodes_that_see_the_folder_are_let_through_and_leave_nothing(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    require_nodes(training(*OVER), METHODS, tmp_path / "lake" / "runs" / "a")
    require_nodes(training(), METHODS, tmp_path / "lake")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("allocation")
def test_a_node_that_sees_another_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    alter(monkeypatch, srun_launcher, SEEN_S="2", ELSEWHERE=str(elsewhere))
    with pytest.raises(ConfigError, match=r"cannot start 2 nodes: \S+: this host does not see "):
        require_nodes(training(*OVER), METHODS, tmp_path)
    assert not list(tmp_path.glob(".nodes-*"))


@pytest.mark.usefixtures("allocation")
def test_a_command_that_does_not_run_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(srun_launcher, "NODE_PROGRAM", "no_such_module")
    with pytest.raises(ConfigError, match=r"start 2 nodes: .*No module named no_such_module"):
        require_nodes(training(*OVER), METHODS, tmp_path)


def test_what_an_earlier_start_left_is_not_taken_for_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpfloop.policies.trainers.node_plan.SEEN_S", 0.3)
    old = NodePlan(start="old", nodes=2, processes=1, launcher="srun", devices=(1, 0))
    write_plan(tmp_path, old)
    assert seen_plan(tmp_path, "old") == old
    with pytest.raises(TrainingError, match="does not see"):
        seen_plan(tmp_path, "new")
    first = meet(tmp_path, old, node=0, host="head")
    assert meet(tmp_path, old, node=1, host="other") == first
    assert first.host == "head"
    with pytest.raises(TrainingError, match="what the first node writes"):
        meet(tmp_path, replace(old, start="new"), node=1, host="other")


def test_where_it_runs_is_no_part_of_a_job(tmp_path: Path) -> None:
    job = replace(plain_job(tmp_path), processes=2)
    over = replace(job, fit=TrainingFit(nodes=2, launcher="srun"))
    assert job_json(over) == job_json(job)
    assert (over.processes_per_node, over.accumulation) == (1, job.accumulation)
    with pytest.raises(TrainingError, match="2 processes cannot be shared evenly by 3 nodes"):
        prepare(replace(job, fit=TrainingFit(nodes=3, launcher="srun")))


@pytest.mark.parametrize(("gpus", "processes"), [((0, 8, 4), 8), ((8, 8, 2, 2), 16)])
def test_processes_that_auto_chose_where_no_gpu_is_seen_are_refused_where_nodes_have_some(
    gpus: tuple[int, ...], processes: int
) -> None:
    nodes = tuple(RayNode(host=str(n), gpus=count, cpus=8) for n, count in enumerate(gpus))
    cluster = RayCluster(nodes=nodes, free_gpus=0, free_cpus=0)
    plan = NodePlan(start="s", nodes=2, processes=1, launcher="ray", trains=False)
    assert bundle(plan, cluster) == {"CPU": 1.0}
    with pytest.raises(
        TrainingError, match=rf"shows none, and .*training.processes={processes}, or"
    ):
        bundle(replace(plan, blind=True), cluster)
    bare = replace(cluster, nodes=tuple(replace(node, gpus=0) for node in nodes))
    assert bundle(replace(plan, blind=True), bare) == {"CPU": 1.0}


@pytest.mark.slow
def test_auto_on_a_machine_without_a_gpu_is_refused_by_a_cluster_that_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    with ray_cluster_of(more=("--num-gpus", "4")) as address:
        for name, value in {**QUIET, "RAY_ADDRESS": address}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(
            ConfigError, match=r"which shows none, .* set training\.processes=4, or"
        ):
            require_nodes(training("launcher=ray", "processes=auto"), METHODS, tmp_path)
        require_nodes(training("launcher=ray", "processes=4"), METHODS, tmp_path)


@pytest.mark.usefixtures("allocation")
def test_a_step_of_slurm_has_a_task_a_node_which_may_use_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "72(x2),36")
    monkeypatch.setenv("HF_TOKEN", "a secret")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    job = replace(plain_job(tmp_path), processes=2, fit=TrainingFit(nodes=2, launcher="srun"))
    job.output.mkdir()
    argv = LAUNCHERS["srun"].argv(job)
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=36"} <= {*argv}
    assert {"--relative=0", "--overlap", "--kill-on-bad-exit=1"} <= {*argv}
    environment = SrunLauncher().environment(job)
    assert "a secret" not in environment.values()
    assert environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert seen_plan(job.output, argv[-1]).nodes == 2
    assert planned(job).start != argv[-1]
    assert shutil.which("srun") is not None
