"""Generated pages equal what the code generates."""

import sys
from importlib import util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def references():
    spec = util.spec_from_file_location("make_references", DOCS / "make_references.py")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(references):
    for page, text in references.pages().items():
        assert (DOCS / page).read_text() == text, "run: python docs/make_references.py"


def test_undescribed_column_is_reported(references):
    with pytest.raises(references.UnknownColumnError, match=r"nothing of pairs\.pair_id"):
        references._table("pairs", {"shared": {}, "tables": {}})
