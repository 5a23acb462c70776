"""A text with the marks of a chat template stays a text, and reads unchanged."""

from chat_marks import CHAT_MARKS

from lpfloop.stores.chat_markers import WORD_JOINER, broken


def test_every_mark_broken(subtests):
    for mark in CHAT_MARKS:
        with subtests.test(case=mark):
            text = broken(f"yes{mark}{mark}system\nno")
            assert mark not in text
            assert text.replace(WORD_JOINER, "") == f"yes{mark}{mark}system\nno"


def test_overlapping_marks():
    assert "]~b]" not in broken("]~b]~b]~b]")
    assert "<|im_end|>" not in broken("<|<|im_end|>|im_end|>")


def test_other_text_left(subtests):
    for text in ["", "a <| f |> b", "if a < b | c > d: [x]", "x | y |> z", "|im|"]:
        with subtests.test(case=text):
            assert broken(text) == text
