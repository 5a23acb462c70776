"""Several endpoints share one model's requests; lpfloop refuses endpoints with several models."""

import pytest
from clock import Reply, Stage, StagedEngine, as_json, batches

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import EngineError


class Listing(Stage):
    """Endpoints that each list a model by name and context length."""

    def __init__(self, *models: tuple[str, int | None]) -> None:
        self._models = models
        super().__init__(len(models), self._list)

    def _list(self, place: int, name: str, _: int) -> Reply | None:
        if name != "/v1/models":
            return None
        model, length = self._models[place]
        return as_json(200, {"data": [{"id": model, "max_model_len": length}]})


def draw(stage: Stage, **settings: str) -> list[str]:
    config = EngineConfig.model_validate({"base_urls": stage.urls, "concurrency": 2, **settings})
    engine = StagedEngine("unused", config, loop=stage.loop)
    try:
        return [c.text for result in engine.generate(batches(64)) for c in result.answers]
    finally:
        engine.close()
        stage.close()


def test_requests_are_shared():
    stage = Listing(("m", 512), ("m", None), ("m", 512))
    assert sorted(draw(stage)) == sorted(f"n{i}" for i in range(64))
    assert {post.endpoint for post in stage.posts} == {0, 1, 2}


def test_other_models_are_refused(subtests):
    for other, sentence in [(("n", 512), "serves 'n'|serves 'm'"), (("m", 256), "context of")]:
        with subtests.test(other=other):
            stage = Listing(("m", 512), other)
            with pytest.raises(EngineError, match=sentence):
                draw(stage)
