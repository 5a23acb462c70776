"""Every script of examples/ runs as its first lines say, and shows what it is about."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWN = {
    "own_rubric": ("Courtesy", "Brevity"),
    "own_verifier": ("pairs: ", "own-verifier: the best is"),
    "own_recipe": ("recipe ", ":right_over_wrong", "pair-"),
    "import_preferences": ("pairs: 72 rows", "Sam has", "loss"),
    "best_of_n": ("best-of-8", "verified"),
}
SECONDS = 1200
"""A minute is enough for each, unless the machine is busy."""


def test_the_examples_are_these():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_says_what_it_shows_and_how_to_run_it(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert f"Run it: `python examples/{name}.py`" in (ast.get_docstring(ast.parse(text)) or "")
    assert len(text.splitlines()) <= 105


def shown(name, lake):
    """Run an example as a user does, and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env={**os.environ, "LPFLOOP_LAKE": str(lake), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.model
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name, tmp_path, real_python):
    told = shown(name, tmp_path)
    assert [words for words in SHOWN[name] if words not in told] == []
