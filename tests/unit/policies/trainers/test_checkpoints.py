"""A trainer resumes only from a whole checkpoint, and retention keeps the files for a resume."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainings import FILES, write_checkpoint

from lpfloop.policies.trainers.checkpoints import (
    KEPT,
    MANIFEST,
    UnfitCheckpointError,
    discard_unfit,
    is_whole,
    newest_whole,
    retain,
    seal_checkpoint,
)
from lpfloop.stores.durable import sweep
from lpfloop.stores.failpoints import arm, record_names

NEEDED = sorted(FILES.keys() - {"config.json"})


def sealed(parent: Path, step: int, identity: str = "mine") -> Path:
    folder = write_checkpoint(parent, step)
    seal_checkpoint(folder, identity)
    return folder


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_every_byte_counts(tmp_path: Path):
    checkpoint = sealed(tmp_path, 4)
    for path in checkpoint.iterdir():
        data = path.read_bytes()
        for place in {*range(0, len(data), 7), len(data) - 1}:
            for changed in (flip(data, place), data[:place]):
                path.write_bytes(changed)
                same = path.name == MANIFEST and same_json(changed, data)
                assert is_whole(checkpoint, "mine") == same, (path.name, place)
        path.write_bytes(data)
    assert is_whole(checkpoint, "mine")


def same_json(one: bytes, other: bytes) -> bool:
    """Return whether two texts are equal as JSON: a line feed may become a space."""
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def test_an_incomplete_checkpoint_is_unsealed(tmp_path: Path, subtests):
    for step, name in enumerate(NEEDED):
        for harm in (Path.unlink, lambda path: path.write_bytes(b"")):
            checkpoint = write_checkpoint(tmp_path, step)
            harm(checkpoint / name)
            with subtests.test(name), pytest.raises(UnfitCheckpointError, match="lacks"):
                seal_checkpoint(checkpoint, "mine")
            assert not (checkpoint / MANIFEST).exists()


def test_a_checkpoint_is_of_one_job_and_step(tmp_path: Path):
    for step in (4, 8, 12, 100):
        folder = write_checkpoint(tmp_path, step)
        if step != 100:
            seal_checkpoint(folder, "mine" if step < 12 else "another")
    (tmp_path / "checkpoint-last").mkdir()
    (tmp_path / "checkpoint-200").symlink_to(tmp_path / "checkpoint-8")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-8"
    assert newest_whole(tmp_path, "nobody's") is None
    (tmp_path / "checkpoint-8").rename(tmp_path / "checkpoint-16")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-4"


def test_durable_before_its_manifest(tmp_path: Path):
    checkpoint = write_checkpoint(tmp_path, 4)
    with record_names() as reached:
        seal_checkpoint(checkpoint, "mine")
    manifest = reached.index("file.rename.before")
    assert reached[:manifest].count("draft.sync.after") == len(FILES)
    assert reached.index("draft.sync_folder.after") < manifest
    assert reached[manifest:].count("draft.sync_folder.after") == 1


STATES = ("whole", "another's", "unsealed", "damaged")
HISTORIES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from(STATES)),
    unique_by=lambda item: item[0],
    max_size=9,
)


@given(history=HISTORIES)
def test_retention(tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, str]]):
    folder = tmp_path_factory.mktemp("history")
    for step, state in history:
        checkpoint = write_checkpoint(folder, step)
        if state != "unsealed":
            seal_checkpoint(checkpoint, "another" if state == "another's" else "mine")
        if state == "damaged":
            (checkpoint / "optimizer.pt").write_bytes(b"momentS")
    (folder / "checkpoint-none").mkdir()
    before = newest_whole(folder, "mine")
    removed = {int(p.name.split("-")[1]) for p in retain(folder, "mine")}
    left = {p.name for p in folder.iterdir()}

    whole = sorted((step for step, state in history if state == "whole"), reverse=True)
    kept = whole[:KEPT]
    assert newest_whole(folder, "mine") == before
    assert all(is_whole(folder / f"checkpoint-{step}", "mine") for step in kept)
    assert removed == {
        step
        for step, state in history
        if len(kept) == KEPT and step < kept[-1] and state in ("whole", "damaged")
    }
    assert left == {"checkpoint-none"} | {
        f"checkpoint-{step}" for step, _ in history if step not in removed
    }


def test_an_interrupted_removal(tmp_path: Path):
    for step in (4, 8, 12):
        sealed(tmp_path, step)
    with arm({"retired.rename.after": "eio"}), pytest.raises(OSError, match="retired"):
        retain(tmp_path, "mine")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-12"
    sweep(tmp_path)
    assert discard_unfit(tmp_path, "mine") == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-12", "checkpoint-8"]
