"""Drawing from templates: all text is escaped, and hidden characters are made visible."""

from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment
from markupsafe import Markup

from ..data.durations import duration
from ..report.templates import templates as templates_in

HERE = Path(__file__).parent
STATIC = HERE / "static"


def templates() -> Environment:
    """Return the templates; values are inserted as text, never as markup."""
    environment = templates_in(HERE / "templates")
    environment.globals.update(address=address)
    environment.filters.update(count=count, duration=duration)
    return environment


def render_template(environment: Environment, template: str, **values: object) -> Markup:
    """Return a template rendered with values."""
    # The template has escaped its values.
    return Markup(environment.get_template(template).render(**values))  # noqa: S704


def address(*parts: object, **query: object) -> str:
    """Return the address of a page, each part of its path and its query quoted.

    Values that are None or empty are left out of the query.
    """
    path = "/".join(quote(str(part), safe="") for part in parts)
    pairs = [(name, str(value)) for name, value in query.items() if value not in (None, "")]
    return f"/{path}" + (f"?{urlencode(pairs)}" if pairs else "")


def count(number: float | None) -> str:
    """Return a number as people read it; empty for 0 or None."""
    return f"{number:,}" if number else ""
