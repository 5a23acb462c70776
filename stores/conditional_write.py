# pyright: basic
"""What a bucket must do that pyarrow cannot ask: to write an object only if there is none.

Of two machines that write the same name so, exactly one does. botocore asks for it (S3's
`If-None-Match: *`), with the keys, the region and the endpoint that pyarrow uses, too.
"""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from .address import place_of
from .bucket import ATTEMPTS, REQUEST_S, BucketError, OutOfReachError, region

THERE = "PreconditionFailed"
CONFLICT = "ConditionalRequestConflict"
"""What a store says while another request for the same name is under way: it can be repeated."""
PAUSE_S = 0.2
TRIES = 4
"""botocore waits up to 1, 2, 4 ... seconds between them."""
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


def create_object(url: str, name: str, data: bytes) -> bool:
    """Write an object unless there is one of that name; return whether it was written.

    False can also mean that it was, and the answer was lost: whoever must know reads it.

    Raises:
        OutOfReachError: if the bucket does not answer.
        BucketError: if it refuses.
    """
    bucket, key = _split(url, name)
    for _ in range(ATTEMPTS):
        with _errors_told(f"{url}/{name}") as told:
            _client(os.environ.get("AWS_ENDPOINT_URL"), region()).put_object(
                Bucket=bucket, Key=key, Body=data, IfNoneMatch="*"
            )
        if told != [CONFLICT]:
            return not told
        time.sleep(PAUSE_S)
    raise OutOfReachError(f"{url}/{name} cannot be written: others write it at the same moment")


def object_age_s(url: str, name: str) -> float | None:
    """Return for how long an object is as it is, by the bucket's own clock; None if there is none.

    Raises:
        OutOfReachError: if the bucket does not answer.
        BucketError: if it refuses.
    """
    bucket, key = _split(url, name)
    answer: dict[str, Any] = {}
    with _errors_told(f"{url}/{name}") as told:
        answer = _client(os.environ.get("AWS_ENDPOINT_URL"), region()).head_object(
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
def _client(endpoint: str | None, region: str | None) -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(
        # Other stores than Amazon's may not know checksums that follow the body.
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
    """Raise what a store or the way to it says; what is no error is put into the list instead."""
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
