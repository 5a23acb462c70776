import pytest

from lpfloop.loop.data.text import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0.0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1:00"),
        (119.6, "2:00"),
        (3599.7, "1:00:00"),
        (7325.0, "2:02:05"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
