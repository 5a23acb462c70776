"""Different models of a pool complete prompts, each under principles drawn for it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.data.principles import Principle, load_mix
from lpfloop.loop.run.completers import PoolModel, load_pool
from lpfloop.loop.stages.complete import add_principle, principle_of, slots
from lpfloop.stores.records import Message, Prompt

CHI_SQUARE_LIMIT = {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5}
"""Limit that chance exceeds once in a thousand times, by degrees of freedom."""


def prompt(number: int, source: str) -> Prompt:
    return Prompt(
        prompt_id=f"prompt-{number}",
        task="general",
        split="train",
        messages=(Message(role="user", content="Why?"),),
        reference=None,
        checks=(),
        source=source,
    )


def chi_square(counts: Counter, shares: dict[str, float]) -> float:
    total = sum(counts.values())
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in shares.items())


@given(
    weights=st.dictionaries(
        st.text("abcdef", min_size=1), st.floats(0.01, 100), min_size=1, max_size=8
    ),
    n=st.integers(0, 20),
    seed=st.integers(0, 9),
)
def test_models_take_turns(weights, n, seed):
    drawn = slots(weights, "prompt-1", n, seed)
    assert len(drawn) == n
    assert len(set(drawn)) == n
    times = Counter(dict.fromkeys(weights, 0) | Counter(slot.model for slot in drawn))
    assert max(times.values()) - min(times.values()) <= 1
    for slot in drawn:
        assert slot.number < times[slot.model]
    assert slots(dict(reversed(weights.items())), "prompt-1", n, seed) == drawn
    assert slots(weights, "prompt-1", n + 1, seed)[:n] == drawn


def test_models_are_drawn_by_weight():
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    drawn = [slots(weights, f"prompt-{i}", 2, seed=3) for i in range(1000)]
    first = Counter(two[0].model for two in drawn)
    assert chi_square(first, {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}) < CHI_SQUARE_LIMIT[2]
    after_c = Counter(two[1].model for two in drawn if two[0].model == "c")
    assert chi_square(after_c, {"a": 1 / 3, "b": 2 / 3}) < CHI_SQUARE_LIMIT[1]


def test_shares_of_a_mix(subtests):
    for source, shares in (
        ("evol_instruct", {"helpfulness": 1}),
        ("false_qa.jsonl", {"truthfulness": 1}),
        ("flan_v2_cot", {"helpfulness": 0.6, "truthfulness": 0.2, "calibration": 0.2}),
        (
            "ultrachat",
            {"helpfulness": 0.6, "truthfulness": 0.2, "honesty": 0.18, "calibration": 0.02},
        ),
    ):
        with subtests.test(source=source):
            mix = load_mix("ultrafeedback")
            assert mix is not None
            (slot,) = slots({"a": 1.0}, "prompt", 1, 0)
            drawn = [principle_of(mix, prompt(i, source), slot, 7) for i in range(1000)]
            counts = Counter(principle.aspect for principle in drawn)
            assert set(counts) == set(shares)
            if len(shares) > 1:
                assert chi_square(counts, shares) < CHI_SQUARE_LIMIT[len(shares) - 1]
            aspect = next(iter(shares))
            texts = Counter(p.text for p in drawn if p.aspect == aspect)
            assert set(texts) == set(mix.texts[aspect])
            assert chi_square(texts, dict.fromkeys(texts, 1 / 11)) < 29.6


def test_place_of_a_principle():
    principle = Principle(aspect="honesty", text="Be honest.")
    user, system = (
        Message(role="user", content="Why?"),
        Message(role="system", content="You are X."),
    )
    in_system, in_prompt = (PoolModel(name="m", principles=p) for p in ("system", "prompt"))
    alone = Message(role="system", content="Be honest.")
    both = Message(role="system", content="You are X.\n\nBe honest.")
    before = Message(role="user", content="Be honest.\n\nWhy?")
    assert add_principle((user,), principle, in_system) == (alone, user)
    assert add_principle((system, user), principle, in_system) == (both, user)
    assert add_principle((system, user), principle, in_prompt) == (system, before)
    assert add_principle((user,), None, in_system) == (user,)
    assert Principle.read(str(principle)) == principle


def test_bad_pools_are_refused(tmp_path, subtests):
    for models, message in (
        ("- {name: a, model: policy, weight: -1}", "model 'a': weight"),
        ("- {name: a, sampling: {temperature: hot}}", r"sampling\.temperature"),
        ("- {name: a, model: policy, engine: {kind: vllm}}", r"policy\.engine"),
        ("- {name: a}\n- {name: a}", "twice"),
    ):
        with subtests.test(models=models):
            path = tmp_path / "pool.yaml"
            path.write_text(f"models:\n{models}")
            with pytest.raises(ConfigError, match=message) as caught:
                load_pool(str(path))
            assert str(path) in str(caught.value)
