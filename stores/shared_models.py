"""Models that no run made, in the bucket of a lake: machines that have no copy fetch them there.

They lie below `models/`, beside the lake's runs, in the form of a published checkpoint. Nothing
removes them.
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .bucket import Bucket
from .sealed import MANIFEST, known_sha256

FOLDER = "models"
AT_ONCE = 4

_one_at_a_time = threading.Lock()
"""Replicas of one model are opened at the same time."""
_there = set[str]()


def shared_model(url: str, files: Sequence[Path]) -> str:
    """Return the address of a model's files in a lake's bucket, uploaded unless they are there.

    Raises:
        BucketError: if the bucket refuses them.
    """
    manifest = _manifest(files)
    bucket = Bucket(url)
    place = f"{FOLDER}/{hashlib.sha256(manifest).hexdigest()}"
    with _one_at_a_time:
        if bucket.at(place) not in _there:
            if not bucket.sizes(f"{place}/{MANIFEST}"):
                _upload(bucket, place, files, manifest)
            _there.add(bucket.at(place))
    return bucket.at(place)


def _upload(bucket: Bucket, place: str, files: Sequence[Path], manifest: bytes) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # A link of the hub's cache is the file that it points to.
        sent = [pool.submit(bucket.put_file, f"{place}/{f.name}", f.resolve()) for f in files]
    for upload in sent:
        upload.result()
    bucket.put(f"{place}/{MANIFEST}", manifest)


def _manifest(files: Sequence[Path]) -> bytes:
    """Return what `sealed.manifest_of` would say of a folder of these files."""
    entries = [
        {"name": path.name, "size": path.stat().st_size, "sha256": known_sha256(path)}
        for path in sorted(files)
    ]
    return json.dumps(entries, indent=1).encode()
