"""Published files are whole under their final name, private, and published again without harm."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples import CANDIDATE, PAIR
from lpfloop.stores.durable import (
    TEMPORARY,
    link,
    make_folder,
    publish_file,
    publish_folder,
    quarantine,
    remove,
    sweep,
    write_file,
)
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import (
    MANIFEST,
    DamagedError,
    check_folder,
    check_part,
    read_part,
    size_of,
)
from lpfloop.stores.sealing import write_parts

TABLE = to_table(type(PAIR), [PAIR])
OTHER = to_table(type(CANDIDATE), [CANDIDATE])


def model_folder(folder: Path, weights: bytes = b"\0\1\2") -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "inner" / "weights").write_bytes(weights)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def part_path(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.parquet"


def test_a_part_is_named_by_its_bytes_and_the_same_rows_give_the_same_bytes(tmp_path):
    (first,) = write_parts([(tmp_path, TABLE)])
    again, same = write_parts([(tmp_path, TABLE), (tmp_path, TABLE)])
    assert first == again == same
    path = part_path(tmp_path, first.sha256)
    assert names(tmp_path) == [path.name]
    assert (first.rows, first.size) == (1, path.stat().st_size)
    assert read_part(path, first.sha256).equals(TABLE)
    check_part(path)


def test_parts_of_several_tables_are_sealed_in_the_order_given(tmp_path):
    a, b = make_folder(tmp_path / "a"), make_folder(tmp_path / "b")
    sealed = write_parts([(a, TABLE), (b, OTHER), (a, OTHER)])
    assert [
        read_part(part_path(f, p.sha256), p.sha256) for f, p in zip((a, b, a), sealed, strict=True)
    ] == [
        TABLE,
        OTHER,
        OTHER,
    ]
    assert write_parts([]) == []


def test_many_threads_may_publish_the_same_thing_at_once(tmp_path):
    start = threading.Barrier(8)

    def publish(_: int) -> None:
        start.wait()
        for _ in range(5):
            write_parts([(tmp_path, TABLE)])
            write_file(tmp_path / "file", b"same")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(publish, range(8)))
    assert len(names(tmp_path)) == 2


def test_a_published_folder_is_named_by_its_content(tmp_path):
    checkpoints = make_folder(tmp_path / "checkpoints")
    first = publish_folder(model_folder(tmp_path / "a"), checkpoints)
    again = publish_folder(model_folder(tmp_path / "b"), checkpoints)
    assert first == again
    assert names(tmp_path / "checkpoints" / first) == [
        "MANIFEST.json",
        "config.json",
        "inner",
        "inner/weights",
    ]
    assert names(tmp_path)[1:2] == [f"checkpoints/{first}"]
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    check_folder(checkpoints / first)


def test_what_an_interrupted_publication_left_is_no_part_of_the_next(tmp_path):
    whole = publish_folder(model_folder(tmp_path / "a"), tmp_path)
    remove(tmp_path / whole)
    source = model_folder(tmp_path / "b")
    (source / MANIFEST).write_text("of another content")
    (source / f"{TEMPORARY}1-{MANIFEST}").write_text("half")
    assert publish_folder(source, tmp_path) == whole
    check_folder(tmp_path / whole)


def test_a_folder_that_was_published_and_damaged_since_is_not_taken_for_this_one(tmp_path):
    first = publish_folder(model_folder(tmp_path / "a"), tmp_path)
    (tmp_path / first / "config.json").write_text("{1}")
    with pytest.raises(DamagedError, match="config\\.json"):
        publish_folder(model_folder(tmp_path / "b"), tmp_path)
    assert names(tmp_path / "b") == ["MANIFEST.json", "config.json", "inner", "inner/weights"]


def test_a_folder_with_a_link_is_not_published(tmp_path):
    source = model_folder(tmp_path / "a")
    (source / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="link"):
        publish_folder(source, tmp_path)


def test_a_file_of_another_library_is_moved_to_its_place(tmp_path):
    (tmp_path / "draft").write_bytes(b"data")
    publish_file(tmp_path / "draft", tmp_path / "final")
    assert names(tmp_path) == ["final"]
    assert (tmp_path / "final").read_bytes() == b"data"


def test_sweeping_removes_temporaries_and_nothing_else(tmp_path):
    kept = ["a", "a/file", "a/not.tmp-x", "link"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"1")
    (tmp_path / "a" / "not.tmp-x").write_bytes(b"2")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a" / f"{TEMPORARY}file").write_bytes(b"3")
    (tmp_path / f"{TEMPORARY}folder" / f"{TEMPORARY}inner").mkdir(parents=True)
    (tmp_path / f"{TEMPORARY}folder" / "whole").write_bytes(b"4")
    (tmp_path / f"{TEMPORARY}link").symlink_to("a")
    sweep(tmp_path)
    assert names(tmp_path) == kept


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_damaged_thing_is_put_aside_whole_however_often(tmp_path, kind):
    aside = tmp_path / "run" / "quarantine"
    places = set()
    for _ in range(3):
        path = tmp_path / "thing"
        if kind == "file":
            path.write_bytes(b"damaged")
        else:
            model_folder(path)
        places.add(quarantine(path, aside))
        assert not path.exists()
    assert len(places) == 3
    assert all(place.parent == aside and place.name.endswith("thing") for place in places)
    wanted = [""] if kind == "file" else ["/config.json", "/inner", "/inner/weights", ""]
    assert sorted(names(aside)) == sorted(place.name + end for place in places for end in wanted)


def test_what_is_removed_is_gone(tmp_path):
    write_file(tmp_path / "file", b"")
    identity = publish_folder(model_folder(tmp_path / "a"), tmp_path)
    remove(tmp_path / "file")
    remove(tmp_path / identity)
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        remove(tmp_path / "file")


def test_a_link_is_a_second_place_of_the_same_thing(tmp_path):
    ours, theirs = make_folder(tmp_path / "ours"), make_folder(tmp_path / "theirs")
    (part,) = write_parts([(ours, TABLE)])
    identity = publish_folder(model_folder(tmp_path / "a"), ours)
    for name in (f"{part.sha256}.parquet", identity):
        for _ in range(2):
            link(ours / name, theirs / name)
    assert names(ours) == names(theirs)
    check_part(part_path(theirs, part.sha256))
    check_folder(theirs / identity)
    assert (ours / identity / "config.json").samefile(theirs / identity / "config.json")
    remove(ours / identity)
    check_folder(theirs / identity)


def test_a_damaged_folder_is_not_linked(tmp_path):
    ours, theirs = make_folder(tmp_path / "ours"), make_folder(tmp_path / "theirs")
    identity = publish_folder(model_folder(tmp_path / "a"), ours)
    (ours / identity / "config.json").write_text("{1}")
    with pytest.raises(DamagedError):
        link(ours / identity, theirs / identity)
    assert names(theirs) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        run = make_folder(tmp_path / "lake" / "runs" / "a")
        write_parts([(make_folder(run / "parts"), TABLE)])
        write_file(run / "file", b"")
        (run / "draft").write_bytes(b"")
        publish_file(run / "draft", run / "journal")
        publish_folder(model_folder(run / "work"), make_folder(run / "checkpoints"))
        (run / "damaged").write_bytes(b"")
        quarantine(run / "file", run / "quarantine")
        remove(run / "damaged")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lake").rglob("*")}
    assert len(modes) >= 12
    assert {
        path for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)
    } == set()


def test_a_size_is_that_of_all_files_and_one_that_vanishes_counts_nothing(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    assert (size_of(tmp_path), size_of(tmp_path / "b"), size_of(tmp_path / "none")) == (5, 2, 0)
    found = list(os.walk(tmp_path))
    (tmp_path / "b").unlink()
    monkeypatch.setattr(os, "walk", lambda _: found)
    assert size_of(tmp_path) == 3
