# pyright: basic
"""Conditional writes to a bucket, which pyarrow lacks: write an object only if it does not exist.

If two machines write the same name this way, exactly one succeeds. botocore sends the condition
(S3's `If-None-Match: *`), with the same keys, region and endpoint as pyarrow.
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
"""The code of a store while another request for the same name is in flight; it can be retried."""
PAUSE_S = 0.2
TRIES = 4
"""The number of retries; botocore waits up to 1, 2, 4 ... seconds between them."""
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


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
            _client(os.environ.get("AWS_ENDPOINT_URL"), region()).put_object(
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
