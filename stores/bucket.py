# pyright: basic
"""A bucket of an S3-compatible store, through pyarrow; each call succeeds or explains its failure.

Keys, region and endpoint come from the usual environment (AWS_ACCESS_KEY_ID, AWS_REGION,
AWS_ENDPOINT_URL ...), never from a configuration. Passing failures (a connection
lost, a server that is busy or slow) are retried; lasting ones raise `OutOfReachError`, after which
the same call may succeed later. An upload becomes visible only once it is complete.

pyarrow cannot write an object only if it does not exist. botocore can (S3's `If-None-Match: *`),
with the same keys, region and endpoint: if two machines write one name so, exactly one succeeds.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from .address import place_of
from .failpoints import reach
from .sealed import DamagedError

AT_ONCE = 16
"""How many requests for objects are made concurrently: each takes a while, however small."""
ATTEMPTS = 5
LONGEST_WAIT_S = 4.0
REQUEST_S = 10.0
BLOCK = 8 * 2**20
"""The bytes of a large object per request; each request takes a round trip."""
PASSING = re.compile(
    r"AWS Error (NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|"
    r"REQUEST_TIMEOUT|\w+ \(HTTP status (429|5\d\d)\))"
)
SAID = re.compile(r"AWS Error .*?(?= \(Request ID|$)", re.DOTALL)

THERE = "PreconditionFailed"
CONFLICT = "ConditionalRequestConflict"
"""The code of a store while another request for the same name is in flight; it can be retried."""
PAUSE_S = 0.2
TRIES = 4
"""The number of retries; botocore waits up to 1, 2, 4 ... seconds between them."""
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})

T = TypeVar("T")


class BucketError(OSError):
    """A bucket that refused a request."""

    code = "LPF-219"


class OutOfReachError(BucketError):
    """A bucket that did not answer, even after retries; it may answer later."""


class Bucket:
    """The objects below a prefix of a bucket; names are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = place_of(url)

    def at(self, name: str) -> str:
        """Return the whole address of an object."""
        return f"{self.url}/{name}"

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Publish an object, replacing an earlier one, and check its size afterwards."""

        def upload() -> None:
            files = self._files()
            with files.open_output_stream(f"{self._root}/{name}", compression=None) as stream:
                stream.write(data)

        self._publish(name, len(data), upload)

    def put_file(self, name: str, path: Path) -> None:
        """Publish a file as an object, without holding it in memory."""
        target = f"{self._root}/{name}"

        def upload() -> None:
            pafs.copy_files(str(path), target, LOCAL, self._files(), chunk_size=BLOCK)

        self._publish(name, path.stat().st_size, upload)

    def read(self, name: str) -> bytes:
        """Return an object's bytes.

        Raises:
            DamagedError: if it is missing.
        """

        def read() -> bytes:
            with self._files().open_input_file(f"{self._root}/{name}") as file:
                return file.read()

        return self._retry(name, read)

    def sha256(self, name: str) -> str:
        """Return the SHA-256 (hex) of an object's bytes, fetched in blocks."""

        def hashed() -> str:
            place = f"{self._root}/{name}"
            with self._files().open_input_stream(place, None, BLOCK) as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()

        return self._retry(name, hashed)

    def place(self, name: str) -> tuple[pafs.FileSystem, str]:
        """Return file system and path for pyarrow to read an object, with retries."""
        files = _client(os.environ.get("AWS_ENDPOINT_URL"), region(), attempts=ATTEMPTS)
        return files, f"{self._root}/{name}"

    def download(self, name: str, path: Path) -> None:
        """Write an object's bytes to a file, not durably: the caller publishes it."""
        source = f"{self._root}/{name}"

        def fetch() -> None:
            pafs.copy_files(source, str(path), self._files(), LOCAL, chunk_size=BLOCK)

        self._retry(name, fetch)

    def sizes(self, below: str) -> dict[str, int]:
        """Return the size of each object below `below`, a whole name or a folder; {} if none."""
        return {name: size for name, (size, _) in self.listed(below).items()}

    def listed(self, below: str) -> dict[str, tuple[int, int]]:
        """Return size and time of change (ns) of each object below `below`.

        A slash at the end marks `below` as a folder, which saves the request for an object.
        """
        place = f"{self._root}/{below}".rstrip("/")

        def look() -> dict[str, tuple[int, int]]:
            selector = pafs.FileSelector(place, recursive=True, allow_not_found=True)
            files = self._files()
            itself = [] if below.endswith("/") else files.get_file_info([place])
            found = [*itself, *files.get_file_info(selector)]
            # Some tools mark an empty folder by an object whose name ends in a slash.
            return {
                info.path.removeprefix(f"{self._root}/"): (info.size, info.mtime_ns)
                for info in sorted(found, key=lambda info: info.path)
                if info.is_file and not info.path.endswith("/")
            }

        return self._retry(below, look)

    def folders(self, below: str) -> list[str]:
        """Return the names of the entries directly below a folder."""
        place = f"{self._root}/{below}"

        def look() -> list[str]:
            selector = pafs.FileSelector(place, allow_not_found=True)
            return sorted({info.base_name for info in self._files().get_file_info(selector)} - {""})

        return self._retry(below, look)

    def copy(self, name: str, target: str) -> None:
        """Copy an object below the prefix, of any size."""

        def copy() -> None:
            source, files = f"{self._root}/{name}", self._files()
            pafs.copy_files(source, f"{self._root}/{target}", files, files)

        with _step("copy"):
            self._retry(name, copy)

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with _step("delete"):
            self._retry(name, lambda: self._delete(name))

    def _publish(self, name: str, size: int, upload: Callable[[], None]) -> None:
        """Upload and check the size, as one step that is retried as a whole."""

        def publish() -> None:
            upload()
            (info,) = self._files().get_file_info([f"{self._root}/{name}"])
            if info.size != size:
                raise OutOfReachError(
                    f"{self.at(name)} has {info.size} bytes, though {size} were sent"
                )

        with _step("put"):
            self._retry(name, publish)

    def _delete(self, name: str) -> None:
        try:
            self._files().delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return

    def _retry(self, name: str, action: Callable[[], T]) -> T:
        """Run `action` with retries; a failure is raised as one sentence."""

        def ask() -> T:
            with _explain_failures(self.at(name)):
                try:
                    return action()
                except FileNotFoundError:
                    # A missing bucket is not damage: listing it raises the right error.
                    self._files().get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
                    raise

        return Retrying(
            retry=retry_if_exception_type(OutOfReachError),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=LONGEST_WAIT_S),
            reraise=True,
        )(ask)

    def _files(self) -> pafs.S3FileSystem:
        return _client(os.environ.get("AWS_ENDPOINT_URL"), region())


LOCAL = pafs.LocalFileSystem()


def region() -> str | None:
    """Return the region that the environment names."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def polars_options() -> dict[str, str | int]:
    """Return the options with which polars reads this bucket; it finds the keys itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, str | int] = {"max_retries": ATTEMPTS}
    if endpoint:
        plain = urlsplit(endpoint).scheme == "http"
        options |= {"aws_endpoint_url": endpoint, "aws_allow_http": str(plain).lower()}
    if region():
        options["aws_region"] = str(region())
    return options


@lru_cache(maxsize=4)
def _client(endpoint: str | None, region: str | None, attempts: int = 2) -> pafs.S3FileSystem:
    address = urlsplit(endpoint or "")
    where = {"endpoint_override": address.netloc, "scheme": address.scheme} if endpoint else {}
    return pafs.S3FileSystem(
        region=region,
        allow_delayed_open=True,
        background_writes=False,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=attempts),
        connect_timeout=REQUEST_S,
        request_timeout=REQUEST_S,
        **where,
    )


@contextmanager
def _step(name: str) -> Generator[None]:
    reach(f"object.{name}.before")
    yield
    reach(f"object.{name}.after")


@contextmanager
def _explain_failures(address: str) -> Generator[None]:
    """Distinguish passing from lasting failures; errors not from S3 pass unchanged."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedError(f"{address} is missing, although the journal refers to it") from error
    except OSError as error:
        said = SAID.search(str(error))
        if said is None:
            raise
        if PASSING.search(said[0]):
            raise OutOfReachError(f"{address} cannot be reached: {said[0]}") from error
        raise BucketError(f"{address} cannot be used: {said[0]}") from error


def create_object(url: str, name: str, data: bytes) -> bool:
    """Write an object unless one of that name exists; return whether it was written.

    False can also mean that it was written and the answer was lost: read it to be sure.

    Raises:
        OutOfReachError: if the bucket does not answer.
        BucketError: if it refuses.
    """
    bucket, key = _split(url, name)
    for _ in range(ATTEMPTS):
        with _errors_told(f"{url}/{name}") as told:
            _conditional_client(os.environ.get("AWS_ENDPOINT_URL"), region()).put_object(
                Bucket=bucket, Key=key, Body=data, IfNoneMatch="*"
            )
        if told != [CONFLICT]:
            return not told
        time.sleep(PAUSE_S)
    raise OutOfReachError(f"{url}/{name} cannot be written: others write it at the same moment")


def object_age_s(url: str, name: str) -> float | None:
    """Return the age of an object's content by the bucket's clock; None if it does not exist.

    Raises:
        OutOfReachError: if the bucket does not answer.
        BucketError: if it refuses.
    """
    bucket, key = _split(url, name)
    answer: dict[str, Any] = {}
    with _errors_told(f"{url}/{name}") as told:
        answer = _conditional_client(os.environ.get("AWS_ENDPOINT_URL"), region()).head_object(
            Bucket=bucket, Key=key
        )
    if told:
        return None
    changed: datetime = answer["LastModified"]
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    return (now - changed).total_seconds()


def _split(url: str, name: str) -> tuple[str, str]:
    bucket, _, prefix = place_of(url).partition("/")
    return bucket, f"{prefix}/{name}" if prefix else name


@lru_cache(maxsize=4)
def _conditional_client(endpoint: str | None, region: str | None) -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(
        # Stores other than Amazon's may not support checksums that follow the body.
        request_checksum_calculation="when_required",
        retries={"mode": "standard", "max_attempts": TRIES},
        connect_timeout=REQUEST_S,
        read_timeout=REQUEST_S,
        s3={"addressing_style": "path"} if endpoint else {},
    )
    return get_session().create_client(
        "s3", region_name=region or "us-east-1", endpoint_url=endpoint, config=config
    )


@contextmanager
def _errors_told(address: str) -> Generator[list[str]]:
    """Raise the errors of a store or the network, except missing, existing or conflicting objects.

    The codes of these are put into the list instead.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    told = list[str]()
    try:
        yield told
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in MISSING | {THERE, CONFLICT} or status == HTTPStatus.PRECONDITION_FAILED:
            told.append(code)
        elif status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise OutOfReachError(f"{address} cannot be reached: {error}") from error
        else:
            raise BucketError(f"{address} cannot be used: {error}") from error
    except HTTPClientError as error:
        raise OutOfReachError(f"{address} cannot be reached: {error}") from error
    except BotoCoreError as error:
        raise BucketError(f"{address} cannot be used: {error}") from error
