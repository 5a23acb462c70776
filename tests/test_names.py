"""One name, one meaning: no two modules and no two classes of the project share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("configs", "critics", "loop", "policies", "stores")


def modules(root: Path) -> Iterator[Path]:
    """Give the project's modules, but for those that make a folder a package."""
    for package in PACKAGES:
        yield from (p for p in (root / package).rglob("*.py") if p.name != "__init__.py")


def shared(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that stand for more than one thing."""
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_modules_share_a_name(root):
    places = defaultdict(list)
    for path in modules(root):
        places[path.stem].append(str(path.relative_to(root)))
    assert shared(places) == {}


def test_no_two_classes_share_a_name_be_they_private_or_not(root):
    places = defaultdict(list)
    for path in modules(root):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{path.relative_to(root)}:{node.lineno}")
    assert shared(places) == {}


def test_nothing_lies_flat_in_loop(root):
    assert [path.name for path in (root / "loop").glob("*.py")] == ["__init__.py"]
