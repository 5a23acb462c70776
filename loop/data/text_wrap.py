"""Sentences on a terminal: broken between words, and never within a command."""

import re
import textwrap

from rich.console import Console

_COMMAND = re.compile(r"`[^`\n]*`")
KEPT = "\u00a0"
"""Stands for a blank that no line may end at."""


def print_wrapped(console: Console, text: str) -> None:
    """Print sentences: in lines of a terminal's width, elsewhere each on one line."""
    lines = sentence_lines(text, console.width) if console.is_terminal else [text]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sentence_lines(text: str, width: int) -> list[str]:
    """Return text in lines of a width; a command in backticks stays whole, so it can be copied.

    A command that is longer than the width gets a separate line.
    """
    return [line for part in text.split("\n") for line in _wrap(part, width)]


def _wrap(text: str, width: int) -> list[str]:
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", KEPT), text)
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines = textwrap.wrap(
        whole,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEPT, " ") for line in lines] or [""]
