# ruff: noqa: RUF001 -- full-width characters are what is tested
"""Final answers of real text: remarks, several boxes, other languages, words, percent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.critics.math_answers import (
    answer_to,
    final_answer,
    is_mathematical,
    reference_answer,
)
from lpfloop.critics.math_check import check_answers
from lpfloop.critics.math_numbers import quick_equal
from lpfloop.critics.math_pool import MathPool


def quickly(reference: str, answer: str) -> bool | None:
    wanted = reference_answer(reference)
    return quick_equal(wanted, answer_to(wanted, final_answer(answer)))


@pytest.fixture(scope="module")
def pool():
    with MathPool(workers=1, limit_s=20) as shared:
        yield shared


def verdicts(pool, pairs):
    return [found.reason for found in check_answers(pairs, pool, lambda: None)]


REMARKS = [
    "The answer is 18. (9 eggs at $2 each)",
    "#### 18\nI hope this helps with 3 examples!",
    "Answer: 18 (9 eggs)",
    "Answer: 18 (9 eggs at $2 each)",
    "Answer: 18. (9 eggs at $2 each)",
    "Answer: 18\nI hope this answer is helpful for all 3 of you!",
    "The answer is $18, because 9 eggs at $2 are sold.",
    "The answer is 18 dollars for 9 eggs.",
    "The answer is 18 since 9 * 2 is 18.",
    "\\boxed{18}. I hope this answer is helpful!",
    "**Final Answer:** **18**\n\nLet me know if you have 2 more questions.",
    "The answer is:\n\\[\n18\n\\]\nwhich is 2 less than 20.",
    "The answer is $18$ for all 9 eggs.",
    "<think>The answer is 9.</think>\nThe answer is 18.",
    "<think>Is it 9?</think><answer>18</answer>",
    "<answer>\\boxed{18}</answer> for 9 eggs",
    "The answer is eighteen dollars.",
]


@pytest.mark.parametrize("text", REMARKS)
def test_a_remark_is_no_part_of_the_answer(text):
    assert final_answer(text).marked
    assert quickly("#### 18", text) is True
    assert quickly("#### 9", text) is False


def test_what_follows_a_number_may_belong_to_it():
    for text in ("9 eggs at $2, so $18", "3 or 4", "5 hours 30 minutes", "9 * 2 = 18", "2, 3"):
        assert final_answer(f"The answer is {text}.").text == text
    heading = final_answer("Answer: First 3+4=7. Then 7*2=14.")
    assert not heading.marked
    assert not final_answer("She makes $18 from 9 eggs.").marked


LANGUAGES = [
    "所以答案是18元。",
    "答案：18个",
    "答：18。",
    "因此，故选：18",
    "最终答案为１８。",
    "Die Antwort ist 18 Euro.",
    "Antwort: 18",
    "La réponse est : 18",
    "La respuesta final es 18.",
    "La risposta è 18.",
    "A resposta é 18.",
    "Ответ: 18",
    "答えは18です。",
]


@pytest.mark.parametrize("text", LANGUAGES)
def test_marks_of_other_languages_are_read(text):
    assert final_answer(text).marked
    assert quickly("18", text) is True


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("35000", "答案：3.5万元", True),
        ("3.5万元", "35,000", True),
        ("120000000", "答案是1.2亿", True),
        ("3.5", "答案：3.5万元", False),
        ("18", "因此她每天赚18元。", True),
        ("50%", "答案：百分之50", True),
        ("12", "答案：12千米", True),
    ],
)
def test_number_words_of_chinese_are_multiplied_out(reference, answer, equal):
    assert quickly(reference, answer) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("1000", "The answer is 1 000.", True),
        ("1234567", "Die Antwort ist 1.234.567.", True),
        ("1234.5", "Die Antwort ist 1.234,5.", True),
        ("1000.99", "La réponse est 1000,99", True),
        ("1,22", "1.22", True),
        ("1.5", "The answer is 1,6", None),
        ("10000", "\\boxed{10{,}000}", True),
        ("21", "The answer is twenty-one.", True),
        ("105", "The answer is one hundred and five apples.", True),
        ("2", "The answer is two of the three.", False),
        ("2000000", "The answer is 2 million.", True),
        ("2", "The answer is 2 million.", True),
        ("2 million", "The answer is 2 thousand.", False),
    ],
)
def test_numbers_are_read_as_they_are_written(reference, answer, equal):
    assert quickly(reference, answer) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("50%", "The answer is 50%.", True),
        ("50%", "The answer is 50.", True),
        ("50\\%", "The answer is 0.5.", True),
        ("50%", "The answer is 5.", False),
        ("50", "The answer is 50%.", True),
        ("12.5", "The answer is 12.5 percent.", True),
        ("50", "The answer is 0.5.", False),
        ("0.5", "The answer is 50%.", True),
        ("0.5", "The answer is 0.5%.", False),
        ("0.5", "The answer is 50.", False),
    ],
)
def test_the_reference_decides_what_a_percentage_is(reference, answer, equal):
    assert quickly(reference, answer) is equal


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("\\text{Monday}", "The answer is Monday.", True),
        ("Monday", "\\boxed{\\text{monday}}", True),
        ("Monday", "The answer is Tuesday.", False),
        ("Monday", "It was on a Monday.", True),
        ("Monday", "It was not Monday.", False),
        ("Yes", "The answer is yes, because 7 is prime.", True),
        ("Evelyn", "The answer is **Evelyn**.", True),
        ("A", "The answer is (A).", True),
        ("(A)", "The answer is A) 18", True),
        ("\\text{(C)}", "故选：C", True),
        ("B", "The answer is A.", False),
        ("A", "The answer is A + B.", None),
        ("x", "The answer is x + 1.", None),
    ],
)
def test_words_and_choices_are_compared_as_words(reference, answer, equal):
    assert quickly(reference, answer) is equal


BOTH = "\\boxed{1} and \\boxed{-2}"
SETS = [
    (BOTH, "The roots are \\boxed{-2} or \\boxed{1}.", "right"),
    (BOTH, "\\boxed{1}", "wrong"),
    (BOTH, "One root is \\boxed{1}. Then x + 2 = 0, so the other is \\boxed{-2}.", "right"),
    ("1, -2", "First, \\boxed{1}. By symmetry, it is \\boxed{-2}.", "right"),
    ("1, -2", "First, \\boxed{5}. Hence \\boxed{-2, 1}.", "right"),
    ("-2", "First, \\boxed{1}. Hence the least is \\boxed{-2}.", "right"),
    ("-2", "It is \\boxed{1} or \\boxed{-2}.", "wrong"),
    ("\\boxed{4}. So it is \\boxed{4}.", "\\boxed{4}", "right"),
    ("4", "\\boxed{4}, that is, \\boxed{4}", "right"),
    ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}} or \\boxed{0.5}", "right"),
    ("\\frac{5}{2}", "The answer is 2 1/2.", "right"),
    ("2\\frac{1}{2}", "\\boxed{2.5}", "right"),
    ("-2\\frac12", "\\boxed{-\\frac{5}{2}}", "right"),
    ("2 1/2 hours", "The answer is 3/2 hours.", "wrong"),
    ("0.1", "\\boxed{0.7 - 0.6}", "right"),
    ("Nobody knows.\nIt cannot be told.", "The answer is 3 or 4.", "unreadable"),
]


def test_several_boxes_are_one_answer_where_they_are_joined_or_asked_for(pool):
    found = verdicts(pool, [(reference, answer) for reference, answer, _ in SETS])
    assert found == [outcome for *_, outcome in SETS]


TEXTS = ["The quick brown fox", "Paris", "Yes", "3 Doors Down", "5 apples fell from the tree"]
TEXTS += ["The Beatles released 12 albums.", "The answer is Monday.", "20 July 1969", "-"]
NUMBERS = ["18", "18 dollars", "$18", "A", "#### 72", "She makes 9*2=18 dollars.", "x+1"]
NUMBERS += ["\\boxed{\\text{Evelyn}}", "The answer is 18.", "50%"]


@pytest.mark.parametrize("reference", [*TEXTS, *NUMBERS])
def test_an_answer_in_words_is_no_math(reference):
    assert is_mathematical(reference) == (reference in NUMBERS)


@settings(max_examples=200)
@given(st.text(alphabet="19٣³．，１万或 \\boxed{}#answeri:.$()%/\n", max_size=200))
def test_any_text_has_a_final_answer(text):
    found = final_answer(text)
    assert quick_equal(reference_answer(text), found) in (True, False, None)
    assert found.marked or text.strip() == "" or not found.formula
