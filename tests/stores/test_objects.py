"""Sealed files lie in a folder or in a bucket alike: whole under their names, or not there."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from s3 import KEYS, BadWay, bad_way

from examples import CANDIDATE, PAIR
from lpfloop.stores import bucket as bucket_module
from lpfloop.stores import durable
from lpfloop.stores.address import ADDRESS
from lpfloop.stores.bucket import Bucket, BucketError, OutOfReachError
from lpfloop.stores.failpoints import VARIABLE, armed
from lpfloop.stores.in_bucket import InBucket
from lpfloop.stores.objects import Objects, OnDisk, objects_of
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST, DamagedError

TABLE = to_table(type(PAIR), [PAIR])
OTHER = to_table(type(CANDIDATE), [CANDIDATE])
WEIGHTS = b"\0\1\2"
FILES = {"config.json": b"{}", "inner/weights": WEIGHTS}
HELD_S = 180
"""How long a child may take until it sends something."""


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
def bad(s3_server, bucket, monkeypatch, quick) -> Iterator[BadWay]:
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        yield way


def model(run: Path, weights: bytes = WEIGHTS) -> Path:
    """Publish a model in the run's folder, as a trainer's result is; return where it is."""
    draft = run / "work" / "model"
    (draft / "inner").mkdir(parents=True)
    (draft / "config.json").write_bytes(FILES["config.json"])
    (draft / "inner" / "weights").write_bytes(weights)
    checkpoints = durable.make_folder(run / "checkpoints")
    return checkpoints / durable.publish_folder(draft, checkpoints)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def part(run: Path, table: str, sha256: str) -> Path:
    return run / "parts" / table / f"{sha256}.parquet"


def seal(objects: Objects, run: Path) -> Path:
    folder = durable.make_folder(run / "parts" / "pairs")
    (sealed,) = objects.write_parts([(folder, TABLE)])
    return part(run, "pairs", sealed.sha256)


def spoil(objects: Objects, path: Path, data: bytes = b"spoiled") -> None:
    if isinstance(objects, OnDisk):
        path.write_bytes(data)
    else:
        objects._bucket.put(objects._name(path), data)


def two_rows(frame: pl.LazyFrame) -> bool:
    return frame.collect().equals(pl.concat([pl.DataFrame(TABLE)] * 2))


# what both do alike


def test_parts_are_named_by_their_bytes_and_hold_their_rows(objects, run):
    pairs, candidates = run / "parts" / "pairs", run / "parts" / "candidates"
    for folder in (pairs, candidates):
        durable.make_folder(folder)
    parts = [(pairs, TABLE), (candidates, OTHER), (pairs, TABLE)]
    first, second, again = objects.write_parts(parts)
    assert (first, first.rows) == (again, 1)
    path, other = part(run, "pairs", first.sha256), part(run, "candidates", second.sha256)
    assert objects.sizes(run / "parts") == {other: second.size, path: first.size}
    assert objects.sizes(path) == {path: first.size}
    assert objects.read_part(path, first.sha256).equals(TABLE)
    objects.check_part(path)
    assert two_rows(objects.scan([path, path]))
    assert len(objects.local_file(path).read_bytes()) == first.size
    assert objects.at(path).endswith(f"runs/one/parts/pairs/{path.name}")


def test_a_pack_is_a_sealed_table_too(objects, run):
    pack = objects.write_pack(run / "packs" / "pairs", TABLE)
    path = run / "packs" / "pairs" / f"{pack.sha256}.parquet"
    assert objects.read_part(path, pack.sha256).equals(TABLE)
    objects.discard([path])
    assert objects.sizes(run) == {}


def test_what_is_not_there_is_missing(objects, run):
    part_of_none, folder = run / "parts" / "pairs" / "none.parquet", run / "checkpoints" / "none"
    for look in (
        lambda: objects.read_part(part_of_none, "none"),
        lambda: objects.check_part(part_of_none),
        lambda: objects.local_file(part_of_none),
        lambda: objects.local_folder(folder),
        lambda: objects.check_folder(folder),
    ):
        with pytest.raises(DamagedError, match="is missing"):
            look()
    objects.remove(folder)
    objects.quarantine(folder, run / "quarantine")
    assert objects.sizes(run) == {}


def test_a_damaged_part_is_told_before_it_is_used(objects, run):
    path = seal(objects, run)
    spoil(objects, path)
    for look in (lambda: objects.read_part(path, path.stem), lambda: objects.check_part(path)):
        with pytest.raises(DamagedError, match="was altered"):
            look()


def test_a_published_folder_is_whole(objects, run):
    path = model(run)
    objects.publish(path)
    objects.publish(path)
    objects.check_folder(path)
    assert contents(objects.local_folder(path)) == FILES
    assert set(objects.sizes(path)) == {path / file for file in (*FILES, MANIFEST)}


def test_a_file_is_published_beside_folders(objects, run):
    path = durable.make_folder(run / "canaries" / "m") / "canary.json"
    durable.write_file(path, b"[]")
    objects.publish(path)
    assert objects.sizes(run / "canaries") == {path: 2}
    assert objects.local_file(path).read_bytes() == b"[]"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("inner/weights", "was altered"),
        (MANIFEST, f"no valid {MANIFEST}"),
        ("inner/more", "was added"),
    ],
)
def test_a_damaged_folder_is_told(objects, run, file, message):
    path = model(run)
    objects.publish(path)
    spoil(objects, path / file)
    with pytest.raises(DamagedError, match=message):
        objects.check_folder(path)


def test_what_is_removed_is_gone(objects, run):
    folder, file = model(run), seal(objects, run)
    objects.publish(folder)
    objects.remove(folder)
    objects.remove(file)
    assert objects.sizes(run) == {}
    assert not folder.exists()


def test_what_is_damaged_is_put_aside(objects, run):
    folder, file = model(run), seal(objects, run)
    objects.publish(folder)
    before = objects.sizes(run)
    objects.quarantine(folder, run / "quarantine")
    objects.quarantine(file, run / "quarantine")
    aside = objects.sizes(run)
    assert all(path.is_relative_to(run / "quarantine") for path in aside)
    assert sorted(aside.values()) == sorted(before.values())


# a bucket's own


def test_another_machine_fetches_a_folder_once_and_verifies_it(url, run, tmp_path):
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


def test_a_local_copy_that_is_damaged_is_fetched_again(url, run):
    path = model(run)
    objects_of(run).publish(path)
    (path / "inner" / "weights").write_bytes(b"spoiled")
    assert contents(objects_of(run).local_folder(path)) == FILES


def test_a_filter_does_not_fetch_whole_files(bad, url, run):
    table = pa.table({"prompt_id": [f"p{n:07}" for n in range(1 << 20)], "a": range(1 << 20)})
    pack = objects_of(run).write_pack(run / "packs" / "x", table)
    bad.sent = 0
    path = run / "packs" / "x" / f"{pack.sha256}.parquet"
    assert objects_of(run).scan([path]).filter(pl.col("a") == 77).collect()["a"].to_list() == [77]
    assert 0 < bad.sent < pack.size / 2


def test_names_that_begin_alike_are_not_mixed_up(url, tmp_path):
    for end in ("a", "ab", "a/b", "a.c"):
        Bucket(url).put(f"checkpoints/{end}", b"x")
    Bucket(f"{url}-other").put("checkpoints/a", b"x")
    assert list(Bucket(url).sizes("checkpoints/a")) == ["checkpoints/a", "checkpoints/a/b"]
    assert len(Bucket(url).sizes("")) == 4


# a bad network


@pytest.mark.parametrize("fault", ["500", "503", "reset", "cut", "slow", "swallow"])
def test_what_passes_is_tried_again(bad, url, run, fault):
    objects = objects_of(run)
    bad.first(1, fault)
    path = seal(objects, run)
    bad.first(1, fault if fault != "swallow" else "500", "GET")
    assert two_rows(objects.scan([path, path]))
    bad.first(1, fault if fault != "swallow" else "500", "GET")
    assert objects.read_part(path, path.stem).equals(TABLE)


@pytest.mark.parametrize("fault", ["500", "reset"])
def test_what_lasts_is_said_in_one_sentence_and_can_be_done_later(bad, url, run, fault):
    objects = objects_of(run)
    bad.faults = lambda *_: fault
    with pytest.raises(OutOfReachError, match=rf"^{url}/parts/pairs/.* cannot be reached: AWS"):
        seal(objects, run)
    assert len(bad.seen) >= bucket_module.ATTEMPTS
    bad.faults = lambda *_: None
    assert two_rows(objects.scan([seal(objects, run)] * 2))


def test_a_lie_about_what_was_stored_is_found(bad, url, run):
    bad.faults = lambda method, _: "swallow" if method == "PUT" else None
    with pytest.raises(OutOfReachError, match=r"bytes, though \d+ were sent"):
        seal(objects_of(run), run)


def test_a_refusal_is_not_tried_again(bad, url, run):
    bad.faults = lambda *_: "403"
    with pytest.raises(BucketError, match="cannot be used: AWS Error ACCESS_DENIED") as caught:
        seal(objects_of(run), run)
    assert not isinstance(caught.value, OutOfReachError)
    assert len(bad.seen) == 1


def test_a_bucket_that_is_not_there_is_told(bucket, run):
    with pytest.raises(BucketError, match="NO_SUCH_BUCKET"):
        seal(InBucket(f"s3://{bucket}-none/x", run), run)


def test_an_error_of_this_machine_stays_one(url, run):
    path = model(run)
    with (
        armed({"object.put.before": "enospc"}),
        pytest.raises(OSError, match="failpoint") as caught,
    ):
        objects_of(run).publish(path)
    assert caught.value.errno == errno.ENOSPC


def test_what_is_said_holds_no_secret(bad, url, run):
    bad.faults = lambda *_: "403"
    path = run / "parts" / "x"
    with pytest.raises(BucketError) as said:
        objects_of(run).check_part(path)
    with pytest.raises(OSError, match="403 Forbidden") as scanned:
        objects_of(run).scan([path]).collect()
    for error in (said, scanned):
        assert not any(secret in repr(error.getrepr()) for secret in KEYS.values())


# killed


CODE = """
import sys
from pathlib import Path
from lpfloop.stores.objects import objects_of
run = Path(sys.argv[1])
objects_of(run).{}
"""
SEAL = """write_parts([(run / "parts" / "x", __import__("pyarrow").table({"a": [1]}))])"""
PUBLISH = "publish(next((run / 'checkpoints').iterdir()))"
REMOVE = "remove(next((run / 'checkpoints').iterdir()))"


def child(code: str, run: Path, failpoint: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CODE.format(code), str(run)],
        env={**os.environ, VARIABLE: failpoint},
    )


def fetched(url: str, folder: Path, path: Path) -> Path:
    """Return a published folder as another machine gets it."""
    return InBucket(url, folder).local_folder(folder / "checkpoints" / path.name)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_folder_whose_publication_is_killed_is_whole_or_invisible(url, run, tmp_path, nth, side):
    path = model(run)
    killed = child(PUBLISH, run, f"object.put.{side}#{nth}:kill")
    assert killed.wait() == -signal.SIGKILL
    if (nth, side) == (3, "after"):
        assert contents(fetched(url, tmp_path / "there", path)) == FILES
    else:
        with pytest.raises(DamagedError, match="is missing"):
            fetched(url, tmp_path / "there", path)
    objects_of(run).publish(path)
    assert contents(fetched(url, tmp_path / "there", path)) == FILES


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_part_whose_publication_is_killed_is_whole_or_invisible(url, run, side):
    killed = child(SEAL, run, f"object.put.{side}:kill")
    assert killed.wait() == -signal.SIGKILL
    objects = objects_of(run)
    assert len(objects.sizes(run)) == (side == "after")
    assert child(SEAL, run).wait() == 0
    (path,) = objects.sizes(run)
    assert objects.read_part(path, path.stem)["a"].to_pylist() == [1]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_removal_that_is_killed_leaves_nothing_that_looks_whole(url, run, tmp_path, nth):
    path = model(run)
    objects_of(run).publish(path)
    killed = child(REMOVE, run, f"object.delete.after#{nth}:kill")
    assert killed.wait() == -signal.SIGKILL
    with pytest.raises(DamagedError, match="is missing"):
        fetched(url, tmp_path / "there", path)
    objects_of(run).remove(path)
    assert objects_of(run).sizes(run) == {}


def test_an_upload_killed_in_the_middle_of_its_bytes_is_invisible(bad, url, run):
    bad.faults = lambda method, _: "hold" if method == "PUT" else None
    uploading = child(SEAL, run)
    assert bad.held.wait(HELD_S)
    uploading.kill()
    uploading.wait()
    assert objects_of(run).sizes(run) == {}


def test_an_upload_in_pieces_killed_between_them_is_invisible(bad, url, run, tmp_path):
    path = model(run, os.urandom(1 << 20) * 24)
    bad.faults = lambda _, place: "hold" if "partNumber=2" in place else None
    uploading = child(PUBLISH, run)
    assert bad.held.wait(HELD_S)
    uploading.kill()
    uploading.wait()
    bad.faults = lambda *_: None
    assert not any(file.name in ("weights", MANIFEST) for file in objects_of(run).sizes(path))
    objects_of(run).publish(path)
    assert fetched(url, tmp_path / "there", path).name == path.name
