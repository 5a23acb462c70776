"""lpfloop detects near-duplicate prompts if the file has no clusters."""

from dataclasses import replace

from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.prompt_clusters import clusters_of
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.stores.records import Prompt

OTHERS = (
    "Which river flows through the city of Basel on its way to the sea?",
    "Explain to a child of six why the sky is blue and the sunset red.",
)


def prompt(text: str, **fields: object) -> Prompt:
    return to_prompt(Row({"prompt": text, **fields}), task=None, split="train", source="s")


def together(*prompts: Prompt) -> bool:
    """Return whether some prompts share a cluster, and two others are alone."""
    others = [prompt(text) for text in OTHERS]
    found = clusters_of([*others, *prompts])
    alone = {found[each.prompt_id] for each in others}
    ours = {found[each.prompt_id] for each in prompts}
    assert len(alone) == len(others)
    assert not alone & ours
    return len(ours) == 1


def test_variations_together(subtests):
    for one, other in [
        (
            "On a quiz, Martin answered 3 fewer than Kelsey. How many did she answer?",
            "On a quiz, Nicole answered 12 fewer than Kim. How many did she answer?",
        ),
        ("Write the word drum 7 times.", "Write the word drum 12 times."),
    ]:
        with subtests.test(case=one):
            assert together(prompt(one), prompt(other))


def test_others_apart(subtests):
    for one, other in [
        (
            "Tom picked 12 apples and gave 3 of them to Sue. How many apples are left for him?",
            "A train leaves at 12 and stops 3 times on its way. How many stops are there a day?",
        ),
        ("Describe Hugo Ivers.", "Describe World War."),
    ]:
        with subtests.test(case=one):
            assert not together(prompt(one), prompt(other))


def test_one_reference_together() -> None:
    abstract = "Hugo Ivers was a judge. Hugo was born in Faro. Ivers won the Blue Star."
    told = [prompt(text, reference=abstract) for text in ("Describe Ivers.", "Who was Hugo?")]
    assert together(*told)
    assert not together(*(replace(each, reference="Faro") for each in told))
