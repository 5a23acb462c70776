"""GPUs that a process sees, and the placement of a model's replicas on them."""

import pytest
from models import UUID, show_gpus

from lpfloop.configs.mistakes import ConfigError
from lpfloop.policies import devices
from lpfloop.policies.devices import Gpu, visible_gpus
from lpfloop.policies.workers.environment import worker_environment
from lpfloop.policies.workers.places import DeviceGroup, device_groups

FOUR = tuple(Gpu(handle=str(n)) for n in range(4))
ONE = FOUR[:1]


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, *["24 GiB"] * 4)


def numbers(groups: tuple[DeviceGroup, ...]) -> list[tuple[int, ...]]:
    return [group.numbers for group in groups]


@pytest.mark.usefixtures("four")
def test_visible_gpus(environ) -> None:
    """CUDA would show the same ones."""
    for told, handles in (
        (None, ["0", "1", "2", "3"]),
        ("2,0", ["2", "0"]),
        (f"{UUID.format(number=3)}, 1", [UUID.format(number=3), "1"]),
        ("GPU-2f", ["GPU-2f"]),
        ("1,7,2", ["1"]),
        ("", []),
        ("-1", []),
        ("MIG-abc", ["MIG-abc"]),
    ):
        if told is not None:
            environ[devices.VISIBLE] = told
        assert [gpu.handle for gpu in visible_gpus()] == handles


def test_replicas_share_out_the_devices() -> None:
    for given, groups in (
        (("auto", "auto"), [(0,), (1,), (2,), (3,)]),
        (("auto", "auto", 2), [(0, 1), (2, 3)]),
        (("auto", 3), [(0,), (1,), (2,)]),
        (((3, 1, 2), "auto", 2), [(3, 1)]),
        (((2,), 1), [(2,)]),
        (("auto", "auto", 4), [(0, 1, 2, 3)]),
    ):
        assert numbers(device_groups("policy.engine", *given, visible=FOUR)) == groups


def test_what_the_machine_cannot_follow(subtests) -> None:
    for given, setting in (
        (((0, 4), "auto"), "devices"),
        (((1, 1), "auto"), "devices"),
        (((), "auto"), "devices"),
        (("auto", 5), "replicas"),
        (((0, 1, 2), 2, 2), "replicas"),
        (((0,), "auto", 2), "tensor_parallel"),
    ):
        with (
            subtests.test(given=given),
            pytest.raises(ConfigError, match=rf"policy\.engine\.{setting}="),
        ):
            device_groups("policy.engine", *given, visible=FOUR)
    with pytest.raises(ConfigError, match=r"reward\.devices"):
        device_groups("reward", (1,), "auto", visible=ONE)


def test_replicas_on_a_cpu() -> None:
    assert device_groups("policy.engine", "auto", "auto", visible=()) == (DeviceGroup(),)
    assert len(device_groups("policy.engine", "auto", 3, 2, visible=())) == 3
    with pytest.raises(ConfigError, match=r"reward\.devices"):
        device_groups("reward", (0,), "auto", visible=())


@pytest.mark.usefixtures("four")
def test_a_worker_sees_its_own_gpus(environ) -> None:
    second = device_groups("policy.engine", "auto", "auto", 2)[1]
    seen = worker_environment(None, second)
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    uuid = UUID.format(number=2)
    environ[devices.VISIBLE] = f"{uuid},0"
    first = device_groups("policy.engine", (0,), "auto")[0]
    seen = worker_environment(None, first)
    assert seen["CUDA_VISIBLE_DEVICES"] == uuid
    assert "CUDA_DEVICE_ORDER" not in seen
