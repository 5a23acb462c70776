"""A disk that is full at any moment pauses the loop; with room it goes on, and nothing differs."""

import errno
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from crash_scenarios import truncate
from crashing import (
    RUN,
    Attempt,
    Whole,
    calls,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)
from full_disks import stopped_while_full
from waiting import wait_until

from lpfloop.configs.schema import RunConfig
from lpfloop.stores import committer
from lpfloop.stores.failpoints import FAILPOINTS, armed
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.crash

STORES = ("part.", "file.", "manifest.", "published.", "folder.")
COMMITS = ("journal.plan.", "journal.commit.", "journal.add_seconds.", "journal.reserve.")
COMMITS_BEFORE = ("journal.plan.before", "journal.reserve.before")
PAUSING = {
    purpose: [name for name in FAILPOINTS if name.startswith(purpose)]
    for purpose in (*STORES, *COMMITS)
}
STARTING = [
    name
    for name in FAILPOINTS
    if name.startswith(("journal.create", "journal.epoch", "journal.record", "draft."))
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for room again at once."""
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
    """A disk that is full for some writes, from the first stage on: three, and later one more."""

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


@pytest.mark.parametrize("purpose", PAUSING)
def test_a_full_disk_pauses_the_loop_until_there_is_room(config, straight, lake, caplog, purpose):
    disks = {name: Full() for name in PAUSING[purpose]}

    def begin(name: str) -> None:
        for disk in disks.values():
            disk.begin(name)

    points = {name: disk.write for name, disk in disks.items()}
    with caplog.at_level(logging.WARNING), armed({"stage.begin": begin, **points}):
        loop(lake, config=config)
    assert [name for name, disk in disks.items() if not disk.failed] == []
    assert "the disk is full" in caplog.text
    assert "there is room again" in caplog.text
    assert whole(lake) == straight


@pytest.mark.parametrize("name", STARTING)
def test_a_run_that_finds_no_room_to_begin_says_so_and_begins_later(config, straight, lake, name):
    with armed({name: "enospc"}), pytest.raises(OSError, match="No space left") as told:
        loop(lake, config=config)
    assert told.value.errno == errno.ENOSPC
    loop(lake, config=config)
    assert whole(lake) == straight


def test_rows_found_damaged_on_a_full_disk_are_put_aside_when_there_is_room(
    config, straight, lake, caplog
):
    loop(lake, config=config)
    truncate(next((run_folder(lake, RUN) / "parts" / "checkpoints").iterdir()))
    disk = Full()
    places = ("quarantine.rename.before", "journal.lose.before", "journal.record.after")
    points = dict.fromkeys(places, disk.write)
    with caplog.at_level(logging.WARNING), armed({"stage.begin": disk.begin, **points}):
        loop(lake, config=config)
    assert disk.failed >= 3
    assert "there is room again" in caplog.text
    assert whole(lake) == straight


def test_a_journal_that_can_not_grow_pauses_the_loop(config, straight, lake, caplog, monkeypatch):
    journals = list[Journal]()
    opening = Journal.__init__

    def opened(self: Journal, folder: Path) -> None:
        opening(self, folder)
        journals.append(self)

    def fill(_: str) -> None:
        ((pages,),) = journals[-1]._query("PRAGMA page_count")
        journals[-1]._query(f"PRAGMA max_page_count = {pages}")

    def make_room() -> None:
        wait_until(lambda: "the disk is full" in caplog.text)
        journals[-1]._query("PRAGMA max_page_count = 1000000")

    monkeypatch.setattr(Journal, "__init__", opened)
    friend = threading.Thread(target=make_room)
    friend.start()
    with caplog.at_level(logging.WARNING), armed({"stage.planned#3": fill}):
        loop(lake, config=config)
    friend.join()
    assert "the disk is full (database or disk is full)" in caplog.text
    assert "there is room again" in caplog.text
    assert whole(lake) == straight


@pytest.mark.parametrize(
    "name", [None, "lake.commit.before", "journal.plan.before", "journal.reserve.before"]
)
def test_a_run_that_waits_for_room_can_be_stopped_and_resumed(config, straight, lake, name):
    soon = config.model_copy(update={"drain_s": 0.1})
    work = partial(stopped_while_full, config=soon, limited=name is None)
    Attempt(lake=lake, work=work, points={} if name is None else {name: "enospc"}).finish()
    assert (lake / "ended").read_text() == "stopped"
    asked = calls(lake)
    loop(lake, config=config)
    again = [line for line, times in calls(lake).items() if times > 1]
    assert set(again) <= set(asked)
    assert whole(lake) == straight
