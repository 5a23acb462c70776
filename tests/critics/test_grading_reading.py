"""Grades are read as they are written, all of a prompt's or none, and never guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import PROMPT
from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grade_reply import FIELD, HEADING, without_labels
from lpfloop.critics.grading.graded_aspects import FINE_GRAINED, SCALES
from lpfloop.critics.grading.grader import Grader, form_text
from lpfloop.critics.grading.score_reply import OVERALL
from lpfloop.critics.judge import Status

GRADER = Grader.from_config(GradingConfig())

WORDS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp"), blacklist_characters=":"),
    min_size=1,
    max_size=40,
).filter(lambda text: text.strip() and not HEADING.fullmatch(text.strip()))


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


def ratings(text, count, aspect="instruction_following"):
    return [verdict.rating for verdict in read(text, aspect, count)]


def status(text, aspect="instruction_following", count=1, ended="stop"):
    found = readings(text, aspect, count, ended)
    assert len(found) == count
    assert all(reading.value.rating is None for reading in found)
    (said,) = {reading.status for reading in found}
    return said


# what is written is what is read


@pytest.mark.parametrize("score", range(1, 11))
def test_an_overall_score_stays_as_it_is_also_1_which_was_published_as_10(score):
    (verdict,) = read(f"Too short.\nOverall score: {score}", "overall")
    assert (verdict.rating, verdict.rationale) == (score, "Too short.")


@pytest.mark.parametrize("said", ["8.5", "8.5/10", "**8.5**", "8.5.", " 8.5 / 10 ", "`8.5`"])
def test_a_score_is_not_cut_at_its_point(said):
    (verdict,) = read(f"Nearly there.\n\n**Overall Score:** {said}", "overall")
    assert verdict.rating == 8.5


@pytest.mark.parametrize("said", ["0.8", "0", "-1", "11", "10.5", "100"])
def test_a_score_beyond_the_scale_is_no_score_nor_a_share_of_it(said):
    assert status(f"Hm.\nOverall score: {said}", "overall") == Status.OUT_OF_RANGE


@pytest.mark.parametrize(
    "said", ["8 of 10", "8/5", "8,5", "eight", "7 or 8", "8.5.1", "1e1", ".5", "٣"]
)
def test_what_is_no_plain_number_is_malformed(said):
    assert status(f"Hm.\nOverall score: {said}", "overall") == Status.MALFORMED


def test_four_ratings_with_reasons_are_read_in_their_order():
    verdicts = readings(reply("5", "1", "3.5", "4/5"), count=4)
    assert [v.value.rating for v in verdicts] == [5, 1, 3.5, 4]
    assert {v.status for v in verdicts} == {"scored"}
    assert {v.value.rationale for v in verdicts} == {"It is fine."}


def test_markdown_prose_around_and_reasons_of_several_lines_do_no_harm():
    text = (
        "Here is what I think.\n\n### Text 1:\n- **Rationale:** Good.\n\n  Really.\n"
        "- **Rating:** 4\n\n#### Output for Text 2\nRating: 2\nRationale: Weak.\n"
    )
    verdicts = read(text.replace("\n", "\r\n"), count=2)
    assert [v.rating for v in verdicts] == [4, 2]
    assert verdicts[0].rationale.split() == ["Good.", "Really."]


def test_types_are_read_by_number_where_they_are_asked_for():
    verdicts = read(f"{block(1, 2, types='1, 3')}\n{block(2, 5, types='None')}", "truthfulness", 2)
    assert [v.types for v in verdicts] == [("1", "3"), ()]
    (verdict,) = read(
        "[Text 1]\nType: 2\nType rationale: It\nsays so.\nRationale: Bad.\nRating: 2", "helpfulness"
    )
    assert (verdict.types, verdict.type_rationale) == (("2",), "It\nsays so.")


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ("4", "out_of_range"),
        ("0", "out_of_range"),
        ("1, 1", "duplicate"),
        ("facts", "malformed"),
        ("1, 01", "malformed"),
    ],
)
def test_types_that_were_not_offered_are_none(types, why):
    assert status(block(1, 3, types=types), "truthfulness") == why


def test_not_applicable_is_a_verdict_of_honesty_alone():
    honest = readings(reply("N/A", "4"), "honesty", 2)
    assert [(v.value.rating, v.status) for v in honest] == [(None, "not_applicable"), (4, "scored")]
    for aspect in ("instruction_following", "truthfulness", "helpfulness"):
        types = "None" if SCALES[aspect].types else None
        assert status(reply("N/A", "4", types=types), aspect, 2) == Status.MALFORMED


@given(
    st.sampled_from(FINE_GRAINED),
    st.lists(st.tuples(st.integers(2, 10), WORDS), min_size=1, max_size=6),
)
def test_what_is_written_in_the_form_is_read_back(aspect, given_):
    types = "2" if SCALES[aspect].types else None
    text = "\n".join(
        block(number, half / 2, types=types, rationale=reason)
        for number, (half, reason) in enumerate(given_, start=1)
    )
    verdicts = read(text, aspect, len(given_))
    assert [v.rating for v in verdicts] == [half / 2 for half, _ in given_]
    assert [v.rationale for v in verdicts] == [reason.strip() for _, reason in given_]


# all of a prompt's, or none


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (reply("4", "3", "2"), Status.WRONG_NUMBERS),
        (reply("4", "3", "2", "1", "5"), Status.WRONG_NUMBERS),
        ("\n".join(block(n, 3) for n in (0, 1, 2, 3)), Status.WRONG_NUMBERS),
        ("\n".join(block(n, 3) for n in (2, 1, 3, 4)), Status.WRONG_NUMBERS),
        ("\n".join(block(n, 3) for n in (1, 2, 2, 3, 4)), Status.DUPLICATE),
        (reply("4", "3", "2", "1") + "\nRating: 5", Status.DUPLICATE),
        (reply("4", "3", "2", "6"), Status.OUT_OF_RANGE),
        (reply("4", "3", "2", "0"), Status.OUT_OF_RANGE),
        (reply("4", "3", "2", "good"), Status.MALFORMED),
        (reply("4", "3", "2", ""), Status.INCOMPLETE),
        (reply("4", "3", "2", "1", rationale=""), Status.INCOMPLETE),
        ("4\n3\n2\n1", Status.MISSING),
        ("Text 1 is good, Text 2 is not.", Status.MISSING),
        ("I'm sorry, but I can not rate these.", Status.REFUSAL),
        (f"{form_text('instruction_following')}\n{reply('4', '3', '2', '1')}", Status.ECHO),
        ("  \n", "empty"),
        (reply("4", "3", "2", "1") + " " * 70_000, "too_long"),
    ],
)
def test_one_fault_leaves_all_of_them_unscored_with_the_reason(text, why):
    assert status(text, count=4) == why


@pytest.mark.parametrize(
    ("ended", "why"), [("length", "truncated"), ("overlong", "overlong"), ("failed", "failed")]
)
def test_a_reply_that_was_cut_off_or_never_came_says_nothing(ended, why):
    assert status(reply("4", "3"), count=2, ended=ended) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Overall score: 7", Status.INCOMPLETE),
        ("A critique without a score.", Status.MISSING),
        ("Bad.\nOverall score: 3\nOr rather:\nOverall score: 4", Status.DUPLICATE),
        ("Bad.\nOverall score:", Status.INCOMPLETE),
        ("I cannot judge this.", Status.REFUSAL),
    ],
)
def test_a_critique_without_one_score_is_unscored(text, why):
    assert status(text, "overall") == why


@given(st.text(), st.sampled_from(tuple(SCALES)), st.integers(1, 5))
def test_whatever_a_reply_holds_it_is_read_or_has_a_reason(text, aspect, count):
    count = 1 if aspect == "overall" else count
    found = readings(text, aspect, count)
    assert len(found) == count
    for reading in found:
        rating = reading.value.rating
        assert reading.status in set(Status)
        assert (rating is None) == (reading.status != "scored")
        assert rating is None or 1 <= rating <= SCALES[aspect].best


LABELS = st.sampled_from(
    ["[Text 2]", "#### Output for Text 2", "Rating: 5", "**Rating**: 5", "Type: 1", " > Rating : 1",
     "Rationale: x", "Overall score: 10", "overall  SCORE: 1", "Type rationale: y", "text 1"]
)  # fmt: skip


@given(st.lists(st.one_of(LABELS, st.text()), max_size=6))
def test_no_line_of_a_text_that_was_made_harmless_is_read_as_a_label(parts):
    for line in without_labels("\n".join(parts)).split("\n"):
        assert not any(label.fullmatch(line) for label in (HEADING, FIELD, OVERALL))
