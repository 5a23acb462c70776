"""A run's journal proves every byte of itself, is backed up, and is mended from its backups."""

import hashlib
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_scenarios import flip, truncate
from crashing import (
    RUN,
    copied,
    finished_and_killed,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)
from typer.testing import CliRunner

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_backups import KEPT, mend
from lpfloop.stores.journal_held import BACKUPS, LOG_BYTES
from lpfloop.stores.journal_log import HEADER, Log
from lpfloop.stores.journal_opening import check_journal
from lpfloop.stores.journal_pages import JOURNAL, PAGES, DamagedJournalError
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

LOG = f"{JOURNAL}-wal"
READING = (["status", RUN], ["lake", "digest", RUN], ["lake", "verify", RUN], ["candidates", RUN])
READING += (
    ["sql", "select count(*) from candidates"],
    ["export", RUN, "pairs", "--as", "trl-dpo"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """A lake with a run of two iterations, one with a run killed in its second, and the digest."""

    finished: Path
    killed: Path
    config: RunConfig
    digest: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        config = small_config(write_prompts(folder))
        finished, killed = finished_and_killed(folder, config)
        yield Runs(
            finished=finished,
            killed=killed,
            config=config,
            digest=run_digest(run_folder(finished, RUN)),
        )


@pytest.fixture
def finished(runs: Runs, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield run_folder(copied(runs.finished, folder / "lake"), RUN)


@pytest.fixture
def killed(runs: Runs, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield run_folder(copied(runs.killed, folder / "lake"), RUN)


def unnoticed(folder: Path, name: str, flips: int, seed: int, before: int | None = None) -> int:
    """Flip single bits of a file at random, one at a time; return after how many it reads well."""
    path, generator = folder / name, random.Random(seed)
    data = bytearray(path.read_bytes())
    silent = 0
    for _ in range(flips):
        place, bit = generator.randrange(before or len(data)), generator.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        with suppress(DamagedJournalError):
            Reader(folder).close()
            silent += 1
        data[place] ^= 1 << bit
    path.write_bytes(data)
    Reader(folder).close()
    return silent


@pytest.mark.parametrize(
    "flips", [pytest.param(150, id="150"), pytest.param(1000, id="1000", marks=pytest.mark.slow)]
)
def test_no_flipped_bit_of_a_journal_is_silent(finished, killed, flips):
    assert unnoticed(finished, JOURNAL, flips, seed=1) == 0
    assert unnoticed(finished, PAGES, flips // 10, seed=2) == 0
    # The last transaction could as well have ended with the kill.
    commits = [start for start in frames(killed) if committing(killed, start)]
    assert unnoticed(killed, LOG, flips, seed=3, before=commits[-3]) == 0


def frames(folder: Path) -> range:
    """Return where the frames of a log begin."""
    log = (folder / LOG).read_bytes()
    return range(HEADER, len(log), 24 + int.from_bytes(log[8:12]))


def committing(folder: Path, start: int) -> bool:
    return any((folder / LOG).read_bytes()[start + 4 : start + 8])


def test_a_page_that_lies_in_the_log_alone_may_change_in_the_file(killed):
    log = Log.read(killed / JOURNAL)
    size = (killed / JOURNAL).stat().st_size
    logged = next(n for n in sorted(log.pages, reverse=True) if n * 4096 <= size)
    flip(killed / JOURNAL, (logged - 1) * 4096 + 7)
    check_journal(killed)


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_command_says_what_is_damaged_and_what_to_do(finished, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    flip(finished / JOURNAL)
    where = ["-o", "elsewhere"] if command[0] == "export" else []
    told = CliRunner().invoke(app, [*command, *where, "--lake", str(finished.parent.parent)])
    assert told.exit_code == Exit.FAULT, told.output
    assert told.stdout == ""
    (line,) = told.stderr.splitlines()
    assert line.startswith(f"error: {finished / JOURNAL} is damaged (altered pages: 1")
    assert line.endswith("`lpfloop lake repair a` restores the journal")
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_writes_to_a_damaged_journal(finished):
    flip(finished / JOURNAL)
    before = (finished / JOURNAL).read_bytes()
    with pytest.raises(DamagedJournalError):
        Journal(finished)
    assert (finished / JOURNAL).read_bytes() == before


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [flip, truncate, emptied, zeroed, Path.unlink])
@pytest.mark.parametrize("name", [JOURNAL, PAGES])
def test_a_repair_makes_a_finished_journal_whole_without_loss(
    runs: Runs, finished: Path, name: str, damage: Callable[[Path], None]
):
    damage(finished / name)
    lake = finished.parent.parent
    told = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
    assert told.exit_code == 0, told.output
    if (name, damage) != (PAGES, Path.unlink):
        assert "nothing is lost" in told.stderr
    assert told.stdout == "0 units are owed again\n"
    found = whole(lake)
    assert (found.digest, found.owed, found.damaged) == (runs.digest, [], [])
    again = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
    assert "the journal was damaged" not in again.stderr


def resumed(runs: Runs, folder: Path) -> str:
    lake = folder.parent.parent
    with stand_ins(lake):
        loop(lake, config=runs.config)
    assert whole(lake).owed == []
    return run_digest(folder)


def test_a_damaged_log_is_cut_and_the_run_ends_as_it_would_have(runs, killed):
    commits = [start for start in frames(killed) if committing(killed, start)]
    flip(killed / LOG, commits[len(commits) // 2] + 100)
    assert "owed again" in str(mend(killed))
    check_journal(killed)
    assert resumed(runs, killed) == runs.digest


def test_a_page_that_no_backup_has_costs_what_was_committed_since(runs, killed):
    with closing(Journal(killed)) as journal:
        units = sum(stage.done for stage in journal.stages())
    then = max((killed / BACKUPS).iterdir()).read_bytes()
    pairs = zip((killed / JOURNAL).read_bytes(), then, strict=False)
    flip(killed / JOURNAL, [n for n, (a, b) in enumerate(pairs) if a != b][-1])
    assert "its last backup has taken its place" in str(mend(killed))
    with closing(Reader(killed)) as reader:
        assert 0 < sum(stage.done for stage in reader.stages()) < units
    assert len(list((killed / "quarantine").glob(f"*-{JOURNAL}"))) == 1
    assert resumed(runs, killed) == runs.digest


def test_without_a_whole_backup_a_repair_says_so_and_changes_nothing(finished):
    flip(finished / JOURNAL)
    for backup in (finished / BACKUPS).iterdir():
        flip(backup, 100)
    before = (finished / JOURNAL).read_bytes()
    told = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(finished.parent.parent)])
    assert told.exit_code == Exit.FAULT
    assert "no backup of it is whole" in told.stderr
    assert (finished / JOURNAL).read_bytes() == before


def test_the_last_two_backups_are_kept_and_the_last_is_the_journal_as_it_was_closed(finished):
    kept = sorted((finished / BACKUPS).iterdir())
    assert len(kept) == KEPT
    for backup in kept:
        assert hashlib.sha256(backup.read_bytes()).hexdigest() == backup.stem.partition("-")[2]
    assert kept[-1].read_bytes() == (finished / JOURNAL).read_bytes()


def test_what_another_program_moved_out_of_the_log_is_no_damage(killed):
    """SQLite's own shell does so when it closes a journal that nobody else has open."""
    with closing(sqlite3.connect(killed / JOURNAL)) as other:
        other.execute("SELECT count(*) FROM units").fetchall()
    assert not (killed / LOG).exists()
    check_journal(killed)
    Journal(killed).close()
    flip(killed / JOURNAL)
    with pytest.raises(DamagedJournalError):
        check_journal(killed)


def test_a_long_run_moves_its_log_into_the_journal_and_proves_it_all_the_while(tmp_path):
    folder, count = run_folder(tmp_path, RUN), 600
    with closing(Journal.create(folder, {})) as journal, closing(Reader(folder)) as reader:
        for number in range(count):
            journal.record("said", f"{number}" * 5000)
            if number % 50 == 0:
                check_journal(folder)
            assert (folder / LOG).stat().st_size < 1.5 * LOG_BYTES
        assert len(reader.events("said")) == count
        assert (folder / JOURNAL).stat().st_size > LOG_BYTES
    check_journal(folder)
    assert unnoticed(folder, JOURNAL, 20, seed=4) == 0
