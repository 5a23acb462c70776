"""The pages lead: each is on the path, each link and anchor exists, each quoted message is real."""

import ast
import inspect
import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from lpfloop.configs.describe import fields
from lpfloop.critics.judge import Status
from lpfloop.loop.cli import common
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.training_rows import Outcome
from lpfloop.stores.schemas import ROW_TYPES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")])
ROOMS = ("stores", "configs", "critics", "policies", "loop")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TRANSLATED = {
    "can not": "cannot",
    "no JSON or no UTF-8": "neither JSON nor UTF-8",
    "are let be": "are left alone",
    "asks for a look": "is worth a look",
    "Its beginning will do": "The beginning is enough",
    " as ever[,.]": "as before",
    "so many rows": "N rows",
}
SHORTEST = 6
"""Characters of a message that are worth looking for."""


def prose(page):
    return FENCE.sub("", page.read_text())


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_stands_on_the_path_once():
    links = LINK.findall((DOCS / "README.md").read_text())
    pages = [link.partition("#")[0] for link in links]
    expected = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(p for p in pages if "/" not in p and p.endswith(".md")) == sorted(expected)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_place_that_is_there(page):
    lost = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path)
        if link.startswith("http"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_english(page):
    found = [f"{bad!r}: {good}" for bad, good in TRANSLATED.items() if re.search(bad, prose(page))]
    assert found == []


@cache
def trees():
    return [ast.parse(path.read_text()) for room in ROOMS for path in (ROOT / room).rglob("*.py")]


def constants(node):
    """Return the fixed parts of the texts in a piece of code, but for its docstrings."""
    said = {id(leaf.value) for leaf in ast.walk(node) if isinstance(leaf, ast.Expr)}
    return [
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and id(leaf) not in said
    ]


def rows(page, header):
    """Return the rows of the tables of a page whose columns are `header`."""
    found = []
    tables = re.findall(r"((?:^\|.*\n)+)", (DOCS / page).read_text(), re.MULTILINE)
    for table in tables:
        head, _, *lines = table.splitlines()
        if [cell.strip() for cell in head.strip("|").split("|")] == list(header):
            found += [[c.strip() for c in line.strip("|").split(" | ")] for line in lines]
    return found


@cache
def quoted():
    """Return the fixed parts of each message in the page of troubles, by message."""
    messages = {}
    for said, *_ in rows("troubleshooting.md", ("message", "why", "what to do")):
        if "(the " not in said:
            for message in re.findall(r"`([^`]+)`", said):
                parts = (part.strip(" .:;,()") for part in message.split("…"))
                messages[message] = [part for part in parts if len(part) >= SHORTEST]
    return messages


def test_every_quoted_message_is_one_of_the_code():
    texts = list(chain.from_iterable(constants(tree) for tree in trees()))
    unknown = [
        message
        for message, parts in quoted().items()
        if not parts or not all(any(part in text for text in texts) for part in parts)
    ]
    assert len(quoted()) > 90
    assert unknown == []


def handled():
    """Return the errors that commands turn into one sentence."""
    tree = ast.parse(inspect.getsource(common._told))
    called = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "isinstance"
    ]
    names = {
        leaf.id for call in called for leaf in ast.walk(call.args[1]) if isinstance(leaf, ast.Name)
    }
    return sorted(names)


@cache
def raisers():
    """Return what each function calls, with the fixed parts of its texts."""
    functions = [n for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    calls = [
        {c.func.id for c in ast.walk(f) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}
        for f in functions
    ]
    return [
        (called, constants(f))
        for f, called in zip(functions, calls, strict=True)
        if any(n[:1].isupper() for n in called)
    ]


@cache
def heirs():
    """Return the classes of the code that extend each class."""
    found = {}
    for node in (n for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        for base in node.bases:
            found.setdefault(ast.unparse(base), set()).add(node.name)
    return found


@pytest.mark.parametrize("name", handled())
def test_every_kind_of_error_has_an_entry(name):
    parts = list(chain.from_iterable(quoted().values()))
    names = {name} | heirs().get(name, set())
    texts = list(chain.from_iterable(said for called, said in raisers() if called & names))
    assert any(part in text for part in parts for text in texts)


def test_every_reason_why_nothing_could_be_read_is_explained():
    said = " ".join(
        r for r, *_ in rows("troubleshooting.md", ("reason", "what the reply was", "what helps"))
    )
    known = {s.value for s in Status} - {Status.SCORED.value}
    assert set(re.findall(r"`(\w+)`", said)) == known


def test_every_outcome_of_pairing_is_explained():
    said = " ".join(
        r for r, *_ in rows("reading-a-run.md", ("outcome", "what it means", "what helps"))
    )
    assert set(re.findall(r"`(\w+)`", said)) == {outcome.value for outcome in Outcome}


def test_the_thresholds_that_are_told_are_those_of_the_code():
    defaults = {field.path: field.default for field in fields()}
    text = (DOCS / "reading-a-run.md").read_text()
    told = re.findall(r"`([a-z_.]+)` \((\d+) ?(%|points?|)", text)
    assert len(told) >= 9
    for path, number, unit in told:
        share = 100 if unit else 1
        assert defaults[path] * share == pytest.approx(float(number)), path


def test_every_extra_is_described():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = [re.sub("`", "", name) for name, *_ in rows("install.md", ("extra", "what it adds"))]
    assert sorted(told) == sorted(project["optional-dependencies"])


@pytest.mark.parametrize("table", ROW_TYPES)
def test_every_noun_is_in_the_glossary(table):
    text = (DOCS / "glossary.md").read_text()
    assert f"data-model.md#{table})" in text


def mentioned(page):
    """Return the commands that a page mentions: in a line of prose, or in any of its blocks."""
    text = page.read_text()
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    found = [line.strip() for line in lines if line.strip().startswith("lpfloop ")]
    return [*found, *re.findall(r"`(lpfloop [^`]+)`", FENCE.sub("", text).replace("\n", " "))]


def unknown(command):
    """Return the part of a command that lpfloop does not know."""
    place = get_command(app)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_mentioned_exists_with_its_options(page):
    commands = mentioned(page)
    assert [(command, bad) for command in commands if (bad := unknown(command))] == []
