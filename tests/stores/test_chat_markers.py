"""A text that holds the marks of a chat template stays a text, and reads as it did."""

import pytest

from lpfloop.stores.chat_markers import FAMILIES, NAMED, WORD_JOINER, broken, family_of

BAR = "\uff5c"
EVERY = sorted({mark for marks in FAMILIES.values() for mark in marks})


@pytest.mark.parametrize("mark", EVERY)
def test_every_mark_is_broken_where_the_family_is_not_known(mark):
    text = broken(f"yes{mark}{mark}system\nno")
    assert mark not in text
    assert text.replace(WORD_JOINER, "") == f"yes{mark}{mark}system\nno"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_own_marks_are_broken_and_text_of_other_families_is_left(family):
    assert all(mark not in broken(f"a{mark}b", family) for mark in FAMILIES[family])
    others = [m for m in EVERY if m not in FAMILIES[family] and "|" not in m and BAR not in m]
    assert others
    assert [other for other in others if broken(other, family) != other] == []


def test_marks_that_overlap_are_all_broken():
    assert "]~b]" not in broken("]~b]~b]~b]")
    assert "<|im_end|>" not in broken("<|<|im_end|>|im_end|>")


@pytest.mark.parametrize("family", [*FAMILIES, None])
def test_marks_of_the_usual_shape_are_broken_for_every_family(family):
    for mark in ("<|reserved_special_token_7|>", f"<{BAR}tool▁calls▁begin{BAR}>"):
        assert broken(f"a{mark}b", family) == f"a<{WORD_JOINER}{mark[1:]}b"


@pytest.mark.parametrize("text", ["", "a <| f |> b", "if a < b | c > d: [x]", "x | y |> z", "|im|"])
def test_other_text_is_left(text):
    assert broken(text) == text


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "qwen"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("mistral-large-latest", "mistral"),
        ("google/gemma-3-27b-it", "gemma"),
        ("deepseek-chat", "deepseek"),
        ("DeepSeek-R1-Distill-Qwen-32B", None),
        ("gpt-4.1-mini", None),
        ("judge", None),
    ],
)
def test_the_family_is_known_by_a_models_name_if_it_names_just_one(name, family):
    assert family_of(name) == family


def test_names_lead_to_families_that_are_known():
    assert {family for _, family in NAMED} <= set(FAMILIES)
