"""A checkpoint is resumed from only while it is whole, and retention leaves what a resume needs."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import FILES, dpo_job, make_world, write_checkpoint

from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.trainer_checkpoints import (
    KEPT,
    MANIFEST,
    UnfitCheckpointError,
    checkpoint_step,
    discard_unfit,
    is_whole,
    newest_first,
    newest_whole,
    retain,
    seal_checkpoint,
)
from lpfloop.policies.trainers.trainer_job import job_identity
from lpfloop.stores.durable import sweep
from lpfloop.stores.failpoints import armed, observed

NEEDED = sorted(FILES.keys() - {"config.json"})


def sealed(parent: Path, step: int, identity: str = "mine") -> Path:
    folder = write_checkpoint(parent, step)
    seal_checkpoint(folder, identity)
    return folder


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda p: p.unlink(),
    "emptied": lambda p: p.write_bytes(b""),
    "halved": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "one byte shorter": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "one byte longer": lambda p: p.write_bytes(p.read_bytes() + b"\0"),
    "first byte flipped": lambda p: p.write_bytes(flip(p.read_bytes(), 0)),
    "middle byte flipped": lambda p: p.write_bytes(flip(p.read_bytes(), p.stat().st_size // 2)),
    "last byte flipped": lambda p: p.write_bytes(flip(p.read_bytes(), p.stat().st_size - 1)),
}


def damaged_copies(whole: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield a copy of `whole` for each damage to each of its files, one at a time."""
    for name in sorted(p.relative_to(whole) for p in whole.rglob("*") if p.is_file()):
        for damage, harm in DAMAGES.items():
            copy = scratch / whole.name
            shutil.copytree(whole, copy)
            harm(copy / name)
            yield f"{name} {damage}", copy
            shutil.rmtree(copy)


@pytest.mark.model
def test_each_damage_to_each_file_of_a_real_checkpoint_leads_to_the_older_one(tmp_path: Path):
    job = dpo_job(make_world(tmp_path), tmp_path / "work")
    train(job, log=tmp_path / "train.log", checkpoint_minutes=0)
    identity = job_identity((job.output / "job.json").read_bytes())
    checkpoints = job.output / "checkpoints"
    newest, older = newest_first(checkpoints)
    assert newest_whole(checkpoints, identity) == newest
    assert json.loads((newest / MANIFEST).read_text())["step"] == checkpoint_step(newest)
    assert {*NEEDED, MANIFEST} <= {p.name for p in newest.iterdir()}
    shutil.move(newest, tmp_path / newest.name)
    cases = 0
    for case, _ in damaged_copies(tmp_path / newest.name, checkpoints):
        assert newest_whole(checkpoints, identity) == older, case
        cases += 1
    assert cases >= 8 * len(DAMAGES)
    assert is_whole(tmp_path / newest.name, identity)


def test_every_byte_of_a_checkpoint_counts(tmp_path: Path):
    checkpoint = sealed(tmp_path, 4)
    for path in checkpoint.iterdir():
        data = path.read_bytes()
        for place in range(len(data)):
            for changed in (flip(data, place), data[:place]):
                path.write_bytes(changed)
                same = path.name == MANIFEST and same_json(changed, data)
                assert is_whole(checkpoint, "mine") == same, (path.name, place)
        path.write_bytes(data)
    assert is_whole(checkpoint, "mine")


def same_json(one: bytes, other: bytes) -> bool:
    """Whether two texts say the same: a line feed that became a space makes no other manifest."""
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("harm", ["deleted", "emptied"])
def test_what_a_resume_reads_must_be_there_before_a_checkpoint_is_sealed(
    tmp_path: Path, name: str, harm: str
):
    checkpoint = write_checkpoint(tmp_path, 4)
    DAMAGES[harm](checkpoint / name)
    with pytest.raises(UnfitCheckpointError, match="cannot be resumed from: it lacks "):
        seal_checkpoint(checkpoint, "mine")
    assert not (checkpoint / MANIFEST).exists()


def test_every_process_keeps_its_random_numbers(tmp_path: Path):
    checkpoint = write_checkpoint(tmp_path, 4)
    (checkpoint / "rng_state.pth").rename(checkpoint / "rng_state_0.pth")
    with pytest.raises(UnfitCheckpointError, match=r"it lacks rng_state_1\.pth"):
        seal_checkpoint(checkpoint, "mine", processes=2)
    (checkpoint / "rng_state_1.pth").write_bytes(b"random, too")
    seal_checkpoint(checkpoint, "mine", processes=2)
    assert is_whole(checkpoint, "mine")


@pytest.mark.parametrize(
    "shards",
    [
        ("global_step4/mp_rank_00_model_states.pt", "global_step4/zero_pp_rank_0_optim_states.pt"),
        ("pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp"),
    ],
)
def test_sharded_states_are_as_good_and_each_counts(tmp_path: Path, shards: tuple[str, str]):
    plain = ("model.safetensors", "optimizer.pt")
    files = {name: data for name, data in FILES.items() if name not in plain}
    checkpoint = write_checkpoint(tmp_path, 4, files | dict.fromkeys(shards, b"shard"))
    seal_checkpoint(checkpoint, "mine")
    (checkpoint / shards[1]).write_bytes(b"shart")
    assert not is_whole(checkpoint, "mine")


def test_a_checkpoint_is_of_one_job_and_one_step(tmp_path: Path):
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


def test_what_was_planted_in_a_checkpoint_unmakes_it(tmp_path: Path):
    checkpoint = sealed(tmp_path, 4)
    (checkpoint / "inner").mkdir()
    (checkpoint / "inner" / MANIFEST).write_text("{}")
    assert not is_whole(checkpoint, "mine")


def test_a_checkpoint_is_durable_before_its_manifest_is_there(tmp_path: Path):
    checkpoint = write_checkpoint(tmp_path, 4)
    with observed() as reached:
        seal_checkpoint(checkpoint, "mine")
    manifest = reached.index("file.rename.before")
    assert reached[:manifest].count("draft.sync.after") == len(FILES)
    assert reached.index("draft.sync_folder.after") < manifest
    assert reached[manifest:].count("draft.sync_folder.after") == 1


@pytest.mark.parametrize(
    "place", ["draft.sync.before#3", "draft.sync_folder.before#1", "file.rename.before"]
)
def test_a_checkpoint_that_the_disk_did_not_take_is_not_sealed(tmp_path: Path, place: str):
    checkpoint = write_checkpoint(tmp_path, 4)
    with armed({place: "enospc"}), pytest.raises(OSError, match="No space") as error:
        seal_checkpoint(checkpoint, "mine")
    assert error.value.errno == errno.ENOSPC
    assert not is_whole(checkpoint, "mine")


def test_only_what_can_not_be_used_is_discarded(tmp_path: Path):
    good = [sealed(tmp_path, 4), sealed(tmp_path, 8)]
    bad = [write_checkpoint(tmp_path, 12), sealed(tmp_path, 16, "another")]
    sealed(tmp_path, 20)
    bad.append(tmp_path / "checkpoint-20")
    (bad[-1] / "optimizer.pt").unlink()
    (tmp_path / "README.md").write_text("not a checkpoint")
    assert sorted(discard_unfit(tmp_path, "mine")) == sorted(bad)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "README.md", *(p.name for p in good)
    ]  # fmt: skip


@dataclass(frozen=True)
class Item:
    """A checkpoint in a random history: at which step, whose, and what happened to it."""

    step: int
    state: str


STATES = ("whole", "another's", "unsealed", "damaged")
HISTORIES = st.lists(
    st.builds(Item, st.integers(1, 40), st.sampled_from(STATES)),
    unique_by=lambda item: item.step,
    max_size=9,
)


@settings(max_examples=150)
@given(history=HISTORIES)
def test_retention_keeps_the_newest_whole_ones_and_what_is_not_its_own(
    tmp_path_factory: pytest.TempPathFactory, history: list[Item]
):
    folder = tmp_path_factory.mktemp("history")
    for item in history:
        checkpoint = write_checkpoint(folder, item.step)
        if item.state != "unsealed":
            seal_checkpoint(checkpoint, "another" if item.state == "another's" else "mine")
        if item.state == "damaged":
            (checkpoint / "optimizer.pt").write_bytes(b"momentS")
    (folder / "checkpoint-none").mkdir()
    before = newest_whole(folder, "mine")
    removed = {int(p.name.split("-")[1]) for p in retain(folder, "mine")}
    left = {p.name for p in folder.iterdir()}

    whole = sorted((i.step for i in history if i.state == "whole"), reverse=True)
    kept = whole[:KEPT]
    assert newest_whole(folder, "mine") == before
    assert all(is_whole(folder / f"checkpoint-{step}", "mine") for step in kept)
    assert removed == {
        i.step
        for i in history
        if len(kept) == KEPT and i.step < kept[-1] and i.state in ("whole", "damaged")
    }
    assert left == {"checkpoint-none"} | {
        f"checkpoint-{i.step}" for i in history if i.step not in removed
    }


def test_nothing_goes_while_the_new_checkpoint_is_not_whole(tmp_path: Path):
    old = [sealed(tmp_path, step) for step in (4, 8)]
    new = sealed(tmp_path, 12)
    (new / "scheduler.pt").write_bytes(b"")
    assert retain(tmp_path, "mine") == []
    assert all(is_whole(p, "mine") for p in old)
    assert newest_whole(tmp_path, "mine") == old[-1]


def test_an_interrupted_removal_leaves_no_half_checkpoint(tmp_path: Path):
    for step in (4, 8, 12):
        sealed(tmp_path, step)
    with armed({"retired.rename.after": "eio"}), pytest.raises(OSError, match="retired"):
        retain(tmp_path, "mine")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-12"
    sweep(tmp_path)
    assert discard_unfit(tmp_path, "mine") == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-12", "checkpoint-8"]
