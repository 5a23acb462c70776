"""Results of a user's verifier: ratings; any other result never becomes one."""

import pytest
from rows import PROMPT

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.verify import own_rating, own_verifier

REFUSED = ("True", "2", "0.5", "1.0", "'1'", "(1, 2)", "(1, 'a', 'b')", "(True, '')", "[1]")


def rated(folder, body):
    (folder / "mine.py").write_text(f"def mine(one, two):\n    return {body}\n")
    verifier = own_verifier(f"{folder / 'mine.py'}:mine")
    assert verifier is not None
    return own_rating(verifier, PROMPT, "Hello.")


def test_non_rating_values(tmp_path, subtests):
    for value in REFUSED:
        with subtests.test(value=value), pytest.raises(ConfigError, match=":mine returned"):
            rated(tmp_path, value)


def test_rating_with_and_without_comment(tmp_path):
    for value, rating in (("None", None), ("-1", (-1, "")), ("(0, 'half')", (0, "half"))):
        assert rated(tmp_path, value) == rating
