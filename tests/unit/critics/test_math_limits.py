"""Answers too large to compare cost milliseconds; no realistic answer is that large."""

import json
from dataclasses import replace

import rows

from lpfloop.critics.math_answers import answer_to, final_answer, reference_answer
from lpfloop.critics.math_limits import too_large
from lpfloop.critics.math_numbers import quick_equal
from lpfloop.critics.math_offers import one_of
from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Prompt


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def asked(reference: str) -> Prompt:
    return replace(rows.PROMPT, reference=reference, checks=())


BOMBS = {
    "a tower": boxed("9^{9^{9^9}}"),
    "a tower in Python": "The answer is 9**9**9**9.",
    "a large exponent": boxed("2^{100000000}"),
    "factorials": boxed("9!!!!"),
    "a binomial": boxed(r"\binom{1000000}{500000}"),
    "fractions": boxed(r"\frac{1}{1+" * 300 + "1" + "}" * 300),
    "roots": boxed(r"\sqrt{" * 60 + "2" + "}" * 60),
    "a set": boxed(r"\{" + ",".join(map(str, range(3000))) + r"\}"),
    "a power of a sum": boxed("(x+y+z)^{200}"),
    "a product": boxed("x" * 2000),
    "a text that repeats a formula": "x^2+1 " * 650,
}


def test_bombs_are_refused_without_a_process() -> None:
    for text in BOMBS.values():
        with Verifier(workers=1) as verifier:
            (verdict,) = verifier.verify([(asked(boxed(r"\frac{7}{2}+x")), text)])
            assert not verifier.pool_started
        assert (verdict.rating, verdict.reason) == (None, "too_large")
    critic = VerifierCritic(Verifier(), {})
    assert critic.read(asked("1"), verdict).status == "too_large"


HOSTILE = {
    "a million digits": "9" * 100_000,
    "open boxes": "\\boxed{" * 20_000,
    "open braces": boxed("{" * 10_000),
    "marks": "the answer is " * 10_000,
    "text commands": boxed(r"\text{" * 2_000),
    "mixed numbers": "The answer is " + "1 1/" * 5_000,
    "tags": "<answer>" * 10_000,
    "denials": "the answer is not 3 or 4 or 5, " * 3_000,
    "denials of nothing": "isn't the answer " * 5_000,
    "alternatives": "3 or " * 15_000,
    "ranges": "3\u2013" * 40_000,
    "dashes": "\u2013" * 80_000,
    "number words": "one hundred and " * 5_000,
    "corrections": "Wait, it is 4. " * 6_000,
    "amounts": "5 dollars and 50 cents " * 4_000,
    "list items": "- 3 apples\n" * 8_000,
    "units": "3 " + "apples " * 12_000,
}


def test_hostile_answers_are_read_at_once() -> None:
    """A quadratic reader would take longer than a unit test may."""
    wanted = reference_answer("#### 18")
    for name, text in HOSTILE.items():
        answer = answer_to(wanted, final_answer(text))
        answer = one_of(wanted, answer)
        too_large(answer)
        assert quick_equal(wanted, answer) is not True, name


MEANT = [
    "2^{2^{2^2}}",
    "10^{100}",
    "100!",
    r"\text{all real numbers except two, for which the expression has no value at all}",
    r"\begin{pmatrix} 1 & 2 & 3 \\ 4 & 5 & 6 \\ 7 & 8 & 9 \end{pmatrix}",
    r"\frac{-b \pm \sqrt{b^2 - 4ac}}{2a}",
    "0." + "3" * 900,
    r"\sum_{i=1}^{1000} i^{2}",
]


def test_no_published_solution_is_too_large(shared_data) -> None:
    lines = (shared_data / "math500.jsonl").read_text().strip().split("\n")
    found = [json.loads(line)[name] for line in lines for name in ("solution", "answer")]
    assert len(found) > 500
    assert not [text for text in found if too_large(final_answer(text))]


def test_compares_meaning() -> None:
    for text in MEANT:
        assert not too_large(final_answer(boxed(text)))
