"""The doctor's check of a lake's bucket."""

from collections.abc import Iterator
from pathlib import Path

from ...stores.address import bucket_of
from .diagnosis import Finding

REMEDY = (
    "the bucket must exist, and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for "
    "stores other than Amazon's, AWS_ENDPOINT_URL must be set"
)


def bucket_findings(lake: Path) -> Iterator[Finding]:
    """Check that a lake's bucket can be reached; no finding for a lake in a folder."""
    from ...stores.bucket import Bucket, BucketError

    url = bucket_of(lake)
    if url is None:
        return
    try:
        Bucket(url).sizes("runs/.doctor")
    except BucketError as error:
        yield Finding(about="bucket", status="missing", detail=str(error), remedy=REMEDY)
    else:
        detail = f"{url} answers; journals, locks and copies are at {lake}"
        yield Finding(about="bucket", status="ok", detail=detail)
