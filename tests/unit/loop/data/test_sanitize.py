"""Untrusted text stays readable, and harmless."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.text import HIDDEN, visible


@given(st.text())
def test_nothing_that_acts_or_hides_is_left(text):
    shown = visible(text)
    assert all(c == "\n" or unicodedata.category(c) not in HIDDEN for c in shown)


def test_codes_have_names():
    assert visible("\x1b[2Jgone\u202e") == "\\u{1b}[2Jgone\\u{202e}"


def test_plain_text_stays_as_it_is():
    assert visible("1 + 1 = 2, naïve — 你好\n") == "1 + 1 = 2, naïve — 你好\n"
