"""One contract for all engines: vllm, transformers, an OpenAI-compatible server, scripted.

The endpoint is vLLM's real server, started here on loopback. All engines, except those in a fresh
process, use a copy of the tiny policy whose generation_config.json would spoil every sample if an
engine read it.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from processes import SERVER_KEY, wait_until_served

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import (
    Batch,
    Completion,
    Engine,
    EngineError,
    Request,
    Sampling,
)
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

CONTEXT = 2048
QUESTIONS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "Who are you?",
    "Sort these numbers: 7, 2, 5.",
    "Anna has 12 pears. She eats 2 pears and gives 5 away. How many pears are left?",
)
WARM = Sampling(temperature=1.0, top_p=1.0, max_tokens=48)
WORKERS = ("vllm", "transformers")

pytestmark = pytest.mark.model


Opener = Callable[[str], Engine]


def conversation(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def one_thread(kind: str) -> EngineConfig:
    """With one thread a CPU gives the same bits regardless of the other requests in flight."""
    return EngineConfig(kind=kind, dtype="float32", cpu_threads=1)


def batch(
    key: str, questions: tuple[str, ...] = QUESTIONS, n: int = 4, sampling: Sampling = WARM
) -> Batch:
    requests = tuple(
        Request(
            request_id=f"{key}/{q}/{i}", messages=conversation(q), seed=derive_seed(0, key, q, i)
        )
        for q in questions
        for i in range(n)
    )
    return Batch(key=key, requests=requests, sampling=sampling)


def draw(engine: Engine, *batches: Batch) -> dict[str, Completion]:
    """Draw all batches; return the completions by request."""
    results = list(engine.generate(batches))
    assert sorted(r.key for r in results) == sorted(b.key for b in batches)
    wanted = {b.key: [r.request_id for r in b.requests] for b in batches}
    for result in results:
        assert [c.request_id for c in result.answers] == wanted[result.key]
    return {c.request_id: c for result in results for c in result.answers}


def near(kind: str, drawn: dict[str, Completion]) -> dict[str, Completion]:
    """Return the completions that another sample must equal, with a tolerance for servers.

    A server's other requests change a log-probability's last bits, at any magnitude.
    """
    if kind != "openai":
        return drawn
    return {
        key: replace(completion, logprob=pytest.approx(completion.logprob, rel=0, abs=5e-4))
        for key, completion in drawn.items()
    }


@pytest.fixture(
    scope="module",
    params=[WORKERS, pytest.param(("openai",), marks=pytest.mark.slow)],
    ids=["workers", "openai"],
)
def kinds(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The engines of a test: those in worker processes; vLLM's server only in the slow tests."""
    return request.param


@pytest.fixture(scope="module")
def opened(
    spoiled: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opener]:
    """Open each engine once, at its first use."""
    logs = tmp_path_factory.mktemp("logs")
    engines: dict[str, Engine] = {}

    def open_one(kind: str) -> Engine:
        if kind != "openai":
            return open_engine(str(spoiled), one_thread(kind), log=logs / f"{kind}.log")
        endpoint = request.getfixturevalue("endpoint")
        wait_until_served(endpoint)
        return open_engine(endpoint.url, EngineConfig(api_key=SERVER_KEY), log=logs / "no.log")

    def get(kind: str) -> Engine:
        if kind not in engines:
            engines[kind] = open_one(kind)
        return engines[kind]

    yield get
    for engine in engines.values():
        engine.close()


def test_seeds(subtests, opened: Opener, kinds: tuple[str, ...]):
    for kind in (*kinds, "scripted"):
        with subtests.test(kind=kind):
            engine = opened(kind)
            first = draw(engine, batch("a"), batch("b"))
            again = draw(engine, batch("b"), batch("a"))
            assert first == near(kind, again)
            texts = {first[f"{key}/{QUESTIONS[0]}/{i}"].text for key in "ab" for i in range(4)}
            assert len(texts) > 2
            for completion in first.values():
                assert completion.finish_reason in ("stop", "length")
                assert 0 < completion.completion_tokens <= WARM.max_tokens


def test_batches_in_flight(subtests, opened: Opener, kinds: tuple[str, ...]):
    """Different batches in flight together give the same samples as in separate streams."""
    for kind in (*kinds, "scripted"):
        with subtests.test(kind=kind):
            engine = opened(kind)
            warm = batch("a")
            greedy = batch(
                "b", sampling=Sampling(temperature=0.0, top_p=1.0, max_tokens=5, token_ids=True)
            )
            together = draw(engine, warm, greedy)
            alone = draw(engine, warm) | draw(engine, greedy)
            assert together == near(kind, alone)
            for question in QUESTIONS:
                assert len({together[f"a/{question}/{i}"].text for i in range(4)}) > 1
                assert len({together[f"b/{question}/{i}"].text for i in range(4)}) == 1


def test_top_k_and_min_p(subtests, opened: Opener, kinds: tuple[str, ...]):
    for kind in kinds:
        for alone in [{"top_k": 1}, {"min_p": 1.0}]:
            with subtests.test(kind=kind, alone=alone):
                engine = opened(kind)
                greedy = draw(engine, batch("a", n=1, sampling=replace(WARM, temperature=0.0)))
                narrow = draw(engine, batch("a", n=1, sampling=replace(WARM, **alone)))
                assert narrow == near(kind, greedy)


def test_stop_texts(subtests, opened: Opener, kinds: tuple[str, ...]):
    for kind in kinds:
        with subtests.test(kind=kind):
            engine = opened(kind)
            greedy = replace(WARM, temperature=0.0)
            whole = draw(engine, batch("a", n=1, sampling=greedy))
            stops = (" answer", "never said")
            cut = draw(
                engine, batch("a", n=1, sampling=replace(greedy, stop=stops, token_ids=True))
            )
            texts = [(c.text, whole[name].text) for name, c in cut.items()]
            assert any(stops[0] in text for _, text in texts)
            for name, completion in cut.items():
                assert completion.text == whole[name].text.partition(stops[0])[0]
                assert completion.finish_reason == "stop"
                assert completion.completion_tokens <= whole[name].completion_tokens
                if kind in WORKERS:
                    assert len(completion.token_ids or ()) == completion.completion_tokens


def test_max_tokens(subtests, opened: Opener, kinds: tuple[str, ...]):
    for kind in (*kinds, "scripted"):
        with subtests.test(kind=kind):
            drawn = draw(opened(kind), batch("a", sampling=replace(WARM, max_tokens=2)))
            assert {c.finish_reason for c in drawn.values()} == {"length"}
            assert {c.completion_tokens for c in drawn.values()} == {2}


def test_overlong_prompt(subtests, opened: Opener, kinds: tuple[str, ...]):
    for kind in kinds:
        with subtests.test(kind=kind):
            engine = opened(kind)
            endless = "pears and apples " * CONTEXT
            drawn = draw(
                engine, batch("a", (QUESTIONS[0], endless), n=2), batch("b", (endless,), n=1)
            )
            assert [drawn[f"a/{endless}/{i}"].finish_reason for i in range(2)] == ["overlong"] * 2
            alone = drawn[f"b/{endless}/0"]
            assert (alone.finish_reason, alone.text, alone.logprob) == ("overlong", "", None)
            assert all(drawn[f"a/{QUESTIONS[0]}/{i}"].finish_reason != "overlong" for i in range(2))


def prompt_ids(folder: Path, text: str) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    turns = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)


def test_logprobs_are_the_models(subtests, opened: Opener, kinds: tuple[str, ...], spoiled: Path):
    """They are the model's, not the sampler's, also below temperature 1 and with top-p."""
    for kind in kinds:
        with subtests.test(kind=kind):
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer

            model = AutoModelForCausalLM.from_pretrained(str(spoiled), dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(str(spoiled))
            cool = Sampling(temperature=0.7, top_p=0.9, max_tokens=100)
            compared = 0
            for question in QUESTIONS:
                completion = draw(opened(kind), batch("a", (question,), n=1, sampling=cool))[
                    f"a/{question}/0"
                ]
                prompt = prompt_ids(spoiled, question)
                answer = tokenizer.encode(completion.text, add_special_tokens=False)
                if completion.finish_reason == "stop":
                    answer.append(tokenizer.eos_token_id)
                if len(answer) != completion.completion_tokens:
                    continue  # the same text in other tokens
                with torch.no_grad():
                    logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
                expected = (
                    logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum().item()
                )
                assert completion.logprob == pytest.approx(expected, abs=2e-3)
                compared += 1
            assert compared >= 2


def test_logit_bias(subtests, opened: Opener, spoiled: Path):
    """Tokens are named by text or id; the bias affects sampling, but not the log-probabilities."""
    for kind in WORKERS:
        with subtests.test(kind=kind):
            [plain] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1)).values()
            one = token_of(spoiled, "1")
            for token in ("1", one):
                forced = replace(WARM, max_tokens=3, logit_bias=((token, 100.0),))
                drawn = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=forced))
                [drawn] = drawn.values()
                assert drawn.text == "111"
                assert drawn.logprob is not None
                assert drawn.logprob < -5
            # If the first greedy token is forbidden, the greedy answer begins with another one.
            greedy = replace(WARM, temperature=0.0, max_tokens=1, token_ids=True)
            [best] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=greedy)).values()
            assert best.token_ids is not None
            banned = replace(greedy, logit_bias=((best.token_ids[0], -100.0),))
            [other] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=banned)).values()
            assert other.token_ids != best.token_ids
            # Other samples stay the same.
            assert [plain] == list(draw(opened(kind), batch("a", QUESTIONS[:1], n=1)).values())


def token_of(folder: Path, text: str) -> int:
    from transformers import AutoTokenizer

    [token] = AutoTokenizer.from_pretrained(str(folder)).encode(text, add_special_tokens=False)
    return int(token)


def test_broken_model(tiny_policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_policy, folder)
    (folder / "chat_template.jinja").unlink()
    engine = open_engine(
        str(folder), EngineConfig(kind="transformers"), log=tmp_path / "worker.log"
    )
    with pytest.raises(EngineError, match="lacks a chat template"):
        draw(engine, batch("a"))
    engine.close()
