"""Verdicts of the math verifier on dashes, denials, ranges, corrections, units."""

from dataclasses import replace

import pytest
from rows import PROMPT

from lpfloop.critics.verify import Verifier

MINUS_SIGNS = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u02d7\u2212\u2796\ufe58\ufe63\uff0d"
DASHES = "-\u2012\u2013\u2014\u2015"


@pytest.fixture(scope="module")
def verdicts():
    """Return whether each (answer, reference) is right."""
    with Verifier(workers=1, limit_s=20) as verifier:

        def of(pairs):
            items = [
                (replace(PROMPT, task="math", reference=reference, checks=()), answer)
                for answer, reference in pairs
            ]
            return [verdict.rating == 1 for verdict in verifier.verify(items)]

        yield of


def misjudged(verdicts, rows):
    found = verdicts([row[:2] for row in rows])
    return [row for row, right in zip(rows, found, strict=True) if right is not row[2]]


def test_negative_numbers(verdicts):
    rows = [
        row
        for sign in MINUS_SIGNS
        for row in (
            (f"The answer is {sign}3.", "-3", True),
            (f"The answer is {sign}3.", "3", False),
            (f"#### {sign}3", "-3", True),
            (f"\\boxed{{{sign}3}}", "-3", True),
            (f"x = {sign}3", "-3", True),
            (f"{sign}3", "-3", True),
            (f"The temperature fell to {sign}3 degrees.", "-3", True),
            (f"Answer: {sign}1,234.50", "-1234.5", True),
            (f"The answer is {sign}$5", "-5", True),
            (f"The answer is {sign}\\frac{{1}}{{2}}", "-1/2", True),
            (f"\\boxed{{(2, {sign}3)}}", "(2,-3)", True),
            (f"The answer is $x {sign} 3$", "x-3", True),
            (f"5 {sign} 8 = {sign}3", "-3", True),
            (f"The answer is twenty{sign}one.", "21", True),
        )
    ]
    assert not misjudged(verdicts, rows)


def test_dashes_not_minus_signs(verdicts):
    rows = [
        row
        for dash in DASHES
        for row in (
            (f"The answer is 3{dash}5.", "-5", False),
            (f"The answer is 3{dash}5.", "-2", False),
            (f"She has 3{dash}5 apples.", "-5", False),
            (f"She has 3{dash}5 apples.", "5", False),
            (f"It happened on 2024{dash}03{dash}05.", "-5", False),
            (f"It happened on 2024{dash}03{dash}05.", "5", False),
            (f"{dash} 3 apples", "-3", False),
            (f"{dash} 3 apples", "3", True),
            (f"We have:\n{dash} 2 pears\n{dash} 3 apples", "-3", False),
            (f"Answer:\n{dash} 3 apples", "3", True),
            (f"**Answer:**\n\n{dash} 3", "3", True),
            (f"It was a pre{dash}3 model", "-3", False),
        )
    ]
    rows += [
        ("She has some left \u2013 3 in total.", "3", True),
        ("She has some left \u2013 3 in total.", "-3", False),
        ("Answer \u2013 3", "3", True),
        ("10 \u2013 3 = 7", "7", True),
        ("( 8.0 - 3.0 )", "5", True),
        ("8 - 3", "5", True),
        ("12.0 + 14.0", "26", True),
    ]
    assert not misjudged(verdicts, rows)


DENIED = """
The answer is not 3.
The answer isn't 3.
The answer isn\u2019t 3.
1 + 2 = 3. But the answer is not 3.
The answer cannot be 3.
The answer can't be 3.
The answer could not be 3.
The answer is never 3.
The answer won't be 3.
The answer doesn't equal 3.
The answer is not equal to 3.
The answer is **not** 3.
The answer is definitely not 3.
The answer is neither 3 nor 7.
The answer is anything but 3.
The answer is unlikely to be 3.
The answer is no longer 3.
The answer is not \\boxed{3}.
The answer is not $3$.
The answer is not **3**.
The answer \u2260 3.
It is not three.
Three is wrong.
Not 3.
#### not 3
<answer>not 3</answer>
\\boxed{\\text{not } 3}
\\boxed{3} is wrong.
3 is wrong
3 is not the answer.
3 isn't right.
3 cannot be right.
The answer 3 is incorrect
3 is too small.
A wrong answer is 3.
I don't think the answer is 3.
I doubt that the answer is 3.
It is not true that the answer is 3.
The answer is 3. No wait, that is wrong.
The answer is 3. No, the answer is not 3.
She doesn't have 3 apples.
Die Antwort ist nicht 3.
La r\u00e9ponse n'est pas 3.
La respuesta no es 3.
\u7b54\u6848\u4e0d\u662f3\u3002
""".strip().split("\n")

CORRECTED = """
The answer is 4, not 3.
The answer is not 3 but 4.
The answer is not 3, it is 4.
The answer isn't 3; it's 4.
The answer is not 3. It is 4.
The answer is 4 rather than 3.
The answer is 4 instead of 3.
The answer is 4 (not 3).
The answer is 4, and certainly not 3.
The answer is 4 \u2013 not 3.
It is 4, not 3.
4, not 3
4 is right, 3 is wrong.
3 is wrong. 4 is right.
The answer is 4. It is not 3.
The answer is 4. The answer is not 3.
\\boxed{4}, not \\boxed{3}
The answer is not \\boxed{3} but \\boxed{4}.
The answer is 3. Wait, the answer is 4.
The answer is 3. Wait, it's 4.
The answer is 3. Sorry, 4.
The answer is 3. Correction: 4
The answer is 3, no, 4.
The answer is 3. Hmm, that's wrong. It's 4.
\\boxed{3} Wait, the answer is 4.
You might think the answer is 3, but it is 4.
The answer is 3? No, it is 4.
A common wrong answer is 3. The right one is 4.
\u7b54\u6848\u4e0d\u662f3\uff0c\u800c\u662f4\u3002
""".strip().split("\n")


def test_denied_numbers(verdicts):
    rows = [(text, "3", False) for text in DENIED]
    rows += [
        ("The answer is not -3.", "-3", False),
        ("The answer is -3, not 3.", "-3", True),
        ("The answer is not $\\frac{1}{2}$.", "\\frac{1}{2}", False),
        ("The answer is $\\frac{1}{2}$, not $\\frac{1}{3}$.", "\\frac{1}{2}", True),
        ("The answer is not $x+1$.", "x+1", False),
        ("The answer is not Monday.", "Monday", False),
        ("The answer is not difficult: 3.", "3", True),
        ("x cannot be 0, so x = 3.", "3", True),
        ("It isn't 2, so it must be 3.", "3", True),
        ("The answer is none other than 3.", "3", True),
        ("Not surprisingly, the answer is 3.", "3", True),
        ("The answer is 3. 2 is too small and 4 is too large.", "3", True),
    ]
    assert not misjudged(verdicts, rows)


def test_corrections(verdicts):
    rows = [(text, *end) for text in CORRECTED for end in (("4", True), ("3", False))]
    assert not misjudged(verdicts, rows)


OFFERS = """
3 or 4
The answer is 3 or 4.
The answer is either 3 or 4.
The answer is 3 apples or 4 apples.
The answer is 3 (or 4).
The answer is 3, or maybe 4.
The answer is 3, alternatively 4.
The answer is 3. Or 4.
The answer is $3$ or $4$.
The answer is **3** or **4**.
The answer is \\$3 or \\$4.
She has 3 or 4 apples.
She pays $3 or $4.
It's 3 or it's 4.
\\boxed{3} or \\boxed{4}
\\boxed{3 \\text{ or } 4}
3, 4
The answer is 3, 4.
The answer is 3 and 4.
3 apples; 4 apples
3, 4, or 5
The answer is three or four.
The answer is between 3 and 4.
She has between 3 and 4 apples.
The answer is 3 to 4.
from 3 to 4 apples
The answer is $3 to $4.
3-4
3\u20134 apples
3 \u2013 4
3~4
The answer is $3-$4.
3 < x < 4
3 bis 4
La r\u00e9ponse est 3 ou 4.
\u7b54\u6848\u662f3\u62164\u3002
more than 3 but less than 4
5 dollars and 4 apples
""".strip().split("\n")

BOUNDS = """
at least 3
The answer is at most 3.
more than 3
no more than 3
up to 3
The answer is greater than 3.
3 or more
3 or fewer
3+
x > 3
\\boxed{\\ge 3}
\u2265 3
She has at least 3 apples.
The answer exceeds 3.
mindestens 3
""".strip().split("\n")


def test_several_numbers(verdicts):
    rows = [(text, number, False) for text in OFFERS for number in ("3", "4")]
    rows += [(text, "3", False) for text in BOUNDS]
    rows += [
        ("The answer is 1/2 or 0.5.", "1/2", True),
        ("The answer is 3 or 3.0.", "3", True),
        ("50% (0.5)", "0.5", True),
        ("1/2 or 1/3", "1/2", False),
        ("The answer is $\\sqrt{2}$ or $\\sqrt{3}$.", "\\sqrt{3}", False),
        ("-3 or 3", "3", False),
        ("five (6)", "5", False),
        ("five (6)", "6", False),
        ("The answer is A or B.", "A", False),
        ("The answer is 3 or 4.", "3, 4", True),
        ("x = 3 or x = 4", "3, 4", True),
        ("The answer is between 3 and 4.", "3, 4", False),
        ("The answer is 3 to 4.", "3, 4", False),
        ("3\u20135", "3-5", True),
        ("The answer is at least 3.", "at least 3", True),
        ("It takes 2 to 3 hours, so the answer is 18.", "18", True),
        ("The answer is 3 apples for 4 people.", "3", True),
        ("The difference between 5 and 2 is 3.", "3", True),
        ("It adds up to 3 dollars.", "3", True),
        ("The answer is about 3.", "3", True),
        ("\\boxed{\\approx 3}", "3", True),
    ]
    assert not misjudged(verdicts, rows)


CLOSED = """
The answer is 3. Hope this helps!
The answer is 3.\\n\\nLet me know if you have questions.
She has 3 apples. Hope this helps! \U0001f60a
3 apples are left. That's the answer: simple!
The answer is 3. I hope the answer is what you were looking for.
The answer is 3. I hope this answer is good enough.
The answer is 3. This answer is final.
The answer is 3. (This answer is rounded.)
Answer: 3. That answer is the sum of the parts.
The answer is 3!
The answer is 3 :)
""".strip().split("\n")


def test_closing_words(verdicts):
    texts = [text.replace("\\n", "\n") for text in CLOSED]
    rows = [(text, *end) for text in texts for end in (("3", True), ("4", False))]
    rows += [
        ("The answer is Monday. I hope this answer is what you wanted.", "Monday", True),
        ("The answer is 3. Actually, the answer is undefined.", "3", False),
    ]
    assert not misjudged(verdicts, rows)


UNITS = """
5 dollars
$5
5 km/h
The answer is 5 m/s.
5 m^2
5 m\u00b2
5\u00b0C
5\u20ac
US$5
5 words/minute
\\boxed{5~\\frac{\\text{km}}{\\text{h}}}
5%
5.00
5/1
5 dollars and 0 cents
The answer is 5 dollars and 0 cents.
$5 and 0 cents
5 dollars and no cents
She earns 5 dollars and 0 cents.
5 hours 0 minutes
5 and 0/10
five
five (5)
5 (five)
The answer is five (5).
She earns five (5) dollars.
five dollars ($5)
five percent (5%)
""".strip().split("\n")


def test_units(verdicts):
    rows = [(text, *end) for text in UNITS for end in (("5", True), ("6", False))]
    rows += [
        ("5 dollars and 50 cents", "5.5", True),
        ("5 dollars and 50 cents", "5", False),
        ("She earns 5 dollars and 50 cents.", "50", False),
        ("5 hours and 30 minutes", "30", False),
        ("5 feet 6 inches", "6", False),
        ("one thousand two hundred thirty-four (1,234)", "1234", True),
        ("1,234,567.00 dollars", "1234567", True),
        ("5 x/y", "5", False),
    ]
    assert not misjudged(verdicts, rows)
