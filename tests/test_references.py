"""The pages that follow from the code say what the code has."""

import re
import sys
from importlib import util
from pathlib import Path

import pytest

from lpfloop.configs.describe import every_field
from lpfloop.stores.schemas import SCHEMAS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def references():
    spec = util.spec_from_file_location("make_references", DOCS / "make_references.py")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["data-model.md", "settings.md"])
def test_a_generated_page_is_up_to_date(references, page):
    made = references.pages()[page]
    assert (DOCS / page).read_text() == made, "run: python docs/make_references.py"


@pytest.mark.parametrize("table", SCHEMAS)
def test_each_column_is_described(table):
    text = (DOCS / "data-model.md").read_text()
    section = text.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]{5,} \|", section, re.MULTILINE)
    assert rows == SCHEMAS[table].names


def test_each_setting_stands_in_the_reference_with_what_it_does():
    sections = re.split(r"^## ", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    missing = []
    for field in every_field():
        role, shared, rest = next(
            (parts for name in ("engine", "sampling") if (parts := partition(field.path, name))[1]),
            ("", "", ""),
        )
        path = f"ROLE{shared}{rest}" if shared else field.path
        said = field.description.replace("|", "\\|").replace("\n", " ")
        found = [
            s
            for s in sections
            if any(f"| `{path}` |" in row and said in row for row in s.splitlines())
        ]
        if not found or (shared and f"`{role}`" not in found[0]):
            missing.append(field.path)
    assert missing == []


def partition(path, name):
    return path.partition(f".{name}.")


def test_a_column_without_a_description_is_named(references):
    with pytest.raises(references.UnknownColumnError, match=r"nothing of pairs\.pair_id"):
        references._table("pairs", {"shared": {}, "tables": {}})


def test_a_null_without_a_meaning_is_named(references):
    said = {"shared": {}, "tables": {"rewards": dict.fromkeys(SCHEMAS["rewards"].names, "a text")}}
    with pytest.raises(references.UnknownColumnError, match=r"rewards\.score: say what null means"):
        references._table("rewards", said)
