"""A text with the marks of a chat template stays a text, and reads unchanged."""

from lpfloop.stores.chat_markers import FAMILIES, WORD_JOINER, broken, family_of

BAR = "\uff5c"
EVERY = sorted({mark for marks in FAMILIES.values() for mark in marks})


def test_every_mark_broken(subtests):
    for mark in EVERY:
        with subtests.test(case=mark):
            text = broken(f"yes{mark}{mark}system\nno")
            assert mark not in text
            assert text.replace(WORD_JOINER, "") == f"yes{mark}{mark}system\nno"


def test_family_marks_broken(subtests):
    for family in FAMILIES:
        with subtests.test(case=family):
            assert all(mark not in broken(f"a{mark}b", family) for mark in FAMILIES[family])
            others = [
                m for m in EVERY if m not in FAMILIES[family] and "|" not in m and BAR not in m
            ]
            assert others
            assert [other for other in others if broken(other, family) != other] == []


def test_overlapping_marks():
    assert "]~b]" not in broken("]~b]~b]~b]")
    assert "<|im_end|>" not in broken("<|<|im_end|>|im_end|>")


def test_other_text_left(subtests):
    for text in ["", "a <| f |> b", "if a < b | c > d: [x]", "x | y |> z", "|im|"]:
        with subtests.test(case=text):
            assert broken(text) == text


def test_family_of(subtests):
    for name, family in [
        ("Qwen/Qwen2.5-72B-Instruct", "qwen"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("deepseek-chat", "deepseek"),
        ("DeepSeek-R1-Distill-Qwen-32B", None),
        ("gpt-4.1-mini", None),
        ("judge", None),
    ]:
        with subtests.test(case=name):
            assert family_of(name) == family
