"""Several endpoints of one model: who joins, who leaves, and who is left out for other weights."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from clock import Asked, Reply, Stage, StagedEngine, answer, as_json, batches

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.fleet import LOOK_S
from lpfloop.policies.endpoint.fleet_canary import QUESTIONS
from lpfloop.policies.engines.engine import Completion

pytestmark = pytest.mark.slow

ANSWER_S = 0.5


class Weights(Stage):
    """Endpoints whose canary shows their weights: log-probabilities differ as these numbers do."""

    def __init__(self, *weights: float) -> None:
        super().__init__(len(weights), self._met)
        self.weights = weights
        self.changes: dict[int, Callable[[], object]] = {}
        """What happens when so much work was asked for."""

    @property
    def work(self) -> list[Asked]:
        """What was asked besides canaries."""
        return [post for post in self.posts if post.name not in QUESTIONS]

    def _met(self, place: int, name: str, attempt: int) -> Reply | None:
        del attempt
        if change := self.changes.pop(len(self.work), None):
            change()
        if name not in QUESTIONS:
            return None
        logprob = -0.5 - self.weights[place]
        top = [{"token": "lamp", "logprob": logprob}, {"token": "dim", "logprob": -3.0}]
        reply = json.loads(answer("lamp").body)
        told = {"token": "lamp", "logprob": logprob, "top_logprobs": top}
        reply["choices"][0]["logprobs"] = {"content": [told]}
        return as_json(200, reply)

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if b'"n' in reply.body:
            await self.loop.stall(writer.get_extra_info("peername")[1], ANSWER_S)
        return await super()._play(reply, writer)


def draw(stage: Weights, count: int, base_urls: Sequence[str] = ()) -> list[Completion]:
    """Ask for so many answers, each by its own text."""
    random.seed(0)
    config = EngineConfig(base_urls=tuple(base_urls) or stage.urls, concurrency=8, timeout_s=100.0)
    engine = StagedEngine("unused", config, loop=stage.loop)
    try:
        drawn = [c for result in engine.generate(batches(count)) for c in result.completions]
    finally:
        engine.close()
        stage.close()
    assert sorted(c.text for c in drawn) == whole(count)
    return drawn


def whole(count: int) -> list[str]:
    return sorted(f"n{number}" for number in range(count))


def test_other_weights_left_out():
    stage = Weights(0.0, 0.02, 0.3)
    drawn = draw(stage, 96)
    assert {post.endpoint for post in stage.work} == {0, 1}
    [told] = {remark for c in drawn if c.provenance for remark in c.provenance.remarks}
    assert stage.urls[2] in told
    assert "0.3 nats off" in told


def listed(folder: Path, *lines: str) -> str:
    """Write a list of endpoints; return what names it."""
    draft = folder / "draft"
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.replace(folder / "endpoints.txt")
    return f"@{folder / 'endpoints.txt'}"


def test_list_in_file(tmp_path):
    stage = Weights(0.0, 0.0, 0.0)
    one, two, three = stage.urls
    stage.changes[96] = lambda: listed(tmp_path, one, two, three)
    stage.changes[480] = lambda: listed(tmp_path, two, three)
    draw(stage, 960, [listed(tmp_path, "# the pool", f"{one}  # the first", "", two)])
    # Nothing was lost, or asked twice.
    assert Counter(post.name for post in stage.work) == Counter(whole(960))
    times = {place: [p.at for p in stage.work if p.endpoint == place] for place in range(3)}
    joined, left = stage.work[96].at, stage.work[480].at
    assert joined <= min(times[2]) <= joined + 3 * LOOK_S
    assert left <= max(times[0]) <= left + 3 * LOOK_S < max(times[1])
