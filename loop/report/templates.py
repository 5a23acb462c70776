"""Drawing pages from templates: all text is escaped, and hidden characters are made visible."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..data.text import visible

HERE = Path(__file__).parent


def templates(*folders: Path) -> Environment:
    """Return the report's templates and those in `folders`; values are inserted as text."""
    environment = Environment(
        loader=FileSystemLoader([*folders, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["prose"] = prose
    return environment


def prose(text: str) -> Markup:
    """Return a text with the parts between backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(visible(text))
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if n % 2 else part for n, part in enumerate(parts))


def _shown(value: object) -> object:
    # Markup was escaped already; everything else that is text may hide characters.
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
