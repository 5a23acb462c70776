"""Models that reply by a schema."""

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.loop.run.served import Served


@pytest.mark.parametrize(
    ("location", "engine", "by_schema"),
    [
        ("http://localhost:8000/v1", {}, True),
        ("http://localhost:8000/v1", {"extra_body": {"response_format": {"type": "text"}}}, False),
        ("folder", {"kind": "vllm"}, True),
        ("folder", {"kind": "transformers"}, False),
        ("folder", {"kind": "scripted"}, False),
    ],
)
def test_judges_reply_by_a_schema_if_their_engine_can(location, engine, by_schema):
    config = EngineConfig.model_validate(engine)
    served = Served(name="m", identity="m", location=location, engine=config)
    assert served.by_schema is by_schema
