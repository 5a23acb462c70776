"""JSON schemas in requests: lpfloop stops sending them if an endpoint refuses one."""

from collections.abc import Mapping
from typing import Any

from clock import Asked, Reply, Stage, failure

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.unsupported_params import REMARKS
from lpfloop.policies.engines.engine import Batch, Completion, Request, Sampling
from lpfloop.policies.engines.token_count import schema_tokens
from lpfloop.stores.records import Message

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer", "enum": [1, 2]}}}
SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
REFUSALS = [
    failure(400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported"),
    failure(422, "[{'loc': ('body', 'response_format', 'type'), 'msg': 'should be text'}]"),
]


def drawn(
    refusal: Reply | None, schema: Mapping[str, Any] = SCHEMA
) -> tuple[list[Completion], list[Asked]]:
    """Send requests one after the other; an endpoint with a refusal rejects those with a schema."""

    def script(_: int, name: str, attempt: int) -> Reply | None:
        return refusal if attempt == 0 and name == "0" else None

    stage = Stage(1, script)
    config = EngineConfig.model_validate({"base_urls": stage.urls})
    engine = OpenAIEngine("unused", config, loop=stage.loop)
    answers: list[Completion] = []
    try:
        for number in range(2):
            said = (Message(role="user", content=str(number)),)
            request = Request(request_id=str(number), messages=said, seed=1, schema=schema)
            batch = Batch(key=str(number), requests=(request,), sampling=SAMPLING)
            for result in engine.generate([batch]):
                answers += result.answers
    finally:
        engine.close()
        stage.close()
    return answers, stage.posts


def test_strict_schema() -> None:
    for schema, strict in ((SCHEMA, True), (SCHEMA | {"maxProperties": 1}, False)):
        for post in drawn(None, schema)[1]:
            sent = post.body["response_format"]
            assert sent["type"] == "json_schema"
            assert sent["json_schema"]["strict"] is strict
            assert sent["json_schema"]["schema"] == schema


def test_schema_refused(subtests):
    for refusal in REFUSALS:
        with subtests.test(refusal=refusal):
            answers, posts = drawn(refusal)
            assert ["response_format" in post.body for post in posts] == [True, False, False]
            assert [answer.finish_reason for answer in answers] == ["stop", "stop"]
            for one in answers:
                assert one.provenance is not None
                assert REMARKS["response_format"] in one.provenance.remarks


def test_schema_tokens() -> None:
    assert schema_tokens(None) == 0
    assert schema_tokens(SCHEMA) > len(str(SCHEMA))
