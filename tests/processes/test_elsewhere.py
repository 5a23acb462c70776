"""Models in a Ray cluster: refused settings, and an unreachable cluster."""

import pytest
from world import roles_of

from lpfloop.configs.load import load_config
from lpfloop.configs.mistakes import ConfigError
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.doctor import diagnose
from lpfloop.loop.daemon.machine_check import require_places

RAY = ("policy.engine.place=ray", "reward.place=ray", "critic.engine.place=ray")


def configured(*settings: str) -> RunConfig:
    return load_config("tiny", None, settings, {})


def test_refusals(tmp_path) -> None:
    config = load_config("tiny", "ppo", ("policy.engine.place=ray",), {})
    with pytest.raises(ConfigError, match=r"policy\.engine\.place"):
        require_places(config, roles_of(config))
    config = configured("policy.engine.place=ray", "policy.engine.devices=[0]")
    with pytest.raises(ConfigError, match=r"policy\.engine\.devices"):
        require_places(config, roles_of(config))


def test_missing_cluster_reported(environ, tmp_path) -> None:
    environ["RAY_ADDRESS"] = "127.0.0.1:9"
    found = diagnose(configured(*RAY), tmp_path / "lake")
    [told] = [finding for finding in found.findings if finding.about == "Ray"]
    assert told.status == "missing"
    assert "no answer at RAY_ADDRESS=127.0.0.1:9" in told.detail
    assert not found.ok
    assert not (tmp_path / "lake").exists()
