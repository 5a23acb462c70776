"""A full disk pauses the loop at any moment; with free space it continues to the same result."""

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from failpoint_names import FAILPOINTS
from world import Whole, loop, quick_folder, small_config, stand_ins, whole, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.stores import committer
from lpfloop.stores.failpoints import arm

STORES = ("part.", "stage_file.", "file.", "manifest.", "published.", "folder.")
COMMITS = ("journal.plan.", "journal.commit.", "journal.add_seconds.", "journal.reserve.")
PAUSING = [name for name in FAILPOINTS if name.startswith((*STORES, *COMMITS))]
STARTING = ("journal.create.before", "draft.rename.before")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loop check for free space at once."""
    monkeypatch.setattr(committer, "RETRY_S", 0.001)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    prompts = write_prompts(tmp_path_factory.mktemp("prompts"))
    return small_config(prompts, "budget.judge_calls=100000")


@pytest.fixture(scope="module")
def straight(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    with quick_folder(tmp_path_factory.getbasetemp()) as lake, stand_ins(lake):
        loop(lake, config=config)
        return whole(lake)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


class Full:
    """A disk that is full for some writes, from the first stage on: three, later one more."""

    def __init__(self) -> None:
        self.outcomes = iter((False, False, False, True, False))
        self.failed = 0
        self.begun = False

    def begin(self, name: str) -> None:
        self.begun = True

    def write(self, name: str) -> None:
        if self.begun and not next(self.outcomes, True):
            self.failed += 1
            raise OSError(errno.ENOSPC, "No space left on device")


def test_full_disk_pauses_the_loop(config, straight, lake, caplog):
    """Each kind of write fails three times, and later once more."""
    disks = {name: Full() for name in PAUSING}

    def begin(name: str) -> None:
        for disk in disks.values():
            disk.begin(name)

    points = {name: disk.write for name, disk in disks.items()}
    with caplog.at_level(logging.WARNING), arm({"stage.begin": begin, **points}):
        loop(lake, config=config)
    assert [name for name, disk in disks.items() if not disk.failed] == []
    assert whole(lake) == straight


def test_no_room_to_begin(config, straight, lake, subtests):
    for name in STARTING:
        place = lake / name
        place.mkdir()
        with subtests.test(name=name):
            with arm({name: "enospc"}), pytest.raises(OSError, match="No space left") as refused:
                loop(place, config=config)
            assert refused.value.errno == errno.ENOSPC
            loop(place, config=config)
            assert whole(place) == straight
