"""lpfloop reads grades as written, all of a prompt's or none, and never guesses."""

from rows import PROMPT

from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grade_reply import SCALES
from lpfloop.critics.grading.grader import Grader, form_text
from lpfloop.critics.status import Status

GRADER = Grader.from_config(GradingConfig())


def block(number, rating, *, types=None, rationale="It is fine.", heading="[Text {}]"):
    lines = [heading.format(number)]
    if types is not None:
        lines.append(f"Type: {types}")
    return "\n".join([*lines, f"Rationale: {rationale}", f"Rating: {rating}"])


def reply(*ratings, **options):
    return "\n\n".join(block(n, r, **options) for n, r in enumerate(ratings, start=1))


def readings(text, aspect="instruction_following", count=1, ended="stop"):
    return GRADER.ask(aspect, PROMPT, ["An answer."] * count).read(text, ended)


def read(text, aspect="instruction_following", count=1):
    return [reading.value for reading in readings(text, aspect, count)]


def status(text, aspect="instruction_following", count=1, ended="stop"):
    found = readings(text, aspect, count, ended)
    assert len(found) == count
    assert all(reading.value.rating is None for reading in found)
    (said,) = {reading.status for reading in found}
    return said


def test_scores_beyond_the_scale(subtests):
    for said in ["0.8", "0", "-1", "11", "10.5", "100"]:
        with subtests.test(said=said):
            assert status(f"Hm.\nOverall score: {said}", "overall") == Status.OUT_OF_RANGE


def test_non_plain_number_malformed(subtests):
    for said in ["8 of 10", "8/5", "8,5", "eight", "7 or 8", "8.5.1", "1e1", ".5", "٣"]:
        with subtests.test(said=said):
            assert status(f"Hm.\nOverall score: {said}", "overall") == Status.MALFORMED


def test_four_ratings_in_their_order():
    verdicts = readings(reply("5", "1", "3.5", "4/5"), count=4)
    assert [v.value.rating for v in verdicts] == [5, 1, 3.5, 4]
    assert {v.status for v in verdicts} == {"scored"}
    assert {v.value.rationale for v in verdicts} == {"It is fine."}
    marked = read("Well.\r\n### Text 1:\r\n- **Rationale:** Good.\r\n- **Rating:** 4\r\n")
    assert [(v.rating, v.rationale) for v in marked] == [(4, "Good.")]


def test_types_are_read_by_number():
    verdicts = read(f"{block(1, 2, types='1, 3')}\n{block(2, 5, types='None')}", "truthfulness", 2)
    assert [v.types for v in verdicts] == [("1", "3"), ()]
    (verdict,) = read(
        "[Text 1]\nType: 2\nType rationale: It\nsays so.\nRationale: Bad.\nRating: 2", "helpfulness"
    )
    assert (verdict.types, verdict.type_rationale) == (("2",), "It\nsays so.")


def test_unoffered_types_are_null(subtests):
    for types, why in [
        ("4", "out_of_range"),
        ("1, 1", "duplicate"),
        ("facts", "malformed"),
    ]:
        with subtests.test(types=types):
            assert status(block(1, 3, types=types), "truthfulness") == why


def test_not_applicable_is_for_honesty():
    honest = readings(reply("N/A", "4"), "honesty", 2)
    assert [(v.value.rating, v.status) for v in honest] == [(None, "not_applicable"), (4, "scored")]
    for aspect in ("instruction_following", "truthfulness", "helpfulness"):
        types = "None" if SCALES[aspect].types else None
        assert status(reply("N/A", "4", types=types), aspect, 2) == Status.MALFORMED


def test_one_fault_leaves_all_unscored():
    for text, why in [
        (reply("4", "3", "2"), Status.WRONG_NUMBERS),
        ("\n".join(block(n, 3) for n in (0, 1, 2, 3)), Status.WRONG_NUMBERS),
        ("\n".join(block(n, 3) for n in (1, 2, 2, 3, 4)), Status.DUPLICATE),
        (reply("4", "3", "2", "1") + "\nRating: 5", Status.DUPLICATE),
        (reply("4", "3", "2", "good"), Status.MALFORMED),
        (reply("4", "3", "2", ""), Status.INCOMPLETE),
        (reply("4", "3", "2", "1", rationale=""), Status.INCOMPLETE),
        ("4\n3\n2\n1", Status.MISSING),
        ("I'm sorry, but I can not rate these.", Status.REFUSAL),
        (f"{form_text('instruction_following')}\n{reply('4', '3', '2', '1')}", Status.ECHO),
        (reply("4", "3", "2", "1") + " " * 70_000, "too_long"),
    ]:
        assert status(text, count=4) == why


def test_a_critique_without_one_score_is_unscored(subtests):
    for text, why in [
        ("Overall score: 7", Status.INCOMPLETE),
        ("A critique without a score.", Status.MISSING),
        ("Bad.\nOverall score: 3\nOr rather:\nOverall score: 4", Status.DUPLICATE),
        ("Bad.\nOverall score:", Status.INCOMPLETE),
    ]:
        with subtests.test(text=text):
            assert status(text, "overall") == why
