"""Sealed files, in a folder or in a bucket, are whole under their names or absent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from rows import CANDIDATE, PAIR
from s3 import KEYS, BadWay, bad_way

from lpfloop.stores import bucket as bucket_module
from lpfloop.stores import durable
from lpfloop.stores.address import ADDRESS, BucketError, OutOfReachError
from lpfloop.stores.bucket_objects import InBucket
from lpfloop.stores.failpoints import VARIABLE
from lpfloop.stores.objects import Objects, objects_of
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST, DamagedError

TABLE = to_table(type(PAIR), [PAIR])
OTHER = to_table(type(CANDIDATE), [CANDIDATE])
WEIGHTS = b"\0\1\2"
FILES = {"config.json": b"{}", "inner/weights": WEIGHTS}


@pytest.fixture
def run(tmp_path) -> Path:
    return durable.make_folder(tmp_path / "lake" / "runs" / "one")


@pytest.fixture
def url(bucket, run) -> str:
    (run.parent.parent / ADDRESS).write_text(f"s3://{bucket}/team/lake\n")
    return f"s3://{bucket}/team/lake/runs/one"


@pytest.fixture(params=["folder", "bucket"])
def objects(request, run) -> Objects:
    if request.param == "bucket":
        request.getfixturevalue("url")
    return objects_of(run)


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(bucket_module, "LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr(bucket_module, "ATTEMPTS", 3)


@pytest.fixture
def bad(s3_server, bucket, environ, quick) -> Iterator[BadWay]:
    with bad_way(s3_server) as way:
        environ["AWS_ENDPOINT_URL"] = way.endpoint
        yield way


def model(run: Path, weights: bytes = WEIGHTS) -> Path:
    """Publish a model in the run's folder, as a trainer does; return its path."""
    draft = run / "work" / "model"
    (draft / "inner").mkdir(parents=True, exist_ok=True)
    (draft / "config.json").write_bytes(FILES["config.json"])
    (draft / "inner" / "weights").write_bytes(weights)
    checkpoints = durable.make_folder(run / "checkpoints")
    return checkpoints / durable.publish_folder(draft, checkpoints)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def seal(objects: Objects, run: Path) -> Path:
    folder = run / "files" / "pairs"
    return folder / f"{objects.write_stage_file(folder, TABLE).sha256}.parquet"


def spoil(objects: Objects, path: Path, data: bytes = b"spoiled") -> None:
    if objects.local:
        path.write_bytes(data)
    else:
        path.unlink(missing_ok=True)
        objects._bucket.put(objects._name(path), data)


def two_rows(frame: pl.LazyFrame) -> bool:
    return frame.collect().equals(pl.concat([pl.DataFrame(TABLE)] * 2))


def test_files_named_by_bytes(objects, run):
    pairs, candidates = run / "files" / "pairs", run / "files" / "candidates"
    written = [(pairs, TABLE), (candidates, OTHER), (pairs, TABLE)]
    first, second, again = (objects.write_stage_file(*each) for each in written)
    assert (first, first.rows) == (again, 1)
    path, other = pairs / f"{first.sha256}.parquet", candidates / f"{second.sha256}.parquet"
    assert objects.sizes(run / "files") == {other: second.size, path: first.size}
    assert objects.sizes(path) == {path: first.size}
    assert objects.read_part(path).equals(TABLE)
    objects.check_part(path)
    assert two_rows(objects.scan([path, path]))
    assert len(objects.local_file(path).read_bytes()) == first.size
    assert objects.at(path).endswith(f"runs/one/files/pairs/{path.name}")


def test_damaged_file_noticed(objects, run):
    path = seal(objects, run)
    spoil(objects, path)
    for look in (lambda: objects.read_part(path), lambda: objects.check_part(path)):
        with pytest.raises(DamagedError, match="was altered"):
            look()


def test_published_folder_is_whole(objects, run):
    path = model(run)
    objects.publish(path)
    objects.publish(path)
    objects.check_folder(path)
    assert contents(objects.local_folder(path)) == FILES
    assert set(objects.sizes(path)) == {path / file for file in (*FILES, MANIFEST)}
    objects.quarantine(path, run / "quarantine")
    assert {place.parts[-1] for place in objects.sizes(run)} >= {MANIFEST, "weights"}
    assert objects.sizes(path) == {}


def test_damaged_folder_noticed(subtests, objects, run):
    for file, message in [
        ("inner/weights", "was altered"),
        (MANIFEST, f"lacks a valid {MANIFEST}"),
        ("inner/more", "was added"),
    ]:
        with subtests.test(case=file):
            path = model(run, weights=file.encode())
            objects.publish(path)
            spoil(objects, path / file)
            with pytest.raises(DamagedError, match=message):
                objects.check_folder(path)


def test_fetched_once_and_verified(url, run, tmp_path):
    path = model(run)
    objects_of(run).publish(path)
    there = tmp_path / "there"
    copy = there / "checkpoints" / path.name
    assert contents(InBucket(url, there).local_folder(copy)) == FILES
    spoil(objects_of(run), path / "inner" / "weights")
    assert contents(InBucket(url, there).local_folder(copy)) == FILES
    (copy / "inner" / "weights").write_bytes(b"spoiled here, too")
    with pytest.raises(DamagedError, match="was altered"):
        InBucket(url, there).local_folder(copy)
    assert list(copy.parent.iterdir()) == []


def test_passing_fault_tried_again(subtests, bad, url, run):
    for fault in ["500", "reset", "cut", "swallow"]:
        with subtests.test(case=fault):
            objects = objects_of(run)
            bad.first(1, fault)
            path = seal(objects, run)
            path.unlink()
            if fault != "swallow":
                bad.first(1, fault, "GET")
            assert two_rows(objects.scan([path, path]))
            objects.remove(path)
            assert objects.sizes(path) == {}


def test_lasting_fault_is_an_error(bad, url, run):
    bad.faults = lambda *_: "500"
    with pytest.raises(OutOfReachError, match=rf"^{url}/files/pairs/.* cannot be reached"):
        seal(objects_of(run), run)
    assert len(bad.seen) >= bucket_module.ATTEMPTS
    bad.seen.clear()
    bad.faults = lambda *_: "403"
    with pytest.raises(BucketError, match="403") as caught:
        seal(objects_of(run), run)
    assert not isinstance(caught.value, OutOfReachError)
    assert len(bad.seen) == 1
    with pytest.raises(BucketError, match="403 Forbidden") as scanned:
        objects_of(run).scan([run / "files" / "x"])
    for error in (caught, scanned):
        assert not any(secret in repr(error.getrepr()) for secret in KEYS.values())


PUBLISHING = """
import sys
from pathlib import Path
from lpfloop.stores.objects import objects_of
run = Path(sys.argv[1])
objects_of(run).publish(next((run / "checkpoints").iterdir()))
"""


def test_killed_publication_of_folder(url, run, tmp_path):
    path = model(run)
    killed = subprocess.run(
        [sys.executable, "-c", PUBLISHING, str(run)],
        env={**os.environ, VARIABLE: "object.put.after#2:kill"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    there = tmp_path / "there"
    with pytest.raises(DamagedError, match="is missing"):
        InBucket(url, there).local_folder(there / "checkpoints" / path.name)
    objects_of(run).publish(path)
    assert contents(InBucket(url, there).local_folder(there / "checkpoints" / path.name)) == FILES
