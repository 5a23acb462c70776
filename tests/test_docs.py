"""Every command that the README and the guides show is run; every link leads somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from commands import call

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)\)")


def commands():
    """Return the `lpfloop` commands of all pages, each once, in order."""
    lines = [
        line.partition("#")[0].strip()
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in block.splitlines()
    ]
    return list(dict.fromkeys(line for line in lines if line.startswith("lpfloop ")))


@pytest.mark.model
@pytest.mark.parametrize("command", commands())
def test_commands_of_the_guides_work(real_lake, command):
    code, stdout, stderr = call(real_lake, *shlex.split(command)[1:])
    assert code == 0, stderr
    assert stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    targets = [t for t in LINK.findall(page.read_text()) if not t.startswith("http")]
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_readme_lists_the_variants():
    from lpfloop.loop.recipes import RECIPES

    text = (ROOT / "README.md").read_text()
    for name, variant in RECIPES.items():
        assert f"| `{name}` | {variant.paper} | {variant.summary} |" in text
