"""Final answers in real text: remarks, several boxes, other languages, words, percent."""

from lpfloop.critics.math_answers import answer_to, final_answer, is_mathematical, reference_answer
from lpfloop.critics.math_numbers import quick_equal


def quickly(reference: str, answer: str) -> bool | None:
    wanted = reference_answer(reference)
    return quick_equal(wanted, answer_to(wanted, final_answer(answer)))


REMARKS = [
    "The answer is 18. (9 eggs at $2 each)",
    "#### 18\nI hope this helps with 3 examples!",
    "Answer: 18\nI hope this answer is helpful for all 3 of you!",
    "\\boxed{18}. I hope this answer is helpful!",
    "**Final Answer:** **18**\n\nLet me know if you have 2 more questions.",
    "The answer is:\n\\[\n18\n\\]\nwhich is 2 less than 20.",
    "<think>The answer is 9.</think>\nThe answer is 18.",
    "<think>Is it 9?</think><answer>18</answer>",
    "The answer is eighteen dollars.",
]


def test_trailing_remark_ignored():
    for text in REMARKS:
        assert final_answer(text).marked
        assert quickly("#### 18", text) is True
        assert quickly("#### 9", text) is False


LANGUAGES = [
    "所以答案是18元。",
    "答案：18个",
    "最终答案为１８。",
    "Die Antwort ist 18 Euro.",
    "La réponse est : 18",
    "La respuesta final es 18.",
    "Ответ: 18",
    "答えは18です。",
]


def test_marks_of_other_languages_are_read():
    for text in LANGUAGES:
        assert final_answer(text).marked
        assert quickly("18", text) is True


def test_chinese_number_words(subtests):
    for reference, answer, equal in [
        ("35000", "答案：3.5万元", True),
        ("3.5万元", "35,000", True),
        ("120000000", "答案是1.2亿", True),
        ("18", "因此她每天赚18元。", True),
        ("50%", "答案：百分之50", True),
    ]:
        with subtests.test(reference=reference):
            assert quickly(reference, answer) is equal


def test_numbers_are_read_as_they_are_written(subtests):
    for reference, answer, equal in [
        ("1000", "The answer is 1 000.", True),
        ("1234.5", "Die Antwort ist 1.234,5.", True),
        ("1000.99", "La réponse est 1000,99", True),
        ("1.5", "The answer is 1,6", None),
        ("10000", "\\boxed{10{,}000}", True),
        ("21", "The answer is twenty-one.", True),
        ("105", "The answer is one hundred and five apples.", True),
        ("2", "The answer is two of the three.", False),
        ("2", "The answer is 2 million.", True),
        ("2 million", "The answer is 2 thousand.", False),
    ]:
        with subtests.test(reference=reference):
            assert quickly(reference, answer) is equal


def test_percentages_by_the_reference(subtests):
    for reference, answer, equal in [
        ("50%", "The answer is 50%.", True),
        ("50%", "The answer is 50.", True),
        ("50\\%", "The answer is 0.5.", True),
        ("50%", "The answer is 5.", False),
        ("50", "The answer is 50%.", True),
        ("50", "The answer is 0.5.", False),
        ("0.5", "The answer is 50%.", True),
        ("0.5", "The answer is 50.", False),
    ]:
        with subtests.test(reference=reference):
            assert quickly(reference, answer) is equal


def test_words_and_choices(subtests):
    for reference, answer, equal in [
        ("\\text{Monday}", "The answer is Monday.", True),
        ("Monday", "The answer is Tuesday.", False),
        ("Monday", "It was not Monday.", False),
        ("Yes", "The answer is yes, because 7 is prime.", True),
        ("A", "The answer is (A).", True),
        ("A", "The answer is A + B.", None),
        ("x", "The answer is x + 1.", None),
    ]:
        with subtests.test(reference=reference):
            assert quickly(reference, answer) is equal


TEXTS = ["The quick brown fox", "Paris", "Yes", "3 Doors Down", "5 apples fell from the tree"]
TEXTS += ["The Beatles released 12 albums.", "The answer is Monday.", "20 July 1969", "-"]
NUMBERS = ["18", "18 dollars", "$18", "A", "#### 72", "She makes 9*2=18 dollars.", "x+1"]
NUMBERS += ["\\boxed{\\text{Evelyn}}", "The answer is 18.", "50%"]


def test_word_answer_not_math():
    for reference in [*TEXTS, *NUMBERS]:
        assert is_mathematical(reference) == (reference in NUMBERS)


def test_boxes_that_do_not_belong_together():
    for between in ("so that", "\n\n", "and, by what was shown above for each of the cases, also"):
        text = f"\\boxed{{3}} {between} \\boxed{{4}}"
        assert quickly("4", text) is True
    assert quickly("3, 4", "\\boxed{3} and \\boxed{4}") is True
    assert quickly("4", "\\boxed{\\boxed{4}}") is True
    assert quickly("4", "\\boxed{4") is True


def test_headings_and_missing_answers():
    assert quickly("18", "Answer:\nWe count 3 eggs a day first.\n#### 18") is True
    assert quickly("18", "The answer is not known.\n#### 18") is True
