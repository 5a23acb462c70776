"""Codes of errors: stable, one for each class, and kept for what repeats another error."""

import re
from collections import Counter
from pathlib import Path

import pytest

from lpfloop import errors
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.common import Exit, outcome
from lpfloop.policies.engines.engine import EngineError

ROOT = Path(errors.__file__).parent
CODE = re.compile(r'^    code = "(LPF-\d+)"', re.MULTILINE)
ROOMS = ("configs", "critics", "policies", "stores", "loop")


def test_codes_are_unique() -> None:
    texts = (path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    codes = [code for text in texts for code in CODE.findall(text)]
    assert len(codes) > 40
    assert [code for code, times in Counter(codes).items() if times > 1] == []


@pytest.mark.parametrize(("said", "code"), [("no model: x", "LPF-301"), ("other", "LPF-101")])
def test_code_of_a_repeated_error(said: str, code: str) -> None:
    error = ConfigError(said)
    error.__cause__ = EngineError("no model")
    found = outcome(error)
    assert found is not None
    assert (found.exit, found.code, found.message) == (Exit.BAD_INPUT, code, said)


def test_unexpected_errors_have_no_outcome() -> None:
    assert outcome(KeyError("x")) is None
