# pyright: basic
"""A bucket of an S3-compatible store, through obstore; each call succeeds or explains its failure.

Keys, region and endpoint come from the usual environment (AWS_ACCESS_KEY_ID, AWS_REGION,
AWS_ENDPOINT_URL ...), never from a configuration. Passing failures (a connection
lost, a server that is busy or slow) are retried; lasting ones raise `OutOfReachError`, after which
the same call may succeed later. An upload becomes visible only once it is complete.
"""

import hashlib
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from .address import BucketError, OutOfReachError, place_of
from .durable import write_file
from .failpoints import reach
from .sealed import DamagedError

if TYPE_CHECKING:
    from obstore.store import S3Store

AT_ONCE = 16
"""How many requests for objects are made concurrently: each takes a while, however small."""
ATTEMPTS = 5
LONGEST_WAIT_S = 4.0
REQUEST_S = 30.0
"""The seconds to connect, to send a block, or to wait for more bytes."""
BLOCK, BLOCKS = 8 * 2**20, 4
"""The bytes of a part of a large object, and how many parts are sent concurrently."""
LASTING = re.compile(r"status code: (?!408|429)4\d\d")

T = TypeVar("T")
P = ParamSpec("P")


@contextmanager
def _step(name: str) -> Generator[None]:
    reach(f"object.{name}.before")
    yield
    reach(f"object.{name}.after")


@contextmanager
def _explain_failures(address: str) -> Generator[None]:
    """Distinguish passing from lasting failures; errors not from the store pass unchanged."""
    from obstore.exceptions import BaseError, GenericError

    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise BucketError(f"{address} cannot be used: its bucket does not exist") from error
        raise DamagedError(f"{address} is missing, although the journal refers to it") from error
    except BaseError as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, GenericError) and not LASTING.search(reason):
            raise OutOfReachError(f"{address} cannot be reached: {reason}") from error
        raise BucketError(f"{address} cannot be used: {reason}") from error


def _retried(
    method: Callable[Concatenate["Bucket", str, P], T],
) -> Callable[Concatenate["Bucket", str, P], T]:
    """Retry a method about an object or folder; a failure is raised as one sentence."""

    @wraps(method)
    def retry(bucket: "Bucket", name: str, *args: P.args, **kwargs: P.kwargs) -> T:
        def ask() -> T:
            with _explain_failures(bucket.at(name)):
                return method(bucket, name, *args, **kwargs)

        return Retrying(
            retry=retry_if_exception_type(OutOfReachError),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=LONGEST_WAIT_S),
            reraise=True,
        )(ask)

    return retry


class Bucket:
    """The objects below a prefix of a bucket; names are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._place = place_of(url)

    def at(self, name: str) -> str:
        """Return the whole address of an object."""
        return f"{self.url}/{name}"

    def put(self, name: str, data: bytes) -> None:
        """Publish an object, replacing an earlier one, and check its size afterwards."""
        self._publish(name, len(data), data)

    def put_file(self, name: str, path: Path) -> None:
        """Publish a file as an object, without holding it in memory."""
        self._publish(name, path.stat().st_size, path)

    @_retried
    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless one of that name exists; return whether it was written.

        If two machines write one name, exactly one succeeds. False can also mean that it was
        written and the answer was lost: read it to be sure.
        """
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    @_retried
    def read(self, name: str) -> bytes:
        """Return an object's bytes.

        Raises:
            DamagedError: if it is missing.
        """
        return self._store.get(name).bytes().to_bytes()

    @_retried
    def sha256(self, name: str) -> str:
        """Return the SHA-256 (hex) of an object's bytes, fetched in blocks."""
        found = hashlib.sha256()
        for block in self._blocks(name):
            found.update(block)
        return found.hexdigest()

    @_retried
    def download(self, name: str, path: Path) -> None:
        """Write an object's bytes to a file."""
        write_file(path, self._blocks(name))

    @_retried
    def exists(self, name: str) -> bool:
        """Whether an object of that name exists."""
        return self._head(name) is not None

    def sizes(self, below: str) -> dict[str, int]:
        """Return the size of each object below `below`, a whole name or a folder; {} if none."""
        return {name: size for name, (size, _) in self.list_objects(below).items()}

    @_retried
    def list_objects(self, below: str) -> dict[str, tuple[int, float]]:
        """Return size and time of change (seconds) of each object below `below`.

        A slash at the end marks `below` as a folder, which saves the request for an object.
        """
        itself = None if below.endswith("/") or not below else self._head(below)
        found = [] if itself is None else [itself]
        for page in self._store.list(below.rstrip("/") or None):
            found += page
        return {
            each["path"]: (each["size"], each["last_modified"].timestamp())
            for each in sorted(found, key=lambda each: each["path"])
            if each["size"]  # Some tools mark an empty folder by an empty object.
        }

    @_retried
    def folders(self, below: str) -> list[str]:
        """Return the names of the folders directly below a folder."""
        found = self._store.list_with_delimiter(below)["common_prefixes"]
        return sorted(path.rpartition("/")[2] for path in found)

    def time(self) -> float:
        """Return the time of the bucket's clock, in seconds; it writes an object to learn it."""
        self.put("clock", b"read")
        return self.list_objects("clock")["clock"][1]

    @_step("copy")
    @_retried
    def copy(self, name: str, target: str) -> None:
        """Copy an object below the prefix, of any size."""
        from obstore import open_writer

        with open_writer(self._store, target) as writer:  # S3 itself copies at most 5 GB.
            for block in self._blocks(name):
                writer.write(block)

    @_step("delete")
    @_retried
    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            self._store.delete(name)

    @_step("put")
    @_retried
    def _publish(self, name: str, size: int, data: bytes | Path) -> None:
        """Upload and check the size, as one step that is retried as a whole."""
        self._store.put(name, data, chunk_size=BLOCK, max_concurrency=BLOCKS)
        there = self._head(name)
        found = None if there is None else there["size"]
        if found != size:
            raise OutOfReachError(f"{self.at(name)} has {found} bytes, though {size} were sent")

    def _head(self, name: str) -> Any:
        try:
            return self._store.head(name)
        except FileNotFoundError:
            return None

    def _blocks(self, name: str) -> Generator[bytes]:
        yield from self._store.get(name).stream(min_chunk_size=BLOCK)

    @property
    def _store(self) -> "S3Store":
        return _client(self._place, os.environ.get("AWS_ENDPOINT_URL"), region())


def region() -> str | None:
    """Return the region that the environment names."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


@lru_cache(maxsize=16)
def _client(place: str, endpoint: str | None, region: str | None) -> "S3Store":
    from obstore.store import S3Store

    bucket, _, prefix = place.partition("/")
    where: dict[str, Any] = {} if endpoint is None else {"endpoint": endpoint}
    return S3Store(
        bucket,
        prefix=prefix or None,
        region=region or "us-east-1",
        client_options={
            "allow_http": endpoint is not None and urlsplit(endpoint).scheme == "http",
            "connect_timeout": timedelta(seconds=REQUEST_S),
            "read_timeout": timedelta(seconds=REQUEST_S),
            "timeout": timedelta(days=1),
        },
        retry_config={"max_retries": 0},  # `Bucket` retries, also what obstore does not.
        **where,
    )
