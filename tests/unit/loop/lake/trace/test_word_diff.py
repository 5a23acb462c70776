"""Word-by-word differences of two texts."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.lake.trace.page import word_diff


@given(st.text(), st.text())
def test_word_diff_loses_nothing(old, new):
    spans = word_diff(old, new)
    assert "".join(s.text for s in spans if s.kind != "new") == old
    assert "".join(s.text for s in spans if s.kind != "gone") == new


def test_words_that_change_together():
    spans = [(s.kind, s.text) for s in word_diff("one two three four", "one 2 3 four")]
    assert spans == [("same", "one "), ("gone", "two three "), ("new", "2 3 "), ("same", "four")]
