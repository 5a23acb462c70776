"""Extra fields that a configuration may add to the requests to an endpoint."""

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError


def loaded(body: str) -> EngineConfig:
    return load_config("tiny", None, [f"critic.engine.extra_body={body}"], {}).critic.engine


def test_other_fields_added() -> None:
    engine = loaded("{service_tier: flex, provider: {order: [a, b]}, top_k: 20}")
    assert engine.extra_fields == {
        "service_tier": "flex",
        "provider": {"order": ["a", "b"]},
        "top_k": 20,
    }


def test_own_fields_refused(subtests):
    for body, said in [
        ("{temperature: 0}", "'temperature' is a field that lpfloop sets itself"),
        ("{api_key: abc}", "'api_key' must not be stored here; set LPFLOOP_API_KEY"),
        ("{headers: [{Authorization: x}]}", "'Authorization' must not be stored here"),
        ("{penalty: .nan}", "must be a finite number, not nan"),
    ]:
        with subtests.test(case=body):
            with pytest.raises(ConfigError) as caught:
                loaded(body)
            assert said in str(caught.value)
