"""Files that list the endpoints of one model.

A line is a base URL, and after it perhaps the name under which that endpoint serves the model. What
follows a # is a comment.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .section import ConfigError, without_credentials

LISTED = "@"
"""What stands before the name of such a file where URLs could stand."""
WORDS = 2


@dataclass(frozen=True, slots=True)
class ListedEndpoint:
    """One endpoint: its base URL, and under which name it serves the model; None: as the others."""

    url: str
    model_name: str | None = None


def read_endpoint_list(path: Path) -> tuple[ListedEndpoint, ...]:
    """Return the endpoints that a file lists, in its order.

    Raises:
        ConfigError: if it cannot be read, lists none, or a line is no endpoint; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{path}: the list of endpoints cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error
    found = dict[str, tuple[int, ListedEndpoint]]()
    for number, line in enumerate(lines, 1):
        words = _without_comment(line).split()
        if not words:
            continue
        try:
            endpoint = _endpoint(words)
        except ValueError as error:
            raise ConfigError(f"{path}: line {number}: {error}") from error
        place = endpoint.url.rstrip("/")
        if place in found:
            raise ConfigError(
                f"{path}: line {number}: {endpoint.url} is in line {found[place][0]} already; "
                "remove one of them"
            )
        found[place] = number, endpoint
    if not found:
        raise ConfigError(f"{path}: lists no endpoint; write one URL a line")
    return tuple(endpoint for _, endpoint in found.values())


def _without_comment(line: str) -> str:
    """Return a line up to a # that begins it, or a word of it."""
    words = line.split()
    kept = next((n for n, word in enumerate(words) if word.startswith("#")), len(words))
    return " ".join(words[:kept])


def _endpoint(words: list[str]) -> ListedEndpoint:
    """Return the endpoint that a line names.

    Raises:
        ValueError: saying what is wrong with it.
    """
    if len(words) > WORDS:
        raise ValueError("write a URL, and after it perhaps the model's name there")
    url = without_credentials(words[0])
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{url!r} is not an endpoint; write an address such as http://127.0.0.1:8000/v1"
        )
    return ListedEndpoint(url, words[1] if len(words) == WORDS else None)
