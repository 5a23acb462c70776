"""Two endpoints of a model: if one does not answer a request, the other gets it."""

from collections import Counter

import pytest
from clock import Reply, Stage, StagedEngine, batches

from lpfloop.configs.schema import EngineConfig

pytestmark = pytest.mark.slow


def test_a_dead_endpoints_requests() -> None:
    for manner in ("reset", "silent"):
        dead = Reply(manner=manner)
        stage = Stage(2, lambda place, *_, dead=dead: dead if place == 1 else None)
        config = EngineConfig(base_urls=stage.urls, concurrency=4, timeout_s=1e6)
        engine = StagedEngine("unused", config, loop=stage.loop)
        texts = [c.text for result in engine.generate(batches(160)) for c in result.answers]
        engine.close()
        stage.close()
        assert sorted(texts) == sorted(f"n{i}" for i in range(160))
        assert Counter(post.endpoint for post in stage.posts)[0] == 160
