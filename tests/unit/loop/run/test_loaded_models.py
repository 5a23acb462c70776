"""Models that stay loaded on a machine, and models that make room for others."""

import pytest

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.loop.run.device_inventory import GIB, DeviceInventory
from lpfloop.loop.run.loaded_models import MACHINE, Allocation, LoadedModels
from lpfloop.policies.devices import Gpu
from lpfloop.policies.workers.hosted_model import HostedModel

GPU = frozenset({0})


class Dozing(HostedModel[EngineConfig]):
    """A model without processes that records whether it sleeps."""

    def __init__(self) -> None:
        self.state = "awake"

    def can_sleep(self) -> bool:
        return True

    def sleep(self) -> None:
        self.state = "asleep"

    def wake(self) -> None:
        self.state = "awake"

    def close(self) -> None:
        self.state = "closed"


def allocation(name: str) -> Allocation:
    return Allocation(name=name, devices=GPU, share=0.9, ram=4, can_sleep=True)


def test_sleeping_in_turns():
    loaded, made = LoadedModels(free_ram=lambda: 100), dict[str, Dozing]()

    def bring(name: str) -> Dozing:
        return loaded.bring(allocation(name), lambda: made.setdefault(name, Dozing()))

    for name in ("policy", "critic", "policy", "reward", "critic"):
        assert bring(name).state == "awake"
        assert [m.state for m in made.values()].count("awake") == 1
    assert len(made) == 3
    loaded.make_room(Allocation(name="training", devices=GPU, alone=True))
    assert {m.state for m in made.values()} == {"asleep"}
    elsewhere = Allocation(name="training", devices=frozenset({1}), alone=True)
    assert bring("policy").state == "awake"
    loaded.make_room(elsewhere)
    assert made["policy"].state == "awake"


def config(**settings: object) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", **settings})


def test_needs_of_a_model(tiny_policy, tiny_reward):
    here = DeviceInventory(cards={}, ram=100 * GIB)
    policy = here.engine("p", str(tiny_policy), config(kv_cache_gib=9))
    assert policy.devices == {MACHINE}
    assert 0.1 < policy.share < 0.12
    assert not policy.can_sleep
    twice = here.engine("p", str(tiny_policy), config(kv_cache_gib=9, replicas=2))
    assert twice.share == pytest.approx(2 * policy.share)
    assert here.scorer("r", str(tiny_reward), RewardConfig()).share < 0.01
    assert here.engine("e", "http://judge/v1", EngineConfig()).devices == frozenset()
    assert here.engine("s", "tiny", config(kind="scripted")).devices == frozenset()
    assert here.training("auto", 45 * GIB).share == pytest.approx(0.5)


def test_shares_of_gpus(tiny_policy, monkeypatch):
    gpus = tuple(Gpu(handle=str(number), memory=80 * GIB) for number in range(2))
    monkeypatch.setattr("lpfloop.policies.workers.places.visible_gpus", lambda: gpus)
    cards = DeviceInventory(cards={0: 80 * GIB, 1: 80 * GIB}, ram=100 * GIB)
    policy = cards.engine("p", str(tiny_policy), config(devices=[1], memory_utilization=0.4))
    assert (policy.devices, policy.share, policy.alone) == ({1}, 0.4, False)
    assert policy.can_sleep
    assert 0 < policy.trace < 0.05
    assert cards.engine("p", str(tiny_policy), config()).devices == {0, 1}
    other = cards.engine("c", str(tiny_policy), config(kind="transformers", devices=[0]))
    assert (other.devices, other.alone, other.can_sleep) == ({0}, True, True)
    training = cards.training((0,), 40 * GIB)
    assert (training.devices, training.alone, training.share) == ({0}, True, 0.5)


def test_least_used_is_closed(tiny_policy):
    here = DeviceInventory(cards={}, ram=12 * GIB)
    loaded, opened = LoadedModels(free_ram=here.free_ram), list[Dozing]()

    def bring(name: str) -> Dozing:
        allocation = here.engine(name, str(tiny_policy), config(kv_cache_gib=4))
        return loaded.bring(allocation, lambda: opened.append(Dozing()) or opened[-1])

    first, second = bring("a"), bring("b")
    assert bring("a") is first
    bring("c")
    assert (first.state, second.state) == ("awake", "closed")
