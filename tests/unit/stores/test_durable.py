"""Published files are whole under their final name, private, and can be published twice."""

import os
import stat
from pathlib import Path

import pytest
from rows import PAIR

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
from lpfloop.stores.objects import Objects
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import DamagedError, check_folder
from lpfloop.stores.verified import encode, write_rows

TABLE = to_table(type(PAIR), [PAIR])


def model_folder(folder: Path, weights: bytes = b"\0\1\2") -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "inner" / "weights").write_bytes(weights)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_part_named_by_bytes(tmp_path):
    path, rows = write_rows(tmp_path, TABLE), encode(TABLE)
    assert write_rows(tmp_path, TABLE) == path == tmp_path / f"{rows.sha256}.parquet"
    assert names(tmp_path) == [path.name]
    assert (rows.rows, rows.size) == (1, path.stat().st_size)
    assert Objects().read_part(path).equals(TABLE)
    Objects().check_part(path)


def test_damaged_published_folder(tmp_path):
    first = publish_folder(model_folder(tmp_path / "a"), tmp_path)
    (tmp_path / first / "config.json").write_text("{1}")
    with pytest.raises(DamagedError, match="config\\.json"):
        publish_folder(model_folder(tmp_path / "b"), tmp_path)
    assert names(tmp_path / "b") == ["MANIFEST.json", "config.json", "inner", "inner/weights"]


def test_sweep_removes_temporaries(tmp_path):
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


def test_link_is_second_place(tmp_path):
    ours, theirs = make_folder(tmp_path / "ours"), make_folder(tmp_path / "theirs")
    part = write_rows(ours, TABLE).name
    identity = publish_folder(model_folder(tmp_path / "a"), ours)
    for name in (part, identity):
        for _ in range(2):
            link(ours / name, theirs / name)
    assert names(ours) == names(theirs)
    Objects().check_part(theirs / part)
    check_folder(theirs / identity)
    assert (ours / identity / "config.json").samefile(theirs / identity / "config.json")
    remove(ours / identity)
    check_folder(theirs / identity)


def test_owner_only_whatever_umask(tmp_path):
    before = os.umask(0o000)
    try:
        run = make_folder(tmp_path / "lake" / "runs" / "a")
        write_rows(make_folder(run / "parts"), TABLE)
        write_file(run / "file", b"")
        (run / "draft").write_bytes(b"")
        publish_file(run / "draft", run / "journal")
        publish_folder(model_folder(run / "work"), make_folder(run / "checkpoints"))
        quarantine(run / "file", run / "quarantine")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lake").rglob("*")}
    assert len(modes) >= 12
    assert {p for p, mode in modes.items() if mode != (0o700 if p.is_dir() else 0o600)} == set()
