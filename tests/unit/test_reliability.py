"""Each promise in docs/reliability.md names existing tests, in the column of their marks."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\| (?!promise|---)(.+?) \| (\S.*?) \| (\S.*?) \|$", re.MULTILINE)
NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
SLOW = re.compile(r"\bmark\.(slow|stress)\b")


def columns(path, name):
    """Return the columns of a test, or of all tests in a file if `name` is empty."""
    found = set[str]()
    if not (ROOT / path).is_file():
        return found
    body = ast.parse((ROOT / path).read_text()).body
    marked = any(
        isinstance(one, ast.Assign)
        and ast.unparse(one.targets[0]) == "pytestmark"
        and SLOW.search(ast.unparse(one))
        for one in body
    )
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if not one.name.startswith("test_") or name not in ("", one.name):
                continue
            slow = [text for text in map(ast.unparse, one.decorator_list) if SLOW.search(text)]
            if marked or slow:
                found.add("slow")
            # A mark within `parametrize` applies to some cases only.
            if not marked and all("parametrize" in text for text in slow):
                found.add("ordinary")
    return found


def test_promises_name_tests_that_exist():
    table = PAGE.read_text()
    rows = ROW.findall(table)
    assert len(rows) == len(re.findall(r"^\|", table, re.MULTILINE)) - 2 > 0
    wrong = [promise for promise, *cells in rows if not NAMED.search(" ".join(cells))]
    for _, ordinary, slow in rows:
        for column, cell in (("ordinary", ordinary), ("slow", slow)):
            wrong += [
                f"{column}: {path}::{name}"
                for path, name in NAMED.findall(cell)
                if column not in columns(path, name)
            ]
    assert wrong == []
