"""Texts in cells of CSV that a spreadsheet would run as formulas."""

import re

FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"  # noqa: RUF001
"""The beginning of a text that a spreadsheet would run as a formula, unless it is a number."""
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
GUARD = "'"
"""The prefix that makes a spreadsheet treat such a text as text."""


def guard_cell(text: str) -> str:
    """Return a text as it is written into a cell."""
    return GUARD + text if _is_formula(text) else text


def unguard_cell(cell: str) -> str:
    """Return the text of a cell."""
    return cell[1:] if cell.startswith(GUARD) and _is_formula(cell[1:]) else cell


def _is_formula(text: str) -> bool:
    return bool(re.search(FORMULA, text)) and not re.search(NUMBER, text)
