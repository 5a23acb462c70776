"""What may be added to the requests to an endpoint."""

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config, semantic
from lpfloop.configs.schema import ConfigError


def loaded(body: str) -> EngineConfig:
    return load_config("tiny", None, [f"critic.engine.extra_body={body}"], {}).critic.engine


def test_any_other_field_may_be_added() -> None:
    engine = loaded("{service_tier: flex, provider: {order: [a, b]}, top_k: 20}")
    assert engine.besides == {
        "service_tier": "flex",
        "provider": {"order": ["a", "b"]},
        "top_k": 20,
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{temperature: 0}", "'temperature' is a field that lpfloop sets itself"),
        ("{Messages: []}", "'Messages' is a field that lpfloop sets itself"),
        ("{stream: true}", "'stream' is a field that lpfloop sets itself"),
        ("{api_key: abc}", "'api_key' must not be stored here; set LPFLOOP_API_KEY"),
        ("{headers: [{Authorization: x}]}", "'Authorization' must not be stored here"),
        ("{penalty: .nan}", "must be a finite number, not nan"),
        ("flex", "critic.engine.extra_body"),
    ],
)
def test_fields_of_its_own_and_keys_are_refused(body: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(body)
    assert said in str(caught.value)


def test_what_is_not_set_is_no_part_of_what_a_run_depends_on() -> None:
    names = {"extra_body", "reasoning_effort", "reasoning_tokens"}
    assert not names & set(semantic(EngineConfig()))
    assert "reasoning_tokens" in semantic(EngineConfig(reasoning_tokens=9))
