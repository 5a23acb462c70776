"""The place of a lake: a folder, or a prefix of a bucket together with a folder on this machine.

That folder, the lake's *local side*, holds the files that cannot be in a bucket: journals, locks,
work, logs and copies. A file in it names the bucket, so its path serves as the lake's address.
"""

import os
import re
import shlex
from pathlib import Path

DEFAULT_LAKE = Path("lake")
STATE = "LPFLOOP_STATE"
ADDRESS = "BUCKET"
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_URL = re.compile(rf"s3://({_BUCKET}(?:/{_SEGMENT})*)/?")


class AddressError(ValueError):
    """An address that does not name a place in a bucket."""


class BucketError(OSError):
    """A bucket that refused a request."""

    code = "LPF-219"


class OutOfReachError(BucketError):
    """A bucket that did not answer, even after retries; it may answer later."""


def lake_folder(place: str) -> Path:
    """Return the folder of a lake: the folder itself, or the local side of a bucket.

    Raises:
        AddressError: if it looks like an address, but is not a valid one.
    """
    if "://" not in place:
        return Path(place)
    from .durable import make_folder, write_file

    inner = place_of(place)
    folder = state_folder() / "s3" / inner.replace("/", "+")
    if bucket_of(folder) is None:
        write_file(make_folder(folder) / ADDRESS, f"s3://{inner}\n".encode())
    return folder


def bucket_of(lake: Path) -> str | None:
    """Return the address of the bucket that holds a lake's sealed files, or None."""
    try:
        return (lake / ADDRESS).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def in_lake(lake: Path) -> str:
    """Return the option that names a lake to a command, after a space; empty for the default.

    It is quoted for a shell.
    """
    return "" if lake == DEFAULT_LAKE else f" --lake {shlex.quote(bucket_of(lake) or str(lake))}"


def run_argument(folder: Path) -> str:
    """Return the arguments that name the run in a folder to a command: its name, and the lake."""
    return f"{folder.name}{in_lake(folder.parent.parent)}"


def lake_in_bucket(path: Path) -> tuple[Path, str] | None:
    """Return folder and bucket of the lake that a path is below; None if it is not in a bucket."""
    for lake in path.absolute().parents:
        url = bucket_of(lake)
        if url is not None:
            return lake, url
    return None


def place_of(url: str) -> str:
    """Return bucket and prefix of an address, without a slash at the end.

    Raises:
        AddressError: if it is not `s3://BUCKET` or `s3://BUCKET/PREFIX`.
    """
    match = _URL.fullmatch(url)
    if match is None:
        shown = re.sub(r"//[^/]*@", "//", url)
        raise AddressError(
            f"{shown!r} does not name a place in a bucket: write s3://BUCKET/PREFIX, the prefix "
            "made of letters, digits, '.', '-' and '_' between slashes"
        )
    return match[1]


def state_folder() -> Path:
    """Return the folder of lpfloop's state on this machine, the same for all lakes."""
    chosen = os.environ.get(STATE)
    return Path(chosen).absolute() if chosen else Path.home() / ".local" / "state" / "lpfloop"
