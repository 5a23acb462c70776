"""Every script of examples/ runs as its first lines describe, and prints its result."""

import os
import subprocess
from pathlib import Path

import pytest
from preloaded import INTERPRETER

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SHOWN = {
    "own_rubric": ("Courtesy", "Brevity"),
    "own_verifier": ("pairs: ", "own-verifier: the best is"),
    "own_recipe": ("recipe ", ":right_over_wrong", "pair-"),
    "import_preferences": ("pairs: 72 rows", "Sam has", "loss"),
    "best_of_n": ("best-of-8", "verified"),
}
SCRIPTED = """
import runpy, sys, lpfloop
run = lpfloop.run
engine = {"policy.engine.kind": "scripted", "policy.engine.script": "scripts:able_policy"}
lpfloop.run = lambda *a, set, **k: run(*a, set={**set, **engine}, **k)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
pytestmark = pytest.mark.model


def shown(lake, *words):
    """Return the output of an example."""
    helpers = str(ROOT / "tests" / "helpers")
    done = subprocess.run(
        [INTERPRETER, *map(str, words)],
        env={**os.environ, "LPFLOOP_LAKE": str(lake), "COLUMNS": "160", "PYTHONPATH": helpers},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWN)
    for name in SHOWN:
        assert f"`python examples/{name}.py`" in (EXAMPLES / f"{name}.py").read_text()


def test_own_rubric_with_scripted_policy(tmp_path):
    told = shown(tmp_path, "-c", SCRIPTED, EXAMPLES / "own_rubric.py")
    assert [words for words in SHOWN["own_rubric"] if words not in told] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_example(name, tmp_path):
    told = shown(tmp_path, EXAMPLES / f"{name}.py")
    assert [words for words in SHOWN[name] if words not in told] == []
