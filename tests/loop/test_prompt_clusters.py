"""Which prompts are taken to be near copies of one another, where nobody said."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.prompt_clusters import clusters_of
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.data.prompts import read_prompts, tiny_prompts
from lpfloop.stores.records import Message, Prompt

OTHERS = (
    "Which river flows through the city of Basel on its way to the sea?",
    "Explain to a child of six why the sky is blue and the sunset red.",
)


def prompt(text: str, **fields: object) -> Prompt:
    return to_prompt(Row({"prompt": text, **fields}), task=None, split="train", source="s")


def together(*prompts: Prompt) -> bool:
    """Whether some prompts are in one cluster, and two others are each alone."""
    others = [prompt(text) for text in OTHERS]
    found = clusters_of([*others, *prompts])
    alone = {found[each.prompt_id] for each in others}
    ours = {found[each.prompt_id] for each in prompts}
    assert len(alone) == len(others)
    assert not alone & ours
    return len(ours) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            (
                "Dina has twice as many dolls as Ivy. 2/3 of Ivy's dolls are collectors editions. "
                "If Ivy has 20 collectors edition dolls, how many dolls does Dina have?"
            ),
            (
                "Dina has 60 dolls. She has twice as many dolls as Ivy. 2/3 of Ivy's dolls are "
                "collectors editions. How many collectors edition dolls does Ivy have?"
            ),
        ),
        (
            "On a quiz, Martin answered 3 fewer than Kelsey. How many did she answer?",
            "On a quiz, Nicole answered 12 fewer than Kim. How many did she answer?",
        ),
        ("Write the word drum 7 times.", "Write the word drum 12 times."),
    ],
    ids=["wordings", "names and numbers", "numbers"],
)
def test_wordings_and_variations_of_a_question_are_together(one: str, other: str) -> None:
    assert together(prompt(one), prompt(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Tom picked 12 apples and gave 3 of them to Sue. How many apples are left for him?",
            "A train leaves at 12 and stops 3 times on its way. How many stops are there a day?",
        ),
        ("Describe Hugo Ivers.", "Describe World War."),
        ("Name a colour.", "Name a bird."),
    ],
)
def test_other_questions_are_not_together(one: str, other: str) -> None:
    assert not together(prompt(one), prompt(other))


def test_questions_with_one_reference_are_together_but_not_with_one_result() -> None:
    abstract = "Hugo Ivers was a judge. Hugo was born in Faro. Ivers won the Blue Star."
    told = [prompt(text, reference=abstract) for text in ("Describe Ivers.", "Who was Hugo?")]
    assert together(*told)
    assert not together(*(replace(each, reference="Faro") for each in told))


def test_what_is_given_is_kept() -> None:
    texts = ["How many of 12 apples are left?", "How many of 15 apples are left?"]
    given = [prompt(text, cluster=f"c{n}") for n, text in enumerate(texts)]
    assert [*clusters_of(given).values()] == ["c0", "c1"]
    assert clusters_of([*given, prompt(OTHERS[0])])[given[0].prompt_id] == "c0"


def test_an_instruction_or_examples_that_all_prompts_begin_with_join_nothing(
    gsm8k: list[Prompt],
) -> None:
    begun = " ".join(each.instruction for each in gsm8k[:6])
    shown = [
        replace(each, messages=(Message(role="user", content=f"{begun} {each.instruction}"),))
        for each in gsm8k[6:200]
    ]
    assert len(set(clusters_of(shown).values())) > 0.98 * len(shown)
    system = Message(role="system", content=begun)
    framed = [replace(each, messages=(system, *each.messages)) for each in gsm8k[:5]]
    assert len(set(clusters_of(framed).values())) == len(framed)


def test_the_order_does_not_matter() -> None:
    prompts = [replace(each, cluster=None) for each in tiny_prompts() if each.split != "train"]
    turned = list(prompts)
    random.Random(1).shuffle(turned)
    assert clusters_of(turned) == clusters_of(prompts)


def test_the_stories_and_persons_of_the_tiny_world_come_together_unsaid() -> None:
    prompts = [each for each in tiny_prompts() if each.split == "held-out"]
    guessed = clusters_of([replace(each, cluster=None) for each in prompts])
    for of, least in (("math", 0.9), ("facts", 1.0)):
        known = [each for each in prompts if each.task == of]
        assert purity(known, [guessed[each.prompt_id] for each in known]) >= least
    facts = [each for each in prompts if each.task == "facts"]
    assert len({guessed[each.prompt_id] for each in facts}) == len({p.cluster for p in facts})


def purity(prompts: Sequence[Prompt], guessed: Sequence[str]) -> float:
    """The share of the prompts that are in a guessed cluster with others of their own alone."""
    most = Counter(zip(guessed, (each.cluster for each in prompts), strict=True))
    best = Counter[str]()
    for (name, _), count in most.items():
        best[name] = max(best[name], count)
    return best.total() / len(prompts)


def test_thousands_of_wordings_of_one_question_are_one_cluster() -> None:
    asked = "Tell me in plain words why the {} is so dear to people who live near the sea in {}."
    prompts = [prompt(asked.format(f"thing{n}", f"place{n % 7}")) for n in range(1500)]
    others = [prompt(f"{OTHERS[0]} {n} {'abcdefgh'[n % 8] * 5}") for n in range(2000)]
    found = clusters_of([*prompts, *others])
    assert len({found[each.prompt_id] for each in prompts}) == 1


def test_no_prompts_have_no_clusters() -> None:
    assert clusters_of([]) == {}
    empty = prompt("x")
    assert clusters_of([empty]) == {empty.prompt_id: empty.prompt_id}


# published data


@pytest.fixture
def gsm8k(shared_data: Path) -> list[Prompt]:
    return read_prompts(shared_data / "gsm8k_train_first4000.jsonl")[:1000]


def test_problems_of_gsm8k_stay_alone(gsm8k: list[Prompt]) -> None:
    sizes = Counter(clusters_of(gsm8k).values())
    assert len(sizes) > 0.98 * len(gsm8k)
    assert max(sizes.values()) <= 3


def test_variations_of_svamp_come_together(shared_data: Path) -> None:
    lines = (shared_data / "svamp.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    prompts = [prompt(f"{row['Body']} {row['Question']}") for row in rows]
    sizes = Counter(clusters_of(prompts).values())
    assert 150 < len(sizes) < 300
    assert max(sizes.values()) < 20
