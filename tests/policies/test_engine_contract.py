"""One contract for all engines: vllm, transformers, an OpenAI-compatible server, scripted.

The endpoint is vLLM's real server, started here on loopback. All engines but those of a fresh
process run on a copy of the tiny policy whose generation_config.json would spoil every draw if it
were used.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from servers import KEY, Endpoint, wait_until_served

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.endpoint import probe
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.engine import (
    Batch,
    Completion,
    Engine,
    EngineError,
    Request,
    Sampling,
)
from lpfloop.policies.workers.open import open_engine
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
MODELS = ("vllm", "transformers", "openai")
WORKERS = ("vllm", "transformers")

pytestmark = pytest.mark.model


Opener = Callable[[str], Engine]


def conversation(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def one_thread(kind: str) -> EngineConfig:
    """The setting under which a CPU gives the same bits whatever else is in flight."""
    return EngineConfig(kind=kind, cpu_threads=1)


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
        assert [c.request_id for c in result.completions] == wanted[result.key]
    return {c.request_id: c for result in results for c in result.completions}


def near(kind: str, drawn: dict[str, Completion]) -> dict[str, Completion]:
    """Return what another draw must equal.

    A server's other requests move a log-probability's last bits, which may lie about any place at
    which numbers are rounded.
    """
    if kind != "openai":
        return drawn
    return {
        key: replace(completion, logprob=pytest.approx(completion.logprob, rel=0, abs=5e-4))
        for key, completion in drawn.items()
    }


@pytest.fixture(scope="module")
def opened(
    spoiled: Path, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opener]:
    """Open each engine once; all of them start to load at the first call."""
    logs = tmp_path_factory.mktemp("logs")
    engines = {
        kind: open_engine(str(spoiled), one_thread(kind), log=logs / f"{kind}.log")
        for kind in ("vllm", "transformers")
    }
    engines["scripted"] = open_engine("any", EngineConfig(kind="scripted"), log=logs / "no.log")

    def get(kind: str) -> Engine:
        if kind == "openai" and kind not in engines:
            wait_until_served(endpoint)
            engines[kind] = open_engine(
                endpoint.url, EngineConfig(api_key=KEY), log=logs / "no.log"
            )
        return engines[kind]

    yield get
    for engine in engines.values():
        engine.close()


@pytest.mark.parametrize("kind", [*MODELS, "scripted"])
def test_candidates_have_seeds_of_their_own(opened: Opener, kind: str) -> None:
    engine = opened(kind)
    first = draw(engine, batch("a"), batch("b"))
    again = draw(engine, batch("b"), batch("a"))
    assert first == near(kind, again)
    texts = {first[f"{key}/{QUESTIONS[0]}/{i}"].text for key in "ab" for i in range(4)}
    assert len(texts) > 2
    for completion in first.values():
        assert completion.finish_reason in ("stop", "length")
        assert 0 < completion.completion_tokens <= WARM.max_tokens


@pytest.mark.parametrize("kind", [*MODELS, "scripted"])
def test_batches_of_one_stream_are_drawn_each_in_its_own_way(opened: Opener, kind: str) -> None:
    """Those in flight together differ: each gives what it gives in a stream of its own."""
    engine = opened(kind)
    warm = batch("a")
    greedy = batch("b", sampling=Sampling(temperature=0.0, top_p=1.0, max_tokens=5, token_ids=True))
    together = draw(engine, warm, greedy)
    alone = draw(engine, warm) | draw(engine, greedy)
    assert together == near(kind, alone)
    for question in QUESTIONS:
        assert len({together[f"a/{question}/{i}"].text for i in range(4)}) > 1
        assert len({together[f"b/{question}/{i}"].text for i in range(4)}) == 1


@pytest.mark.parametrize("kind", [*MODELS, "scripted"])
def test_temperature_zero_is_the_same_for_every_seed(opened: Opener, kind: str) -> None:
    drawn = draw(opened(kind), batch("a", sampling=replace(WARM, temperature=0.0)))
    for question in QUESTIONS:
        assert len({drawn[f"a/{question}/{i}"].text for i in range(4)}) == 1


@pytest.mark.parametrize("sampling", [WARM, replace(WARM, temperature=0.0)], ids=["warm", "greedy"])
@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_leaving_log_probabilities_out_changes_no_answer(
    opened: Opener, kind: str, sampling: Sampling
) -> None:
    whole = draw(opened(kind), batch("a", sampling=sampling))
    without = draw(opened(kind), batch("a", sampling=replace(sampling, logprob=False)))
    assert {drawn.logprob for drawn in without.values()} == {None}
    assert without == {key: replace(drawn, logprob=None) for key, drawn in whole.items()}


@pytest.mark.parametrize("kind", MODELS)
def test_a_small_nucleus_leaves_the_greedy_answer(opened: Opener, kind: str) -> None:
    engine = opened(kind)
    greedy = draw(engine, batch("a", sampling=replace(WARM, temperature=0.0)))
    narrow = draw(engine, batch("a", sampling=replace(WARM, top_p=1e-6)))
    assert [c.text for c in narrow.values()] == [c.text for c in greedy.values()]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("alone", [{"top_k": 1}, {"min_p": 1.0}], ids=["top_k", "min_p"])
def test_the_most_probable_token_alone_is_the_greedy_answer(
    opened: Opener, kind: str, alone: dict[str, float]
) -> None:
    engine = opened(kind)
    greedy = draw(engine, batch("a", n=1, sampling=replace(WARM, temperature=0.0)))
    narrow = draw(engine, batch("a", n=1, sampling=replace(WARM, **alone)))
    assert narrow == near(kind, greedy)


def test_what_min_p_and_top_k_leave_is_the_same_in_every_engine(opened: Opener) -> None:
    first = replace(WARM, max_tokens=1, temperature=2.0)
    for left in ({"top_k": 3}, {"min_p": 0.02}, {"top_k": 5, "top_p": 0.9}):
        asked = batch("a", QUESTIONS[:1], n=200, sampling=replace(first, **left))
        drawn = {
            kind: {c.text for c in draw(opened(kind), asked).values()}
            for kind in ("vllm", "transformers")
        }
        assert drawn["vllm"] == drawn["transformers"], left
        assert 1 < len(drawn["vllm"]) <= 12


def test_a_repetition_penalty_is_the_same_in_every_engine(opened: Opener) -> None:
    greedy = replace(WARM, temperature=0.0)
    penalised = replace(greedy, repetition_penalty=1.5)
    texts = {
        kind: [
            [c.text for c in draw(opened(kind), batch("a", n=1, sampling=how)).values()]
            for how in (greedy, penalised)
        ]
        for kind in MODELS
    }
    assert texts["vllm"] == texts["transformers"] == texts["openai"]
    assert texts["vllm"][0] != texts["vllm"][1]


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_that_stops_an_answer_is_no_part_of_it(opened: Opener, kind: str) -> None:
    engine = opened(kind)
    greedy = replace(WARM, temperature=0.0)
    whole = draw(engine, batch("a", n=1, sampling=greedy))
    stops = (" answer", "never said")
    cut = draw(engine, batch("a", n=1, sampling=replace(greedy, stop=stops, token_ids=True)))
    texts = [(c.text, whole[name].text) for name, c in cut.items()]
    assert any(stops[0] in text for _, text in texts)
    for name, completion in cut.items():
        assert completion.text == whole[name].text.partition(stops[0])[0]
        assert completion.finish_reason == "stop"
        assert completion.completion_tokens <= whole[name].completion_tokens
        if kind in WORKERS:
            assert len(completion.token_ids or ()) == completion.completion_tokens


@pytest.mark.parametrize("kind", [*MODELS, "scripted"])
def test_max_tokens_ends_with_length(opened: Opener, kind: str) -> None:
    drawn = draw(opened(kind), batch("a", sampling=replace(WARM, max_tokens=2)))
    assert {c.finish_reason for c in drawn.values()} == {"length"}
    assert {c.completion_tokens for c in drawn.values()} == {2}


@pytest.mark.parametrize("kind", [*MODELS, "scripted"])
def test_an_overlong_prompt_is_flagged_and_its_neighbours_drawn(opened: Opener, kind: str) -> None:
    if kind == "scripted":
        engine = open_engine("x", EngineConfig(kind="scripted", max_model_len=CONTEXT), log=Path())
    else:
        engine = opened(kind)
    endless = "pears and apples " * CONTEXT
    drawn = draw(engine, batch("a", (QUESTIONS[0], endless), n=2), batch("b", (endless,), n=1))
    assert [drawn[f"a/{endless}/{i}"].finish_reason for i in range(2)] == ["overlong"] * 2
    assert drawn[f"b/{endless}/0"] == Completion(
        request_id=f"b/{endless}/0",
        text="",
        prompt_tokens=drawn[f"b/{endless}/0"].prompt_tokens,
        completion_tokens=0,
        finish_reason="overlong",
        logprob=None,
    )
    assert all(drawn[f"a/{QUESTIONS[0]}/{i}"].finish_reason != "overlong" for i in range(2))


@pytest.mark.parametrize("kind", MODELS)
def test_a_prompt_near_the_end_of_the_context_is_drawn_as_far_as_it_goes(
    opened: Opener, kind: str, spoiled: Path
) -> None:
    short = prompt_length(spoiled, "pears")
    step = prompt_length(spoiled, "pears and pears") - short
    text = "pears" + " and pears" * ((CONTEXT - short) // step - 10)
    room = CONTEXT - prompt_length(spoiled, text)
    assert 0 < room < 12 * step
    [drawn] = draw(
        opened(kind), batch("a", (text,), n=1, sampling=replace(WARM, max_tokens=CONTEXT))
    ).values()
    assert drawn.finish_reason in ("stop", "length")
    assert 0 < drawn.completion_tokens <= room


@pytest.mark.parametrize("kind", MODELS)
def test_the_chat_template_makes_the_prompt(opened: Opener, kind: str, spoiled: Path) -> None:
    drawn = draw(opened(kind), batch("a", n=1))
    for question in QUESTIONS:
        tokens = drawn[f"a/{question}/0"].prompt_tokens
        assert tokens == prompt_length(spoiled, question)


def prompt_length(folder: Path, text: str) -> int:
    return len(prompt_ids(folder, text))


def prompt_ids(folder: Path, text: str) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    turns = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("kind", MODELS)
def test_log_probabilities_are_those_of_the_model(opened: Opener, kind: str, spoiled: Path) -> None:
    """Also below temperature 1 and within a nucleus: they belong to the model, not to the draw."""
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
        expected = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum().item()
        assert completion.logprob == pytest.approx(expected, abs=2e-3)
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("kind", MODELS)
def test_neighbours_change_nothing(opened: Opener, kind: str) -> None:
    engine = opened(kind)
    among = draw(engine, batch("x"), batch("a"), batch("y", n=9))
    alone = draw(engine, Batch(key="1", requests=batch("a").requests[5:6], sampling=WARM))
    for request_id, completion in alone.items():
        assert completion.text == among[request_id].text
        assert completion.logprob == pytest.approx(among[request_id].logprob, abs=1e-3)


@pytest.mark.parametrize("kind", WORKERS)
def test_a_fresh_process_without_the_spoiled_file_gives_the_same(
    opened: Opener, kind: str, tiny_policy: Path, tmp_path: Path
) -> None:
    before = draw(opened(kind), batch("a"), batch("b"))
    log = tmp_path / "fresh.log"
    engine = open_engine(str(tiny_policy), one_thread(kind), log=log)
    after = draw(engine, batch("b"), batch("a"))
    engine.close()
    assert before == after


@pytest.mark.parametrize("kind", WORKERS)
def test_a_bias_is_added_to_the_logits_of_tokens(opened: Opener, kind: str, spoiled: Path) -> None:
    """Named by text or by id; what is drawn is biased, its log-probability is the model's own."""
    [plain] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1)).values()
    one = token_of(spoiled, "1")
    for token in ("1", one):
        forced = replace(WARM, max_tokens=3, logit_bias=((token, 100.0),))
        [drawn] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=forced)).values()
        assert drawn.text == "111"
        assert drawn.logprob is not None
        assert drawn.logprob < -5
    # Without the first greedy token, the greedy answer begins with another one.
    greedy = replace(WARM, temperature=0.0, max_tokens=1, token_ids=True)
    [best] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=greedy)).values()
    assert best.token_ids is not None
    banned = replace(greedy, logit_bias=((best.token_ids[0], -100.0),))
    [other] = draw(opened(kind), batch("a", QUESTIONS[:1], n=1, sampling=banned)).values()
    assert other.token_ids != best.token_ids
    # Other draws are as they were.
    assert [plain] == list(draw(opened(kind), batch("a", QUESTIONS[:1], n=1)).values())


def test_an_endpoint_takes_biases_by_ids_alone(opened: Opener, spoiled: Path) -> None:
    engine = opened("openai")
    one = token_of(spoiled, "1")
    forced = replace(WARM, max_tokens=3, logit_bias=((one, 100.0),))
    [drawn] = draw(engine, batch("a", QUESTIONS[:1], n=1, sampling=forced)).values()
    assert drawn.text == "111"
    with pytest.raises(EngineError, match="names a token by its text"):
        draw(engine, batch("a", sampling=replace(WARM, logit_bias=(("1", 7.0),))))


@pytest.mark.parametrize(
    ("token", "told"), [("no single token", "is . tokens to this model"), (960, "no token 960")]
)
def test_a_bias_of_what_is_no_token_is_one_sentence(
    spoiled: Path, token: int | str, told: str
) -> None:
    from transformers import AutoTokenizer

    chat = ChatTokenizer(AutoTokenizer.from_pretrained(str(spoiled)), spoiled)
    with pytest.raises(EngineError, match=told):
        chat.biases(((token, 1.0),))


def token_of(folder: Path, text: str) -> int:
    from transformers import AutoTokenizer

    [token] = AutoTokenizer.from_pretrained(str(folder)).encode(text, add_special_tokens=False)
    return int(token)


def test_the_endpoint_draws_what_the_offline_engine_draws(opened: Opener) -> None:
    offline = draw(opened("vllm"), batch("a"))
    served = draw(opened("openai"), batch("a"))
    assert {k: c.text for k, c in served.items()} == {k: c.text for k, c in offline.items()}
    assert [c.completion_tokens for c in served.values()] == [
        c.completion_tokens for c in offline.values()
    ]
    assert [c.logprob for c in served.values()] == pytest.approx(
        [c.logprob for c in offline.values()], abs=1e-3
    )


def test_a_refused_key_is_named(endpoint: Endpoint) -> None:
    wait_until_served(endpoint)
    with pytest.raises(EngineError, match="refuses the API key") as caught:
        probe(endpoint.url, "wrong-key")
    assert endpoint.url in str(caught.value)
    assert "wrong-key" not in str(caught.value)
    with pytest.raises(EngineError, match="does not serve 'other', but policy"):
        probe(endpoint.url, KEY, "other")


def test_a_broken_model_is_one_sentence(tiny_policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_policy, folder)
    (folder / "chat_template.jinja").unlink()
    engine = open_engine(
        str(folder), EngineConfig(kind="transformers"), log=tmp_path / "worker.log"
    )
    with pytest.raises(EngineError, match="no chat template"):
        draw(engine, batch("a"))
    engine.close()
