"""Models of a run: others answer while one loads."""

import threading
from dataclasses import replace

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.run import models as run_models
from lpfloop.loop.run.device_inventory import DeviceInventory
from lpfloop.loop.run.loaded_models import Allocation
from lpfloop.loop.run.models import Models
from lpfloop.policies.engines.engine import Engine
from lpfloop.policies.engines.scripted_engine import ScriptedEngine


def test_critic_answers_while_the_policy_loads(tmp_path, monkeypatch):
    loading, loaded = threading.Event(), threading.Event()

    def load(model: str, config: EngineConfig, **_: object) -> Engine:
        if config.kind == "transformers":
            loading.set()
            loaded.wait(600)
        return ScriptedEngine(EngineConfig(kind="scripted"))

    monkeypatch.setattr(run_models, "open_engine", load)
    settings = ("policy.engine.kind=transformers", "critic.engine.kind=scripted")
    opened = Models.of(load_config("tiny", None, settings, {}), tmp_path, needed=("critic",))
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
    found = Models.of(load_config("tiny", None, settings, {}), tmp_path, needed=("critic",))
    found.engine(found.initial)
    return found


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
