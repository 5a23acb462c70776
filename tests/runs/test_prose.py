"""Plain English: sentence patterns that hide the actor or the noun stay rare, per 10,000 words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("*.py", "configs", "critics", "loop", "policies", "stores")
PATTERNS = [
    (
        r"\b(?:is|are|was|were|be|been|being) (?:(?:not|never|then|also|only|so) )?"
        r"(?:told|said|heard|believed|asked|named|meant|known)\b"
    ),
    (
        r"\b(?:[Tt]ells?|[Ss]ays?|[Ss]aid|[Tt]old) "
        r"(?:of|so|nothing|what|which|whether|how|who|where|no|it|its|them|that)\b"
    ),
    (
        r"\b(?:[Ww]hat|[Ww]hoever|[Ww]hatever) (?:is|are|was|were|it|they|a|an|has|have|had|can|"
        r"cannot|could|may|goes|comes|follows|stands|lies|each|one|others?|came|became|nothing|no)\b"
    ),
    (
        r"\b[Ww]here (?:it|they|a|an|one|there|none|nothing|nobody|no|several|neither|each|both|"
        r"all|some|only|that|these|people|he)\b"
    ),
    (
        r"\b(?:is|are|was|were|be|has|have|had|makes?|leaves?|gives?|takes?|needs?|says?|asks?|"
        r"changes?) (?:no|none|nothing|nobody)\b"
    ),
    r"\b(?:that|those) (?:of|with|in|on|from|who|to|for)\b",
    (
        r"\b(?:stands?|stood|lies?|lay|holds?|held|goes) (?:in|on|for|at|behind|before|there|where|"
        r"beside|to|until|of|as|within|between|by|back|over|below|above|apart|under|with)\b"
    ),
    (
        r"\b(?:[Aa]new|[Bb]esides?|[Ll]ikewise|all the same|but for|for want of|in vain|of before|"
        r"in the place of|in (?:its|their) place|stands? in for|of use|on the way|"
        r"by (?:itself|themselves)|for ever|at hand|[Aa]s far as|so far as|no more|ahead of)\b"
    ),
    r"\b(?:of|by|in|with|under) (?:its|their|one's|his|your|our) own\b",
    r"\b[Ll]et (?:it|a|an|the|no|each|all|its|what|who|several|people|one|others|[a-z]+s) ",
]
ODD = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))


def python_files(*places: str) -> list[Path]:
    return sorted(
        path
        for place in places
        for found in ROOT.glob(place)
        for path in ([found] if found.is_file() else found.rglob("*.py"))
    )


def documented(path: Path) -> Iterator[str]:
    """Yield the docstrings, the strings below constants and the comments of a file."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def raised(path: Path) -> Iterator[str]:
    """Yield the texts of the errors that a file raises and of the lines that it logs."""
    for node in ast.walk(ast.parse(path.read_text())):
        logs = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "info", "warning", "error", "note",
        )  # fmt: skip
        if isinstance(node, ast.Raise) or logs:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def texts(kind: str) -> Iterator[str]:
    if kind == "docs":
        pages = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
        yield from (page.read_text() for page in sorted(pages) if page.name != "CHANGELOG.md")
    elif kind == "docstrings":
        yield from (text for path in python_files(*CODE) for text in documented(path))
    elif kind == "errors":
        yield from (text for path in python_files(*CODE) for text in raised(path))
    else:
        names = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
        for path in python_files("tests"):
            yield from (name.replace("_", " ") for name in names.findall(path.read_text()))


@pytest.mark.parametrize(
    ("kind", "limit"), [("docs", 20), ("docstrings", 30), ("test names", 30), ("errors", 60)]
)
def test_odd_sentences_are_rare(kind: str, limit: int) -> None:
    found = [" ".join(text.split()) for text in texts(kind)]
    words = sum(len(text.split()) for text in found)
    hits = [match[0] for text in found for match in ODD.finditer(text)]
    assert words > 5000
    assert len(hits) * 10_000 / words <= limit, f"{len(hits)} hits in {words:,} words of {kind}"
