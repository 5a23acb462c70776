"""Splits of a user's prompts into train, dev and test."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.data.splits import split_prompts
from lpfloop.stores.keys import Json
from lpfloop.stores.records import Prompt, Split

Shares = dict[Split, float]
TENTHS: Shares = {"held-out": 0.1, "dev": 0.1}
ENOUGH = 200
"""Number of prompts with which every split gets some by chance."""

clusters = st.lists(
    st.sampled_from([None, *(f"story {n}" for n in range(60))]), min_size=1, max_size=40
)
shares = st.fixed_dictionaries(
    {"held-out": st.sampled_from([0.01, 0.1, 0.5]), "dev": st.sampled_from([0.01, 0.1, 0.5])}
)


def prompt(text: str, cluster: str | None = None, split: Split = "train") -> Prompt:
    row = Row({"prompt": text, "cluster": cluster})
    return to_prompt(row, task=None, split=split, source="s")


def many(count: int = ENOUGH) -> list[Prompt]:
    return [prompt(f"p{n}") for n in range(count)]


def sides(prompts: Sequence[Prompt]) -> dict[str, Split]:
    return {each.instruction: each.split for each in prompts}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *rows: Json) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_shares_are_those_asked_for() -> None:
    found = Counter(each.split for each in split_prompts(many(4000), TENTHS, seed=1))
    assert found["held-out"] == pytest.approx(400, abs=60)
    assert found["dev"] == pytest.approx(400, abs=60)


@settings(max_examples=10)
@given(added=clusters, seed=st.integers(0, 9))
def test_other_rows_never_move_a_prompt(added: list[str | None], seed: int) -> None:
    some = [*many(), *(prompt(f"c{n}", f"story {n % 50}") for n in range(100))]
    others = [prompt(f"added {n}", cluster) for n, cluster in enumerate(added)]
    before = sides(split_prompts(some, TENTHS, seed))
    after = sides(split_prompts([*others, *reversed(some)], TENTHS, seed))
    assert before == {text: after[text] for text in before}


@settings(max_examples=10)
@given(of=clusters, shares=shares, seed=st.integers(0, 9))
def test_cluster_and_text_whole_on_one_side(
    of: list[str | None], shares: Shares, seed: int
) -> None:
    prompts = [prompt(f"p{n}", cluster) for n, cluster in enumerate(of)]
    again = [replace(each, prompt_id=f"{each.prompt_id} again") for each in prompts]
    found = defaultdict[object, set[Split]](set)
    for each in split_prompts([*prompts, *again], shares, seed):
        found[each.messages].add(each.split)
        if each.cluster is not None:
            found[each.cluster].add(each.split)
    assert all(len(splits) == 1 for splits in found.values())


def test_own_split_is_kept() -> None:
    either: list[tuple[Split, Split]] = [("held-out", "dev"), ("dev", "held-out")]
    for own, other in either:
        prompts = [*many(), prompt("mine", split=own)]
        found = split_prompts(prompts, TENTHS, seed=0)
        assert [each.instruction for each in found if each.split == own] == ["mine"]
        assert 5 < sum(each.split == other for each in found) < 45


def test_three_files_share_nothing(file: Callable[..., Path]) -> None:
    source = file("train", {"prompt": "x", "prompt_id": "1"})
    names = {"source": str(source), "dev": str(file("dev", {"prompt": "y"}))}

    def refused(*rows: Json, **places: str) -> str:
        places = {"held_out": str(file("test", *rows))} | places
        with pytest.raises(InputError) as refusal:
            load_prompts(PromptsConfig.model_validate({**names, **places}), seed=0)
        return str(refusal.value)

    assert "test.jsonl, line 1: the held-out prompt 'x' is also in" in refused({"prompt": "x"})
    assert "dev.jsonl, line 1: the dev prompt 'y' is also in" in refused({"prompt": "y"})
    assert "dev prompt 'x' is also in" in refused({"prompt": "z"}, dev=str(source))
    assert "the id '1' belongs to another prompt in" in refused({"prompt": "z", "prompt_id": "1"})
    held_out = str(file("fine", {"prompt": "z"}))
    prompts = load_prompts(PromptsConfig.model_validate({**names, "held_out": held_out}), seed=0)
    assert sides(prompts) == {"x": "train", "y": "dev", "z": "held-out"}


def test_families_and_clusters(
    file: Callable[..., Path],
) -> None:
    path = file("a", {"prompt": "x", "family": "sums", "story": 7}, {"prompt": "y", "story": "s"})
    config = PromptsConfig(source=str(path), fields={"cluster": "story"}, dev_share=0)
    told = {p.instruction: (p.family, p.cluster) for p in load_prompts(config, seed=0)}
    assert told == {"x": ("sums", "7"), "y": (None, "s")}

    def refused(*rows: Json) -> str:
        with pytest.raises(InputError) as refusal:
            load_prompts(PromptsConfig(source=str(file("b", *rows))), seed=0)
        return str(refusal.value)

    twice = refused({"prompt": "x", "cluster": "a"}, {"prompt": "x", "cluster": "b", "task": "t"})
    assert "line 2: the same prompt is in cluster 'b' here and in 'a' on line 1" in twice
