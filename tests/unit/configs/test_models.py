"""Models by name: settings of roles that name one, and their precedence."""

import pytest

from lpfloop.configs.load import load_config, load_with_sources, resolve_config, stored_config
from lpfloop.configs.schema import ConfigError, RunConfig

SHARED = """
extends: own
models:
  qwen:
    location: http://127.0.0.1:9/v1
    engine: {concurrency: 8, extra_body: {tier: flex}}
policy: {model: FOLDER}
critic: {model: qwen}
grading: {model: qwen}
"""


def load(tmp_path, text: str, *overrides: str) -> RunConfig:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_config(str(path), None, overrides, {})


def test_roles_share_a_model(tmp_path):
    config = load(tmp_path, SHARED)
    assert config.critic.model == config.grading.model == "http://127.0.0.1:9/v1"
    assert config.critic.engine == config.grading.engine
    assert config.critic.engine.concurrency == 8
    assert (config.policy.model, config.policy.engine.concurrency) == ("FOLDER", 64)
    assert stored_config(resolve_config(config), (), {}) == config


def test_path_of_a_role_reaches_its_model(tmp_path):
    changed = ("critic.engine.concurrency=9", "grading.engine.extra_body={tier: fast}")
    config = load(tmp_path, SHARED, *changed)
    assert config.grading.engine == config.critic.engine
    assert config.critic.engine.concurrency == 9
    assert config.critic.engine.extra_body == {"tier": "fast"}
    option = load(tmp_path, SHARED, "models.qwen.engine.concurrency=7", "policy.model=qwen")
    assert option.policy.engine == option.critic.engine
    assert option.policy.engine.concurrency == 7


def test_later_sources_win_for_a_named_model(tmp_path):
    text = "extends: paper\nmodels: {a: {engine: {dtype: float16}}}\npolicy: {model: a}\n"
    config = load(tmp_path, text)
    assert config.policy.model == "a"
    assert config.policy.engine.dtype == "float16"
    assert config.policy.engine.max_model_len == 4096
    assert config.critic.engine.dtype == "bfloat16"


def test_sources_of_a_named_model(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SHARED)
    _, sources = load_with_sources(str(path), None, ["critic.engine.concurrency=9"], {})
    assert sources["grading.engine.concurrency"] == "--set"
    assert sources["grading.engine.extra_body"] == str(path)


def test_refusals(tmp_path, subtests):
    for change, said in (
        ("models.qwen.engine.concurency=1", "'models.qwen.engine.concurency'; did you mean"),
        ("models.qwen.zzz=x", "the keys here are engine, location"),
        ("models.qwen.engine.concurrency=0", "models.qwen.engine.concurrency: must be greater"),
        ("critic.engine.concurrency=0", "models.qwen.engine.concurrency: must be greater"),
        ("models=3", "models: must be a valid dictionary"),
    ):
        with subtests.test(case=change), pytest.raises(ConfigError) as caught:
            load(tmp_path, SHARED, change)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, SHARED, "models.qwen.engine.api_key=98765")
    assert "98765" not in str(caught.value)
