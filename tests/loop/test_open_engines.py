"""Which models of a run stay loaded, which engine gets new weights, and who makes room for whom."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from critic_server import serving_critic
from descent import conversations, descend

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.loop.run import models as run_models
from lpfloop.loop.run.loaded_models import LoadedModels
from lpfloop.loop.run.models import Models, Served
from lpfloop.loop.run.tenants import GIB, Premises
from lpfloop.loop.run.turns import MACHINE, Tenant
from lpfloop.policies.devices import Gpu
from lpfloop.policies.engines.canary import CanaryRow, StaleWeightsError, write_canary
from lpfloop.policies.engines.engine import Engine, EngineError
from lpfloop.policies.engines.scripted_engine import ScriptedEngine

GPU = frozenset({0})
SCRIPTED = ("policy.engine.kind=scripted", "policy.engine.script=scripts:policy")
REAL = ("policy.engine.kind=transformers", "critic.engine.kind=transformers")


def models(tmp_path: Path, critic: str, *more: str, asked: tuple[str, ...] = ("critic",)) -> Models:
    settings = [f"critic.model={critic}", *more]
    return Models.of(load_config("tiny", None, settings, {}), tmp_path, asked=asked)


def test_an_endpoint_takes_no_device_from_the_policy(tmp_path):
    with serving_critic() as url:
        opened = models(tmp_path, url, *SCRIPTED)
        policy = opened.engine(opened.initial)
        critic = opened.engine(opened.feedback)
        assert opened.engine(opened.initial) is policy
        assert opened.engine(opened.feedback) is critic
        opened.close()


def test_a_policy_that_loads_keeps_no_critic_elsewhere_from_answering(tmp_path, monkeypatch):
    loading, loaded = threading.Event(), threading.Event()

    def load(model: str, config: EngineConfig, **_: object) -> Engine:
        if config.kind == "transformers":
            loading.set()
            loaded.wait(600)
        return ScriptedEngine(EngineConfig(kind="scripted"))

    monkeypatch.setattr(run_models, "open_engine", load)
    scripted = "critic.engine.kind=scripted"
    opened = models(tmp_path, "tiny", "policy.engine.kind=transformers", scripted)
    stage = threading.Thread(target=opened.engine, args=(opened.initial,))
    stage.start()
    loading.wait(60)
    assert opened.engine(opened.feedback)
    assert stage.is_alive()
    loaded.set()
    stage.join()


# new weights


@pytest.fixture
def started(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """Give the number of worker processes that were started."""
    caplog.set_level(logging.INFO, "lpfloop.worker")
    return lambda: sum("a worker process loads" in r.getMessage() for r in caplog.records)


def checkpoint(parent: Served, folder: Path) -> Served:
    """Train on: return the next policy, published with its canary."""
    rows = descend(Path(parent.location), folder)
    return published(parent, folder, rows)


def published(parent: Served, folder: Path, rows: list[CanaryRow]) -> Served:
    canary = folder.with_name(f"{folder.name}-canary")
    canary.mkdir()
    write_canary(canary, rows)
    return replace(parent, identity=folder.name, location=str(folder), canary=canary)


def said(engine: Engine) -> list:
    return engine.logprobs(conversations())


@pytest.mark.model
def test_one_process_serves_all_trained_policies_while_the_judge_keeps_m_0(tmp_path, started):
    opened = models(tmp_path / "logs", "tiny", *REAL)
    critic = opened.engine(opened.feedback)
    assert opened.engine(opened.initial) is critic
    first = checkpoint(opened.initial, tmp_path / "m_1")
    policy = opened.engine(first)
    assert started() == 2
    second = checkpoint(first, tmp_path / "m_2")
    before = said(policy)
    opened.make_room()
    assert opened.engine(second) is policy
    assert said(policy) != before
    assert opened.engine(opened.feedback) is critic
    assert started() == 2
    # The one before is asked again: the process that has gone on to other weights comes back.
    assert said(opened.engine(first)) == before
    assert started() == 2
    opened.close()


@pytest.mark.model
def test_m_0_gives_its_process_to_m_1_if_no_judge_needs_it(tmp_path, started):
    opened = models(tmp_path / "logs", "tiny", *REAL, asked=())
    initial = opened.engine(opened.initial)
    first = checkpoint(opened.initial, tmp_path / "m_1")
    assert opened.engine(first) is initial
    assert started() == 1
    # M_0 is asked again, as for references: it has a process of its own from now on.
    again = opened.engine(opened.initial)
    second = checkpoint(first, tmp_path / "m_2")
    assert opened.engine(second) is initial
    assert opened.engine(opened.initial) is again
    assert started() == 2
    opened.close()


@pytest.mark.model
def test_weights_that_do_not_prove_themselves_get_a_new_process_and_no_second_chance(
    tmp_path, started, caplog
):
    opened = models(tmp_path / "logs", "tiny", *REAL, asked=())
    opened.engine(opened.initial)
    rows = descend(Path(opened.initial.location), tmp_path / "m_1")
    swapped = [
        replace(r, logprob_before=r.logprob_after, logprob_after=r.logprob_before) for r in rows
    ]
    with pytest.raises(StaleWeightsError):
        opened.engine(published(opened.initial, tmp_path / "m_1", swapped))
    assert started() == 2
    assert "the new weights get a new process" in caplog.text
    opened.close()


@pytest.mark.model
def test_another_tokenizer_gets_a_new_process_and_the_old_checkpoint_goes(tmp_path, started):
    opened = models(tmp_path / "logs", "tiny", *REAL, asked=())
    first = checkpoint(opened.initial, tmp_path / "m_1")
    old = opened.engine(first)
    second = checkpoint(first, tmp_path / "m_2")
    template = tmp_path / "m_2" / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    assert opened.engine(second) is not old
    assert started() == 2
    with pytest.raises(EngineError):
        said(old)
    opened.close()


# room


class Dozing(ScriptedEngine):
    """An engine that notes whether it sleeps; `fails` names what it cannot do."""

    def __init__(self, fails: str = "") -> None:
        super().__init__(EngineConfig(kind="scripted"))
        self.state = "awake"
        self.fails = fails

    def can_sleep(self) -> bool:
        return self.fails != "can_sleep"

    def sleep(self) -> None:
        self._become("asleep", "sleep")

    def wake(self) -> None:
        self._become("awake", "wake")

    def close(self) -> None:
        self.state = "closed"

    def _become(self, state: str, order: str) -> None:
        if self.fails == order:
            raise EngineError("no")
        self.state = state


def lodger(name: str) -> Tenant:
    return Tenant(name=name, devices=GPU, share=0.9, ram=4, can_sleep=True)


def test_models_of_one_gpu_sleep_and_wake_in_turns_and_none_is_opened_twice():
    loaded, made = LoadedModels(free_ram=lambda: 100), dict[str, Dozing]()

    def bring(name: str) -> Dozing:
        return loaded.bring(lodger(name), lambda: made.setdefault(name, Dozing()))

    for name in ("policy", "critic", "policy", "reward", "critic"):
        assert bring(name).state == "awake"
        assert [m.state for m in made.values()].count("awake") == 1
    assert len(made) == 3
    loaded.make_room(Tenant(name="training", devices=GPU, alone=True))
    assert {m.state for m in made.values()} == {"asleep"}
    elsewhere = Tenant(name="training", devices=frozenset({1}), alone=True)
    assert bring("policy").state == "awake"
    loaded.make_room(elsewhere)
    assert made["policy"].state == "awake"


@pytest.mark.parametrize("fails", ["can_sleep", "sleep", "wake"])
def test_a_model_that_cannot_sleep_or_wake_is_closed_and_opened_again(fails):
    loaded = LoadedModels(free_ram=lambda: 100)
    first, second = Dozing(fails), Dozing()
    loaded.bring(lodger("policy"), lambda: first)
    loaded.bring(lodger("critic"), Dozing)
    assert loaded.bring(lodger("policy"), lambda: second) is second
    assert first.state == "closed"


def test_a_sleeper_takes_new_weights_where_it_lies():
    loaded, policy = LoadedModels(free_ram=lambda: 100), Dozing()
    loaded.bring(lodger("m_1"), lambda: policy)
    loaded.make_room(Tenant(name="training", devices=GPU, alone=True))
    loaded.replace("m_1", lodger("m_2"), policy.wake)
    assert loaded.get("m_1") is None
    assert loaded.bring(lodger("m_2"), Dozing) is policy


# what they take


def config(**settings: object) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", **settings})


def test_what_a_model_takes_of_this_machine_is_known_before_it_is_loaded(tiny_policy, tiny_reward):
    here = Premises(cards={}, ram=100 * GIB)
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


def test_on_gpus_vllm_takes_its_share_and_all_else_the_card(tiny_policy, monkeypatch):
    gpus = tuple(Gpu(handle=str(number), memory=80 * GIB) for number in range(2))
    monkeypatch.setattr("lpfloop.policies.workers.places.visible_gpus", lambda: gpus)
    cards = Premises(cards={0: 80 * GIB, 1: 80 * GIB}, ram=100 * GIB)
    policy = cards.engine("p", str(tiny_policy), config(devices=[1], memory_utilization=0.4))
    assert (policy.devices, policy.share, policy.alone) == ({1}, 0.4, False)
    assert policy.can_sleep
    assert 0 < policy.trace < 0.05
    assert cards.engine("p", str(tiny_policy), config()).devices == {0, 1}
    other = cards.engine("c", str(tiny_policy), config(kind="transformers", devices=[0]))
    assert (other.devices, other.alone, other.can_sleep) == ({0}, True, True)
    training = cards.training((0,), 40 * GIB)
    assert (training.devices, training.alone, training.share) == ({0}, True, 0.5)


def test_where_memory_holds_two_models_a_third_closes_the_one_used_longest_ago(tiny_policy):
    here = Premises(cards={}, ram=12 * GIB)
    loaded, opened = LoadedModels(free_ram=here.free_ram), list[Dozing]()

    def bring(name: str) -> Dozing:
        tenant = here.engine(name, str(tiny_policy), config(kv_cache_gib=4))
        return loaded.bring(tenant, lambda: opened.append(Dozing()) or opened[-1])

    first, second = bring("a"), bring("b")
    assert bring("a") is first
    bring("c")
    assert (first.state, second.state) == ("awake", "closed")
