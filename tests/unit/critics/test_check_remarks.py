"""The verifier's remark on each check: the requirement and the finding."""

import pytest

from lpfloop.critics.checks import fulfils, remark, valid_check

ANSWER = "Hello there, the Sun is warm today."


@pytest.mark.parametrize(
    ("kind", "argument", "asked", "found"),
    [
        ("punctuation:no_comma", "", "no commas", "1 commas"),
        ("lowercase", "", "lowercase letters", '"Hello", "Sun"'),
        ("uppercase", "", "capital letters", '"Hello", "there,", "the"'),
        ("max_words", "3", "at most 3 words", "7 words"),
        (
            "length_constraints:number_words",
            '{"num_words": 5, "relation": "less than"}',
            "less than 5 words",
            "7 words",
        ),
        ("keywords:existence", '{"keywords": ["sun", "moon"]}', '"sun", "moon"', 'no "moon"'),
        ("keywords:forbidden_words", '{"forbidden_words": ["sun"]}', "none of the words", '"sun"'),
        (
            "keywords:frequency",
            '{"keyword": "sun", "frequency": 2, "relation": "at least"}',
            "'sun' at least 2 times",
            "1 times",
        ),
        ("starts_with", "My answer", "'My answer'", '"Hello there, the Sun is warm"'),
        ("startend:end_checker", '{"end_phrase": "Bye."}', "'Bye.'", 'Sun is warm today."'),
        ("startend:quotation", "", "double quotation marks", "the beginning"),
        ("detectable_format:title", "", "<<double angular brackets>>", "nothing of the kind"),
        ("detectable_format:number_bullet_lists", '{"num_bullets": 2}', "2 bullet", "0 bullet"),
        ("excludes", "warm", "'warm'", '"warm"'),
    ],
)  # fmt: skip
def test_failed_check(kind: str, argument: str, asked: str, found: str) -> None:
    check = valid_check(kind, argument)
    assert not fulfils(ANSWER, check)
    said, _, seen = remark(check, ANSWER, met=False).partition(" Not met: ")
    assert asked in said
    assert found in seen


def test_met_check_and_empty_answer() -> None:
    check = valid_check("uppercase", "")
    assert remark(check, "HI", met=True) == "Asked: capital letters only. Met."
    assert remark(check, " ", met=False).endswith("Not met: the answer is empty.")
