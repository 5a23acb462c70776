"""Models of a run: others answer while one loads."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.run import models as run_models
from lpfloop.loop.run.device_inventory import DeviceInventory
from lpfloop.loop.run.loaded_models import Allocation
from lpfloop.loop.run.models import Models
from lpfloop.policies.engines.engine import Engine
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.policies.memory.terms import GIB


def test_critic_answers_while_the_policy_loads(tmp_path, monkeypatch):
    loading, loaded = threading.Event(), threading.Event()

    def load(model: str, config: EngineConfig, **_: object) -> Engine:
        if config.kind == "transformers":
            loading.set()
            loaded.wait(600)
        return ScriptedEngine(EngineConfig(kind="scripted"))

    monkeypatch.setattr(run_models, "open_engine", load)
    settings = ("policy.engine.kind=transformers", "critic.engine.kind=scripted")
    config = load_config("tiny", None, settings, {})
    opened = Models.of(config, tmp_path, {"critic": run_models.place_of(config, "critic")})
    stage = threading.Thread(target=opened.engine, args=(opened.initial,), daemon=True)
    stage.start()
    assert loading.wait(300)
    assert opened.engine(opened.feedback)
    assert stage.is_alive()
    loaded.set()
    stage.join()


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Scripted models, of which the policy is loaded."""
    script = ScriptedEngine(EngineConfig(kind="scripted"))
    monkeypatch.setattr(run_models, "open_engine", lambda *_, **__: script)
    settings = ("policy.engine.kind=scripted", "critic.engine.kind=scripted")
    config = load_config("tiny", None, settings, {})
    found = Models.of(config, tmp_path, {"critic": run_models.place_of(config, "critic")})
    found.engine(found.initial)
    return found


def opened_names(tmp_path, monkeypatch, needed: tuple[str, ...], ram: int) -> list[str]:
    """Return the models that are loaded once M_0 was needed, on a machine without cards."""
    script = ScriptedEngine(EngineConfig(kind="scripted"))
    loaded = list[str]()

    def load(model: str, *_: object, log: Path, **__: object) -> Engine:
        loaded.append(f"{Path(model).name} {log.stem.startswith('engine-next-')}")
        return script

    monkeypatch.setattr(run_models, "open_engine", load)
    monkeypatch.setattr(run_models, "open_scorer", load)
    config = load_config("tiny", None, (), {})
    places = {"critic": run_models.place_of(config, "critic"), "reward": ("tiny", None)}
    roles = {role: places[role] for role in needed}
    models = Models.of(config, tmp_path, roles, training_bytes=GIB)
    models.inventory = DeviceInventory(cards={}, ram=ram)
    models.engine(models.initial)
    models.engine(models.initial)
    models.engine(models.initial)
    return loaded


def test_later_models_load_with_the_policy(tmp_path, monkeypatch):
    loaded = opened_names(tmp_path, monkeypatch, ("critic", "reward"), 64 * GIB)
    assert loaded == ["policy False", "reward False", "policy True"]


def test_only_needed_models_load_ahead(tmp_path, monkeypatch):
    assert opened_names(tmp_path, monkeypatch, (), 64 * GIB) == ["policy False"]


def test_nothing_loads_ahead_of_a_scripted_policy(tmp_path, monkeypatch):
    opened = list[str]()
    monkeypatch.setattr(run_models, "open_scorer", lambda *_, **__: opened.append("reward"))
    config = load_config("tiny", None, ("policy.engine.kind=scripted",), {})
    models = Models.of(config, tmp_path, {"reward": ("tiny", None)}, training_bytes=GIB)
    models.engine(models.initial).close()
    assert opened == []


def test_nothing_loads_ahead_without_room(tmp_path, monkeypatch):
    loaded = opened_names(tmp_path, monkeypatch, ("critic", "reward"), 2 * GIB)
    assert loaded == ["policy False"]


def test_nothing_loads_ahead_next_to_other_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(DeviceInventory, "free_ram", lambda _: 0)
    loaded = opened_names(tmp_path, monkeypatch, ("critic", "reward"), 64 * GIB)
    assert loaded == ["policy False"]


def test_policy_loads_while_settings_change(opened, tmp_path, monkeypatch):
    other = replace(opened.initial, identity="M_1", canary=tmp_path)
    alike = run_models.run_alike

    def load_meanwhile(*engines: EngineConfig) -> bool:
        monkeypatch.setattr(run_models, "run_alike", alike)
        stage = threading.Thread(target=opened.engine, args=(other,))
        stage.start()
        stage.join(60)
        assert not stage.is_alive()
        return alike(*engines)

    monkeypatch.setattr(run_models, "run_alike", load_meanwhile)
    changed = load_config("tiny", None, ("policy.engine.concurrency=3",), {})
    opened.configure(changed)
    assert opened.config is changed


def test_devices_are_looked_up_under_new_settings(opened, monkeypatch):
    changed = load_config("tiny", None, ("critic.engine.concurrency=3",), {})
    looked = list[str]()

    def found(name: str, location: str, engine: EngineConfig) -> Allocation:
        looked.append(location)
        if len(looked) == 1:
            opened.configure(changed)
        return Allocation(name=name)

    monkeypatch.setattr(DeviceInventory, "engine", lambda _, *args: found(*args))
    for _ in range(3):
        assert opened.engine(replace(opened.feedback, identity="another"))
    assert len(looked) == 2
