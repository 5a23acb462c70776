"""Prompts are completed by different models of a pool, under principles drawn for each of them."""

import json
import re
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from threading import Barrier

import pytest
from endpoints import answering
from hypothesis import given
from hypothesis import strategies as st
from turns import rows, turn

from examples import CANDIDATE, PROMPT
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, SamplingConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.principles import Principle, load_mix
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.trace.find_row import Found
from lpfloop.loop.lake.trace.page import story_page
from lpfloop.loop.lake.trace.story import Story
from lpfloop.loop.run.completers import completers_of
from lpfloop.loop.run.model_pool import POOLS, PoolModel, load_pool
from lpfloop.loop.run.stop import Stopped
from lpfloop.loop.stages.complete import complete
from lpfloop.loop.stages.model_assignment import principle_of, slots, told
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.stores.records import Candidate, Message, Prompt

ROOT = Path(__file__).parent.parent.parent
SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "policy.engine.max_model_len=null",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "prompts.per_iteration=20",
    "prompts.chunk=4",
    "assessment.reference=null",
)
MODELS = """
- {name: cool, model: policy, sampling: {temperature: 0.5}}
- {name: warm, model: policy, sampling: {temperature: 1.5, max_tokens: 9}}
- {name: other, model: tiny, engine: {kind: scripted, script: "scripts:parrot"}}
- {name: deaf, model: tiny, engine: {kind: scripted, script: "scripts:conditioned_policy"},
   principles: none}
- {name: plain, model: tiny, engine: {kind: scripted}, principles: prompt, size: small}
"""
CHI_SQUARE_LIMIT = {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5}
"""What chance exceeds once in a thousand times, by degrees of freedom."""


def pool_file(folder: Path, models: str = MODELS, name: str = "pool.yaml") -> Path:
    path = folder / name
    path.write_text(f"models:\n{models}")
    return path


def job(folder: Path, *overrides: str, pool: Path, name: str = "a", fork=None) -> Job:
    settings = (*SETTINGS, f"completion.pool={pool}", *overrides)
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    return Job(config=config, lake=folder, name=name, fork=fork)


def completions(wanted: Job, n: int = 4) -> list[Candidate]:
    with turn(wanted) as it:
        return rows(it, complete(it, it.prompts(), n=n))


def prompt(number: int = 0, source: str = "tiny", *turns: Message) -> Prompt:
    return Prompt(
        prompt_id=f"prompt-{number}",
        task="general",
        split="train",
        messages=turns or (Message(role="user", content="Why?"),),
        reference=None,
        checks=(),
        source=source,
    )


def chi_square(counts: Counter, shares: dict[str, float]) -> float:
    total = sum(counts.values())
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in shares.items())


# who answers


@given(
    weights=st.dictionaries(
        st.text("abcdef", min_size=1), st.floats(0.01, 100), min_size=1, max_size=8
    ),
    n=st.integers(0, 20),
    seed=st.integers(0, 9),
)
def test_no_model_answers_a_prompt_again_before_all_have(weights, n, seed):
    drawn = slots(weights, "prompt-1", n, seed)
    assert len(drawn) == n
    assert len(set(drawn)) == n
    times = Counter(dict.fromkeys(weights, 0) | Counter(slot.model for slot in drawn))
    assert max(times.values()) - min(times.values()) <= 1
    for slot in drawn:
        assert slot.number < times[slot.model]
    assert slots(dict(reversed(weights.items())), "prompt-1", n, seed) == drawn
    assert slots(weights, "prompt-1", n + 1, seed)[:n] == drawn


@given(weights=st.dictionaries(st.text("abc", min_size=1), st.floats(0.1, 9), min_size=2))
def test_a_model_that_leaves_the_pool_changes_nothing_of_the_others_order(weights):
    gone = min(weights)
    fewer = {name: weight for name, weight in weights.items() if name != gone}
    order = [slot.model for slot in slots(weights, "prompt-1", len(weights), 0)]
    assert [name for name in order if name != gone] == [
        slot.model for slot in slots(fewer, "prompt-1", len(fewer), 0)
    ]


def test_models_are_drawn_in_proportion_to_their_weights():
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    drawn = [slots(weights, f"prompt-{i}", 2, seed=3) for i in range(4000)]
    first = Counter(two[0].model for two in drawn)
    assert chi_square(first, {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}) < CHI_SQUARE_LIMIT[2]
    after_c = Counter(two[1].model for two in drawn if two[0].model == "c")
    assert chi_square(after_c, {"a": 1 / 3, "b": 2 / 3}) < CHI_SQUARE_LIMIT[1]


# under which principles


@pytest.mark.parametrize(("name", "shortest"), [("ultrafeedback", 40), ("ultrafeedback-zh", 12)])
def test_eleven_principles_are_shipped_for_each_of_four_aspects(name, shortest):
    mix = load_mix(name)
    assert mix is not None
    assert set(mix.texts) == {"calibration", "helpfulness", "honesty", "truthfulness"}
    texts = [text for texts in mix.texts.values() for text in texts]
    assert [len(texts) for texts in mix.texts.values()] == [11] * 4
    assert len(set(texts)) == 44
    assert all(shortest < len(text) < 200 for text in texts)


def test_the_principles_in_chinese_have_the_shares_of_those_in_english():
    english, chinese = load_mix("ultrafeedback"), load_mix("ultrafeedback-zh")
    assert english is not None
    assert chinese is not None
    assert (chinese.sources, chinese.default) == (english.sources, english.default)
    assert not any(re.search("[A-Za-z]", t) for texts in chinese.texts.values() for t in texts)


@pytest.mark.parametrize(
    ("source", "shares"),
    [
        ("evol_instruct", {"helpfulness": 1}),
        ("false_qa.jsonl", {"truthfulness": 1}),
        ("flan_v2_cot", {"helpfulness": 0.6, "truthfulness": 0.2, "calibration": 0.2}),
        (
            "ultrachat",
            {"helpfulness": 0.6, "truthfulness": 0.2, "honesty": 0.18, "calibration": 0.02},
        ),
        (
            "questions.jsonl",
            {"helpfulness": 0.6, "truthfulness": 0.2, "honesty": 0.18, "calibration": 0.02},
        ),
    ],
)
def test_a_source_is_given_principles_in_the_shares_of_its_mix(source, shares):
    mix = load_mix("ultrafeedback")
    assert mix is not None
    (slot,) = slots({"a": 1.0}, "prompt", 1, 0)
    drawn = [principle_of(mix, prompt(i, source), slot, 7) for i in range(3000)]
    counts = Counter(principle.aspect for principle in drawn)
    assert set(counts) == set(shares)
    if len(shares) > 1:
        assert chi_square(counts, shares) < CHI_SQUARE_LIMIT[len(shares) - 1]
    aspect = next(iter(shares))
    texts = Counter(p.text for p in drawn if p.aspect == aspect)
    assert set(texts) == set(mix.texts[aspect])
    assert chi_square(texts, dict.fromkeys(texts, 1 / 11)) < 29.6


def test_the_longest_name_that_a_source_begins_with_decides(tmp_path):
    path = tmp_path / "mix.yaml"
    path.write_text(
        "texts: {wit: wit.yaml}\n"
        "sources: {flan: {honesty: 1}, flan_v2: {wit: 1}}\n"
        "default: {helpfulness: 1}\n"
    )
    (tmp_path / "wit.yaml").write_text("- Be witty.\n- Be dry.\n")
    mix = load_mix(str(path))
    assert mix is not None
    found = {source: mix.shares(source) for source in ("flan.jsonl", "flan_v2_cot", "fl")}
    assert found == {"flan.jsonl": {"honesty": 1}, "flan_v2_cot": {"wit": 1}, "fl": mix.default}
    assert mix.texts["wit"] == ("Be witty.", "Be dry.")


def test_a_prompt_knows_its_source_by_its_row_or_by_its_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"prompt": "One?", "source": "flan_v2_cot"}\n{"prompt": "Two?"}\n'
        '{"prompt": "Two?", "source": "sharegpt"}\n{"prompt": "Three?", "source": 3}\n'
    )
    found = [(p.messages[0].content, p.source) for p in read_prompts(path)]
    assert found == [("One?", "flan_v2_cot"), ("Two?", "mine.jsonl"), ("Three?", "mine.jsonl")]


def test_a_principle_stands_where_the_model_takes_it():
    principle = Principle(aspect="honesty", text="Be honest.")
    user, system = (
        Message(role="user", content="Why?"),
        Message(role="system", content="You are X."),
    )
    in_system, in_prompt = (PoolModel(name="m", principles=p) for p in ("system", "prompt"))
    alone = Message(role="system", content="Be honest.")
    both = Message(role="system", content="You are X.\n\nBe honest.")
    before = Message(role="user", content="Be honest.\n\nWhy?")
    assert told((user,), principle, in_system) == (alone, user)
    assert told((system, user), principle, in_system) == (both, user)
    assert told((system, user), principle, in_prompt) == (system, before)
    assert told((user,), None, in_system) == (user,)
    assert Principle.read(str(principle)) == principle


# the verb


def test_completions_are_of_different_models_each_under_its_principle(tmp_path, asked):
    found = completions(job(tmp_path, pool=pool_file(tmp_path)))
    by_prompt = Counter(c.prompt_id for c in found)
    assert set(by_prompt.values()) == {4}
    assert len(by_prompt) == 20
    assert len({(c.prompt_id, c.model) for c in found}) == 80
    assert {c.model for c in found} == {"cool", "warm", "other", "deaf", "plain"}
    sent = {request.request_id: request for request, _ in asked}
    for candidate in found:
        messages = sent[candidate.candidate_id].messages
        if candidate.model == "deaf":
            assert candidate.principle is None
            assert [m.role for m in messages] == ["user"]
            continue
        assert candidate.principle is not None
        principle = Principle.read(candidate.principle)
        assert principle.aspect in {"helpfulness", "truthfulness", "honesty", "calibration"}
        if candidate.model == "plain":
            assert [m.role for m in messages] == ["user"]
            assert messages[0].content.startswith(f"{principle.text}\n\n")
        else:
            assert messages[0] == Message(role="system", content=principle.text)


def test_each_model_is_sampled_as_its_pool_says_and_else_as_the_policy(tmp_path, asked):
    found = completions(job(tmp_path, pool=pool_file(tmp_path)))
    models = {c.candidate_id: c.model for c in found}
    drawn = {models[r.request_id]: (s.temperature, s.top_p, s.max_tokens) for r, s in asked}
    assert drawn["cool"] == (0.5, 1.0, 64)
    assert drawn["warm"] == (1.5, 1.0, 9)
    assert drawn["other"] == (1.0, 1.0, 64)
    warm = next(c for c in found if c.model == "warm")
    assert json.loads(warm.sampling)["temperature"] == 1.5
    assert {c.policy for c in found if c.model == "cool"} == {warm.policy}
    assert warm.policy != next(c.policy for c in found if c.model == "other")


def test_without_principles_nothing_is_added(tmp_path, asked):
    wanted = job(tmp_path, "completion.principles=none", pool=pool_file(tmp_path))
    assert {c.principle for c in completions(wanted)} == {None}
    assert {len(request.messages) for request, _ in asked} == {1}


def test_with_fewer_models_than_completions_all_answer_before_one_does_again(tmp_path):
    models = "".join(MODELS.splitlines(keepends=True)[:3])
    found = completions(job(tmp_path, pool=pool_file(tmp_path, models)), n=3)
    counts = Counter((c.prompt_id, c.model) for c in found)
    assert set(counts.values()) == {1, 2}
    assert len({c.candidate_id for c in found}) == 60


def test_one_model_alone_that_changes_is_asked_again(tmp_path, asked):
    before = completions(job(tmp_path, pool=pool_file(tmp_path)))
    asked.clear()
    changed = MODELS.replace("temperature: 0.5", "temperature: 0.7")
    other = job(tmp_path, pool=pool_file(tmp_path, changed, "new.yaml"), name="b", fork="a")
    after = completions(other)
    kept = {c.candidate_id for c in before} & {c.candidate_id for c in after}
    assert {c.model for c in after if c.candidate_id not in kept} == {"cool"}
    assert {sampling.temperature for _, sampling in asked} == {0.7}
    assert len(asked) == sum(c.model == "cool" for c in after)


@pytest.mark.parametrize(
    ("overlap", "last"),
    [
        # While the first two models, which share an engine, take turns, and the others wait.
        *(("overlap=true", 1), ("overlap=true", 9)),
        # In the second and in the fourth of five models that answer one after the other.
        *(("overlap=false", 25), ("overlap=false", 60)),
    ],
)
def test_stopped_anywhere_and_resumed_the_rows_are_the_same(
    tmp_path, monkeypatch, asked, overlap, last
):
    whole = completions(job(tmp_path / "whole", pool=pool_file(tmp_path)))
    asked.clear()
    answer = ScriptedEngine._complete
    wanted = job(tmp_path / "parts", overlap, pool=pool_file(tmp_path))

    def stopping(self, request, sampling):
        if len(asked) + 1 == last:
            it.run.stop.request()
        return answer(self, request, sampling)

    monkeypatch.setattr(ScriptedEngine, "_complete", stopping)
    with pytest.raises(Stopped), turn(wanted) as it:
        complete(it, it.prompts(), n=4)
    assert last <= len(asked) < len(whole)
    assert completions(wanted) == whole
    assert len(asked) == len(whole)


def test_what_changes_under_a_run_is_refused_by_name(tmp_path):
    path = pool_file(tmp_path)
    completions(job(tmp_path, pool=path))
    path.write_text(path.read_text().replace("temperature: 0.5", "temperature: 0.7"))
    with pytest.raises(ConfigError, match=r"completers\.models\.cool\.sampling\.temperature: 0\.5"):
        completions(job(tmp_path, pool=path))


def test_an_endpoint_answers_beside_the_policy(tmp_path):
    with answering(lambda messages: f"I was told: {messages[0]['content']}") as url:
        models = f"- {{name: served, model: '{url}'}}\n- {{name: own, model: policy}}\n"
        wanted = job(tmp_path, "prompts.per_iteration=5", pool=pool_file(tmp_path, models))
        found = completions(wanted, n=2)
    assert Counter(c.model for c in found) == {"served": 5, "own": 5}
    for candidate in found:
        if candidate.model == "served":
            assert candidate.text == f"I was told: {Principle.read(candidate.principle).text}"


def test_models_of_one_endpoint_are_asked_at_one_time(tmp_path):
    """Each model has one request under way, and gets its answer when the other one has, too."""
    both = Barrier(2)

    def answer(messages):
        both.wait(timeout=120)
        return messages[0]["content"]

    with answering(answer, names=("one", "other")) as url:
        served = "- {{name: {0}, model: '{1}', engine: {{model_name: {0}, concurrency: 1}}}}\n"
        models = "".join(served.format(name, url) for name in ("one", "other"))
        wanted = job(tmp_path, "prompts.per_iteration=3", pool=pool_file(tmp_path, models))
        found = completions(wanted, n=2)
    assert Counter(c.model for c in found) == {"one": 3, "other": 3}


@pytest.mark.model
def test_the_tiny_policy_answers_at_five_temperatures_in_one_engine(tmp_path):
    settings = (
        "policy.engine.kind=transformers",
        "policy.engine.script=null",
        "policy.engine.max_model_len=512",
        "prompts.per_iteration=24",
        "prompts.chunk=24",
    )
    with turn(job(tmp_path, *settings, pool=Path("tiny"))) as it:
        found = rows(it, complete(it, it.prompts(), n=4))
        assert len(list(it.run.models._loaded.items())) == 1
    assert len(list((tmp_path / "runs" / "a" / "logs").glob("engine-*.log"))) == 1
    assert {c.model for c in found} == {m.name for m in load_pool("tiny").models}
    assert sum(c.usable for c in found) > 90
    assert {c.principle for c in found} == {None}
    assert len({c.text for c in found if c.prompt_id == found[0].prompt_id}) > 1


def test_show_says_who_answered_under_which_principle():
    told = replace(CANDIDATE, policy="digest", model="gpt-4", principle="honesty: Be honest.")
    empty = {field.name: [] for field in fields(Story)}
    rest = {
        "run": "a",
        "asked": Found(kind="candidate", id=told.candidate_id, prompt_id=PROMPT.prompt_id),
        "prompt": PROMPT,
        "candidates": [told, replace(CANDIDATE, candidate_id="cand-2")],
    }
    story = Story(**{**empty, **rest})
    answered, plain = story_page(story).sections[1].boxes
    assert answered.title.endswith("by gpt-4")
    assert answered.below == ("principle: honesty: Be honest.",)
    assert plain.below == ()


# pools


def test_the_papers_pool_has_its_seventeen_models_by_size():
    pool = load_pool("ultrafeedback")
    assert len(pool.models) == 17
    assert Counter(model.size for model in pool.models)["commercial"] == 3
    assert {model.weight for model in pool.models} == {1.0}
    assert {model.model for model in pool.models} == {None}


@pytest.mark.parametrize("name", ["policy", "tiny"])
def test_a_pool_of_the_policy_alone_needs_nothing_else(name):
    config = load_config("tiny", "ultrafeedback-dpo", [f"completion.pool={name}"], {})
    found = completers_of(config)
    assert found is not None
    assert found.others == ()
    policy = SamplingConfig()
    assert len({model.sampling_of(policy).temperature for model in found.pool.models}) >= 4
    assert all(found.mix_of(model) is None for model in found.pool.models) == (name == "tiny")


def test_a_model_without_a_place_is_told_before_the_run_begins(tmp_path):
    extended = tmp_path / "mine.yaml"
    absent = [m.name for m in load_pool("ultrafeedback").models[3:]]
    given = "".join(f"- {{name: {name}, weight: 0}}\n" for name in absent)
    extended.write_text(f"extends: ultrafeedback\nmodels:\n- {{name: gpt-4, model: tiny}}\n{given}")
    with pytest.raises(ConfigError) as caught, turn(job(tmp_path, pool=extended)):
        pass
    assert "mine does not say where gpt-3.5-turbo, bard can be found" in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_model_that_is_not_there_is_told_by_its_name(tmp_path):
    models = f"- {{name: big, model: {tmp_path / 'nothing'}}}\n"
    with (
        pytest.raises(ConfigError, match=r"the model big of the pool: .*no such model folder"),
        turn(job(tmp_path, pool=pool_file(tmp_path, models))),
    ):
        pass


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("- {name: a, model: policy, weigth: 2}", "model 'a': unknown field 'weigth'; the fields"),
        ("- {name: a, model: policy, weight: -1}", "model 'a': weight: must be greater than"),
        ("- {name: a, model: policy, weight: 0}", "all models have the weight 0"),
        ("- {name: a, sampling: {temperature: hot}}", r"model 'a': sampling\.temperature: must be"),
        ("- {name: a, principles: maybe}", "model 'a': principles: must be 'system', 'prompt' or"),
        ("- {name: a, model: policy, engine: {kind: vllm}}", r"policy runs under policy\.engine"),
        ("- {name: 'a b', model: policy}", "model 'a b': name:"),
        ("- {name: a}\n- {name: a}", "model 2: the name 'a' appears twice"),
        ("- policy", "model 1 must be a mapping with a name"),
        ("  {}", "'models' must be a list with at least one model"),
        ("- {name: a", "line "),
    ],
)
def test_a_wrong_pool_is_refused_with_its_place(tmp_path, models, message):
    path = pool_file(tmp_path, models)
    with pytest.raises(ConfigError, match=message) as caught:
        load_pool(str(path))
    assert str(path) in str(caught.value)


def test_every_field_of_a_pool_is_documented():
    text = (ROOT / "docs" / "completions.md").read_text(encoding="utf-8")
    fields = re.findall(r"^\| `(\w+)` \|", text.partition("A file lists `models`")[2], re.MULTILINE)
    assert fields == list(PoolModel.model_fields)


def test_an_unknown_pool_is_told_what_there_is():
    with pytest.raises(
        ConfigError, match=r"no pool of models .* are chatglm, policy, tiny, ultraf"
    ):
        load_pool("ultrafeedbakc")
    assert POOLS.shipped() == ("chatglm", "policy", "tiny", "ultrafeedback")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: {}", "the field 'default' is missing"),
        ("default: {helpfulness: 0.6}", r"shares of default must add up to 1, but sum to 0\.6"),
        ("default: {wit: 1}", "no principles of 'wit' are shipped; .* under 'texts'"),
        ("default: {wit: 1}\ntexts: {wit: wit.yaml}", r"wit\.yaml: no principles can be read"),
        ("default: {honesty: 2, helpfulness: -1}", "default.honesty: must be less than"),
        ("default: {honesty: 1}\nsource: {}", "unknown field 'source'"),
        ("- honesty", "must be"),
    ],
)
def test_a_wrong_mix_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_mix(str(path))
    assert str(tmp_path) in str(caught.value)


def test_an_unknown_mix_is_told_what_there_is():
    with pytest.raises(
        ConfigError, match=r"no mix of principles .* are ultrafeedback, ultrafeedback-zh, none"
    ):
        load_mix("nothing")
    assert load_mix("none") is None
