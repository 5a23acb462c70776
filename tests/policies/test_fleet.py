"""Several endpoints of one model: who joins, who leaves, and who is left out for other weights."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batches import batches
from scripted_http import Reply, Stage, answer, as_json
from staged_engine import StagedEngine

from lpfloop.configs.schema import ConfigError, EngineConfig
from lpfloop.policies.endpoint import fleet as endpoint_fleet
from lpfloop.policies.endpoint.fleet import IDLE_S, LOOK_S
from lpfloop.policies.endpoint.fleet_agreement import GATHER_S
from lpfloop.policies.endpoint.fleet_canary import (
    QUESTIONS,
    CanaryAnswer,
    CanaryToken,
    Portrait,
    read_portrait,
)
from lpfloop.policies.endpoint.gate import FIRST_SLOTS
from lpfloop.policies.engines.engine import Completion, EngineError

ANSWER_S = 0.5
SLOTS = 8
WORDS = ("a", "lamp", "burns", "here")


class Weights(Stage):
    """Endpoints whose canary shows the weights that they have at the time.

    `weights` are by endpoint: of different numbers the log-probabilities are as far apart.
    `log_probabilities` says whether they tell any; `down` are endpoints that break connections.
    """

    def __init__(self, weights: Sequence[float], *, log_probabilities: bool = True) -> None:
        self._to_come: dict[int, Callable[[], object]] = {}
        super().__init__(len(weights), self._met)
        self.weights = list(weights)
        self.fingerprints = [""] * len(weights)
        self.models: dict[int, dict[str, Any]] = {}
        self.down = set[int]()
        self.under_way: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self._usual = Counter(weights).most_common(1)[0][0]
        self._tells = log_probabilities

    def after(self, count: int, change: Callable[[], object]) -> None:
        """Let something happen when so much work was asked for, and some of it is under way."""
        self._to_come[count] = change

    def replace(self, place: int, weights: float) -> None:
        """Restart an endpoint with other weights: its connections break, for a moment."""
        self.down.add(place)
        self.weights[place] = weights
        self.loop.call_later(1.0, self.down.discard, place)

    @property
    def work(self) -> list[Any]:
        """What was asked besides canaries."""
        return [post for post in self.posts if post.name not in QUESTIONS]

    @property
    def canaries(self) -> Counter[int]:
        """How many canaries each endpoint was asked for."""
        return Counter(post.endpoint for post in self.posts if post.name in QUESTIONS)

    def _met(self, place: int, name: str, attempt: int) -> Reply | None:
        del attempt
        if change := self._to_come.pop(len(self.work), None):
            change()
        if place in self.down:
            return Reply(manner="reset")
        if name.startswith("/"):
            card = {"id": "m", "object": "model", **self.models.get(place, {})}
            return as_json(200, {"object": "list", "data": [card]})
        reply = json.loads(answer(name).body)
        reply["model"] = self.models.get(place, {}).get("id", "m")
        reply["system_fingerprint"] = self.fingerprints[place] or None
        told = self.weights[place]
        if name not in QUESTIONS and told != self._usual:
            reply["choices"][0]["message"]["content"] = f"{name} by other weights"
        if name in QUESTIONS:
            # Other weights write other texts, as soon as they are clearly others.
            text = " ".join(WORDS) if self._tells or told == 0 else f"{told} of {name}"
            reply["choices"][0]["message"]["content"] = text
            if self._tells:
                reply["choices"][0]["logprobs"] = {"content": [token(w, told) for w in WORDS]}
        return as_json(200, reply)

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        port = writer.get_extra_info("sockname")[1]
        place = [f":{port}/" in url for url in self.urls].index(True)
        text = json.loads(reply.body)["choices"][0]["message"]["content"] if is_work(reply) else ""
        if text:
            self.under_way[place] += 1
            self.most[place] = max(self.most[place], self.under_way[place])
            await self.loop.stall(writer.get_extra_info("peername")[1], ANSWER_S)
            self.under_way[place] -= 1
            if place in self.down:  # a server that ends takes its connections with it
                return await super()._play(Reply(manner="reset"), writer)
        return await super()._play(reply, writer)


def is_work(reply: Reply) -> bool:
    return reply.status == 200 and b"choices" in reply.body and b'"n' in reply.body


def token(word: str, weights: float) -> dict[str, Any]:
    logprob = -0.5 - weights
    top = [{"token": word, "logprob": logprob}, {"token": "dim", "logprob": -3.0}]
    return {"token": word, "logprob": logprob, "top_logprobs": top}


class Outcome:
    """What came of requests to a stage."""

    def __init__(self, drawn: list[Completion], error: EngineError | None) -> None:
        self.texts = [completion.text for completion in drawn]
        self.error = error
        told = [completion.provenance for completion in drawn]
        self.remarks = [remark for one in told if one is not None for remark in one.remarks]
        self.models = {one.model for one in told if one is not None}


def draw(
    stage: Weights,
    count: int,
    *,
    base_urls: Sequence[str] = (),
    folder: Path | None = None,
    canary_s: float | None = 300.0,
    model_name: str | None = None,
    close: bool = True,
) -> Outcome:
    """Ask for `count` answers."""
    random.seed(0)
    config = EngineConfig(
        base_urls=tuple(base_urls) or stage.urls,
        concurrency=SLOTS,
        timeout_s=100.0,
        canary_s=canary_s,
        model_name=model_name,
    )
    engine = StagedEngine("unused", config, folder=folder, loop=stage.loop)
    drawn: list[Completion] = []
    error = None
    try:
        for result in engine.generate(batches(count)):
            drawn += result.completions
    except EngineError as caught:
        error = caught
    finally:
        engine.close()
        if close:
            stage.close()
    return Outcome(drawn, error)


def whole(count: int) -> list[str]:
    return sorted(f"n{number}" for number in range(count))


# weights


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("log_probabilities", [True, False])
def test_a_member_on_other_weights_is_caught_by_its_canary(odd, log_probabilities, caplog):
    weights = [0.0, 0.0, 0.0]
    weights[odd] = 0.3
    stage = Weights(weights, log_probabilities=log_probabilities)
    drawn = draw(stage, 96)
    assert sorted(drawn.texts) == whole(96)
    assert {post.endpoint for post in stage.work} == {0, 1, 2} - {odd}
    url = stage.urls[odd]
    [told] = drawn.remarks
    assert told.startswith(f"the endpoint {url} is left out: it")
    assert ("0.3 nats off" in told) is log_probabilities
    assert sum(f"{url}: left out: it" in record.getMessage() for record in caplog.records) == 1


def test_the_last_bits_of_other_hardware_are_no_other_weights():
    stage = Weights([0.0, 0.02, -0.02])
    drawn = draw(stage, 96)
    assert {post.endpoint for post in stage.work} == {0, 1, 2}
    assert drawn.remarks == []


def test_one_canary_of_a_few_tokens_is_asked_of_each_member():
    stage = Weights([0.0, 0.0])
    draw(stage, 96)
    assert stage.canaries == {0: len(QUESTIONS), 1: len(QUESTIONS)}
    asked = [post.body for post in stage.posts if post.name in QUESTIONS]
    assert {body["temperature"] for body in asked} == {0.0}
    assert max(body["max_completion_tokens"] for body in asked) <= 24


def test_one_endpoint_alone_is_asked_for_no_canary():
    stage = Weights([0.0])
    draw(stage, 32)
    assert not stage.canaries


@pytest.mark.parametrize(
    ("told", "sentence"),
    [({"id": "other"}, "does not serve 'm', but other"), ({"max_model_len": 512}, "512 tokens")],
)
def test_a_member_that_serves_another_model_or_context_is_left_out(told, sentence):
    stage = Weights([0.0, 0.0, 0.0])
    stage.models = {place: {"max_model_len": 4096} for place in range(3)}
    stage.models[1] |= told
    drawn = draw(stage, 96, model_name="m")
    assert sorted(drawn.texts) == whole(96)
    assert {post.endpoint for post in stage.work} == {0, 2}
    assert sentence in drawn.remarks[0]


def test_a_member_that_serves_the_right_weights_again_is_used_again(monkeypatch):
    monkeypatch.setattr(endpoint_fleet, "LEFT_OUT_S", 10.0)
    stage = Weights([0.0, 0.0, 0.3])
    stage.after(96, lambda: stage.replace(2, 0.0))
    drawn = draw(stage, 640)
    assert sorted(drawn.texts) == whole(640)
    used = [post.at for post in stage.work if post.endpoint == 2]
    assert 10.0 <= min(used) < 12.0


def test_a_member_that_is_silent_at_first_holds_nobody_up_for_long():
    stage = Weights([0.0, 0.0, 0.0])
    silent = stage._met

    def met(place: int, name: str, attempt: int) -> Reply | None:
        return Reply(manner="hang") if place == 1 else silent(place, name, attempt)

    stage._script = met
    drawn = draw(stage, 96)
    assert sorted(drawn.texts) == whole(96)
    assert min(post.at for post in stage.work) <= GATHER_S + 1


def test_a_member_that_restarts_with_other_weights_adds_no_answer_of_them():
    stage = Weights([0.0, 0.0, 0.0])
    stage.after(96, lambda: stage.replace(1, 0.4))
    drawn = draw(stage, 320)
    assert sorted(drawn.texts) == whole(320)
    assert "left out" in drawn.remarks[0]


def test_a_rolling_change_of_all_members_stops_the_run_and_mixes_nothing(tmp_path):
    stage = Weights([0.0, 0.0, 0.0])
    for place in range(3):
        stage.after(96 + 96 * place, lambda place=place: stage.replace(place, 0.4))
    drawn = draw(stage, 1600, folder=tmp_path, close=False)
    assert drawn.error is not None
    assert "no endpoint can be used" in str(drawn.error)
    assert all(url in str(drawn.error) for url in stage.urls)
    assert drawn.texts
    assert set(drawn.texts) <= set(whole(1600))

    # A run that is resumed does not begin to agree anew.
    again = draw(stage, 32, folder=tmp_path, close=False)
    assert again.error is not None
    assert again.texts == []
    [kept] = tmp_path.iterdir()
    assert str(kept) in str(again.error)
    kept.unlink()
    assert len(draw(stage, 32, folder=tmp_path).texts) == 32


def test_a_new_fingerprint_holds_answers_back_until_the_canary_agrees():
    stage = Weights([0.0, 0.0])
    stage.fingerprints = ["a", "a"]

    def deploy(place: int, weights: float) -> None:
        """Behind a proxy that keeps its connections."""
        stage.weights[place], stage.fingerprints[place] = weights, "b"

    stage.after(64, lambda: deploy(0, 0.4))
    stage.after(160, lambda: deploy(1, 0.0))
    drawn = draw(stage, 320)
    assert sorted(drawn.texts) == whole(320)
    assert stage.urls[0] in drawn.remarks[0]
    late = {post.endpoint for post in stage.work[-96:]}
    assert late == {1}


def test_a_member_shows_its_weights_again_after_nothing_was_asked_of_it_for_a_while():
    stage = Weights([0.0, 0.0])
    config = EngineConfig(base_urls=stage.urls, concurrency=SLOTS)
    engine = StagedEngine("unused", config, loop=stage.loop)
    first = list(engine.generate(batches(32)))
    asyncio.run_coroutine_threadsafe(asyncio.sleep(2 * IDLE_S), stage.loop).result()
    stage.weights[1] = 0.4
    second = list(engine.generate(batches(32)))
    engine.close()
    stage.close()
    texts = [c.text for result in (*first, *second) for c in result.completions]
    assert sorted(texts) == sorted(2 * whole(32))


def test_weights_that_change_without_a_sign_are_noticed_by_the_next_canary():
    stage = Weights([0.0, 0.0])
    stage.after(96, lambda: stage.weights.__setitem__(1, 0.4))
    drawn = draw(stage, 640, canary_s=5.0)
    assert sorted(text.split()[0] for text in drawn.texts) == whole(640)
    changed = stage.work[96].at
    assert max(p.at for p in stage.work if p.endpoint == 1) <= changed + 5 + 2 * LOOK_S


# a file that lists them


def listed(folder: Path, *lines: str) -> str:
    """Write the list; return what names it."""
    draft = folder / "draft"
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.replace(folder / "endpoints.txt")
    return f"@{folder / 'endpoints.txt'}"


def test_endpoints_join_and_leave_with_the_lines_of_the_file(tmp_path):
    stage = Weights([0.0, 0.0, 0.0])
    one, two, three = stage.urls
    named = listed(tmp_path, "# the pool", f"{one}  # the first", "", two)
    stage.after(96, lambda: listed(tmp_path, one, two, three))
    stage.after(480, lambda: listed(tmp_path, two, three))
    drawn = draw(stage, 960, base_urls=[named])
    assert sorted(drawn.texts) == whole(960)
    # Nothing was lost, or asked twice.
    assert Counter(post.name for post in stage.work) == Counter(whole(960))
    times = {place: [p.at for p in stage.work if p.endpoint == place] for place in range(3)}
    joined, left = stage.work[96].at, stage.work[480].at
    assert joined <= min(times[2]) <= joined + 3 * LOOK_S
    assert left <= max(times[0]) <= left + 3 * LOOK_S < max(times[1])
    assert stage.canaries[2] == len(QUESTIONS)


def test_a_member_that_joins_begins_with_few_slots(tmp_path):
    stage = Weights([0.0, 0.0])
    named = listed(tmp_path, stage.urls[0])
    stage.after(48, lambda: listed(tmp_path, *stage.urls))
    draw(stage, 640, base_urls=[named])
    joined = [post.at for post in stage.work if post.endpoint == 1]
    first = [at for at in joined if at < joined[0] + ANSWER_S]
    assert len(first) <= FIRST_SLOTS + 1
    assert stage.most[1] == SLOTS


def test_other_weights_that_join_are_left_out(tmp_path):
    stage = Weights([0.0, 0.3])
    named = listed(tmp_path, stage.urls[0])
    stage.after(48, lambda: listed(tmp_path, *stage.urls))
    drawn = draw(stage, 320, base_urls=[named])
    assert sorted(drawn.texts) == whole(320)
    assert {post.endpoint for post in stage.work} == {0}
    assert stage.urls[1] in drawn.remarks[0]


def test_a_list_that_cannot_be_used_is_told_once_and_the_one_before_holds(tmp_path, caplog):
    stage = Weights([0.0, 0.0])
    named = listed(tmp_path, *stage.urls)
    stage.after(64, lambda: listed(tmp_path, "# nothing any more"))
    stage.after(384, lambda: listed(tmp_path, stage.urls[0], "judge:8000"))
    stage.after(704, (tmp_path / "endpoints.txt").unlink)
    drawn = draw(stage, 1280, base_urls=[named])
    assert sorted(drawn.texts) == whole(1280)
    assert {post.endpoint for post in stage.work[-96:]} == {0, 1}
    told = [record.getMessage() for record in caplog.records if "endpoints.txt" in record.message]
    assert ["lists no endpoint" in told[0], "line 2" in told[1], "is gone" in told[2]] == [True] * 3
    assert len(told) == 3


def test_members_serve_the_model_under_names_of_their_own(tmp_path):
    stage = Weights([0.0, 0.0])
    stage.models = {0: {"id": "judge-bf16"}, 1: {"id": "judge-copy"}}
    lines = [f"{url} {stage.models[place]['id']}" for place, url in enumerate(stage.urls)]
    drawn = draw(stage, 96, base_urls=[listed(tmp_path, *lines)], model_name="judge")
    assert sorted(drawn.texts) == whole(96)
    asked = {(post.endpoint, post.body["model"]) for post in stage.work}
    assert asked == {(0, "judge-bf16"), (1, "judge-copy")}
    assert drawn.models == {"judge"}


# what is compared


def portrait(*answers: CanaryAnswer) -> Portrait:
    return Portrait(name="m", max_model_len=None, answers=answers)


def said(*words: str, off: float = 0.0, second: str = "dim", gap: float = 2.5) -> CanaryAnswer:
    tokens = tuple(
        CanaryToken(word, -0.5 - off, {word: -0.5 - off, second: -0.5 - off - gap})
        for word in words
    )
    return CanaryAnswer(" ".join(words), tokens)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (said("a", "b", "c", off=0.04), False),
        (said("a", "b", "c", off=0.06), True),
        # They part where both find both about equally good, or where one of them is sure.
        (said("a", "b", "d", second="c", gap=0.3), False),
        (said("a", "b", "d", second="c", gap=0.9), True),
        (said("a", "b", "d"), True),
        # One ends where the other goes on, and is sure to.
        (said("a", "b"), False),
        (said("a", "b", "c", "d", off=-0.03), True),
    ],
)
def test_portraits_differ_by_more_than_noise(other, differs):
    known = said("a", "b", "c", off=0.0, second="d", gap=0.3)
    found = portrait(known).difference(portrait(other))
    assert (found is not None) is differs, found


def test_texts_alone_differ_if_none_is_the_same():
    one = [CanaryAnswer(text, ()) for text in ("x", "y", "z")]
    same = [*one[:2], CanaryAnswer("other", ())]
    none = [replace(answer, text=f"not {answer.text}") for answer in one]
    assert portrait(*one).difference(portrait(*same)) is None
    assert portrait(*one).difference(portrait(*one[::-1])) is None
    assert portrait(*one).difference(portrait(*none)) is not None


def test_what_was_agreed_on_is_read_as_it_was_written(tmp_path):
    stage = Weights([0.1, 0.1])
    draw(stage, 32, folder=tmp_path)
    [path] = tmp_path.iterdir()
    kept = read_portrait(path)
    assert kept is not None
    assert kept.difference(kept) is None
    assert [len(one.tokens) for one in kept.answers] == [len(WORDS)] * len(QUESTIONS)


# a list that is refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "endpoints.txt: the list of endpoints cannot be read"),
        ("", "endpoints.txt: lists no endpoint"),
        ("# only this\n", "endpoints.txt: lists no endpoint"),
        ("http://a/v1\njudge:8000\n", "endpoints.txt: line 2: 'judge:8000' is not an endpoint"),
        ("http://me:secret@a/v1\n", "line 1: a URL must not carry credentials"),
        ("http://a/v1 m and more\n", "line 1: write a URL, and after it perhaps"),
        ("http://a/v1\n\nhttp://a/v1/\n", "line 3: http://a/v1/ is in line 1 already"),
        ("http://a/v1 one\nhttp://b/v1 two\n", "set engine.model_name"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_at_the_start(tmp_path, text, sentence):
    from lpfloop.loop.run.served import identified

    path = tmp_path / "endpoints.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    config = EngineConfig(kind="openai", base_urls=(f"@{path}",))
    with pytest.raises(ConfigError, match=sentence) as told:
        identified("judge", config)
    assert str(path) in str(told.value)
    assert "secret" not in str(told.value)
