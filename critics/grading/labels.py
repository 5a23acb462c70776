"""The labels that a grader's reply is read by: headings of texts, and names of fields.

A label counts at the beginning of a line only. In a completion that is to be graded labels are
broken, so that a reply that repeats the completion repeats no statement.
"""

import re

from ..templating import WORD_JOINER

MARKS = r"[ \t>*#\[_`-]*"
"""What Markdown may put before a label."""
FIELDS = r"type[ \t]+rationale|type|rationale|rating"
TEXT = r"(?:output[ \t]+for[ \t]+)?text"
SCORE = r"overall[ \t]+score"

HEADING = re.compile(rf"{MARKS}{TEXT}[ \t]+([0-9]{{1,4}})[\]*:._` \t\r]*", re.IGNORECASE)
"""A line that opens the block of a text, by its number."""
FIELD = re.compile(rf"{MARKS}({FIELDS})[*_` \t]*:(?:[*_]{{1,3}}(?=[ \t\r]|$))?(.*)", re.IGNORECASE)
"""A line that begins a field: its name, and what follows on the line (`**Rating:** 4`: `4`)."""
OVERALL = re.compile(rf"{MARKS}{SCORE}[*_` \t]*:(.*)", re.IGNORECASE)
"""A line with the overall score."""

_ANY = re.compile(
    rf"^({MARKS}(?:(?:{FIELDS}|{SCORE})(?=[*_` \t]*:)|(?:{TEXT})(?=[ \t]+[0-9])))",
    re.IGNORECASE | re.MULTILINE,
)


def without_labels(text: str) -> str:
    """Return `text` with an invisible mark in every label, so that it is read as prose."""
    return _ANY.sub(rf"\g<1>{WORD_JOINER}", text)
