"""math-verify's test cases, read from the `tests` folder of its source distribution.

`pip download --no-deps --no-binary :all: math-verify==0.9.0` fetches it. This module reads the
files without running them: a case is a row of literals of a test's parameters `gold`, `pred` and
`expected` or `result`.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from .mathematics import Solution, found_of
from .study import Found, Study

RIGHT = ("expected", "result")


def published_cases(tests: Path) -> Iterator[Solution]:
    """Yield the cases in a folder of tests, except computed rows."""
    for path in sorted(tests.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield from _of_test(f"{path.stem}:{node.name}", node)


def _of_test(name: str, test: ast.FunctionDef) -> Iterator[Solution]:
    for decorator in test.decorator_list:
        if not isinstance(decorator, ast.Call) or len(decorator.args) != len(("names", "rows")):
            continue
        names, rows = decorator.args
        if not isinstance(names, ast.Constant) or not isinstance(rows, ast.List):
            continue
        called = [part.strip() for part in str(names.value).split(",")]
        if {"gold", "pred"} <= set(called):
            yield from _of_rows(name, called, rows.elts)


def _of_rows(name: str, called: list[str], rows: list[ast.expr]) -> Iterator[Solution]:
    for number, row in enumerate(rows):
        try:
            values = cast("tuple[object, ...]", ast.literal_eval(row))
        except ValueError:
            continue
        case = dict(zip(called, values, strict=True))
        yield Solution(
            place=f"{name}:{number}",
            question="",
            reference=str(case["gold"]),
            answer=str(case["pred"]),
            right=any(bool(case.get(key)) for key in RIGHT),
        )


def _cases(folder: Path) -> Found:
    return found_of(published_cases(folder))


CASES: Mapping[str, Study] = {
    "math-verify": Study(
        through="the math verifier, against math-verify's own test cases (FOLDER: its tests)",
        find=_cases,
    )
}
