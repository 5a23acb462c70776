"""The docs' links, commands and settings exist."""

import re
from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from lpfloop.configs.describe import every_field, settable
from lpfloop.loop.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page):
    return FENCE.sub("", page.read_text())


def anchors(page):
    """Return the anchors of a page's headings, in GitHub's format."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_listed_once():
    links = LINK.findall((DOCS / "README.md").read_text())
    pages = [link.partition("#")[0] for link in links]
    expected = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"README.md"}
    listed = [page for page in pages if page.endswith(".md") and not page.startswith("..")]
    assert sorted(listed) == sorted(expected)


def test_links_resolve():
    lost = []
    pages = [*PAGES, *(ROOT / "results").glob("*.md")]
    known = {page: anchors(page) for page in pages}
    for page in pages:
        for link in LINK.findall(prose(page)):
            path, _, anchor = link.partition("#")
            target = (page if not path else page.parent / path).resolve()
            if link.startswith("http"):
                continue
            if not target.exists() or (anchor and anchor not in known.get(target, ())):
                lost.append(f"{page.name}: {link}")
    assert lost == []


def mentioned(page):
    """Return the commands on a page: in a line of prose, or in any of its blocks."""
    text = page.read_text()
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    found = [line.strip() for line in lines if line.strip().startswith("lpfloop ")]
    return [*found, *re.findall(r"`(lpfloop [^`]+)`", FENCE.sub("", text).replace("\n", " "))]


def unknown(command, place):
    """Return the part of a command that lpfloop lacks."""
    words = command.partition("#")[0].split(" -- ")[0].split()[1:]
    while words and isinstance(place, TyperGroup):
        word = words.pop(0).strip("(),.;:")
        if word.startswith("-") or not word.islower():
            return None
        if word not in place.commands:
            return word
        place = place.commands[word]
    known = {option for parameter in place.params for option in parameter.opts} | {"--help"}
    given = (word.partition("=")[0].strip("(),.;:[]|…") for word in words if word.startswith("--"))
    return next((option for option in given if option not in known and len(option) > 2), None)


def test_mentioned_commands_exist():
    tree = get_command(app)
    commands = [command for page in PAGES for command in mentioned(page)]
    assert len(commands) > 200
    assert [(command, bad) for command in commands if (bad := unknown(command, tree))] == []


def test_mentioned_settings_exist():
    known = {field.path for field in (*every_field(), *settable())}
    known |= {path.removeprefix("training.") for path in known}
    sections = {path[:at] for path in known for at, c in enumerate(path) if c == "."}
    for page in PAGES:
        given = re.findall(
            r"--set[ =]['\"]?(models\.NAME\.[a-z_.]+|[a-z_0-9.]+)=",
            re.sub(r"\bmodels\.\w+\.", "models.NAME.", page.read_text()),
        )
        unknown = [path for path in given if path not in known | sections | {"key", "section.key"}]
        assert unknown == [], page.name
