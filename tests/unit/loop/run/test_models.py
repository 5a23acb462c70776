"""Models that a run opens: one that loads keeps no other from answering."""

import threading

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.run import models as run_models
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
    opened = Models.of(load_config("tiny", None, settings, {}), tmp_path, asked=("critic",))
    stage = threading.Thread(target=opened.engine, args=(opened.initial,), daemon=True)
    stage.start()
    assert loading.wait(300)
    assert opened.engine(opened.feedback)
    assert stage.is_alive()
    loaded.set()
    stage.join()
