"""A run's journal proves every byte of itself, is backed up, and is mended from its backups."""

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from crashes import flip, truncate
from typer.testing import CliRunner
from world import (
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

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_backups import mend
from lpfloop.stores.journal_held import BACKUPS
from lpfloop.stores.journal_log import HEADER
from lpfloop.stores.journal_opening import check_journal
from lpfloop.stores.journal_pages import JOURNAL, PAGES, DamagedJournalError
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

LOG = f"{JOURNAL}-wal"
READING = (
    ["status", RUN],
    ["sql", "select count(*) from candidates"],
    ["export", RUN, "pairs", "--as", "trl-dpo", "-o", "elsewhere"],
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A lake with a run of two iterations, one with a run killed in its second, and the digest."""
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        config = small_config(write_prompts(folder))
        finished, killed = finished_and_killed(folder, config)
        digest = run_digest(run_folder(finished, RUN))
        yield SimpleNamespace(finished=finished, killed=killed, config=config, digest=digest)


@pytest.fixture
def finished(runs, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield run_folder(copied(runs.finished, folder / "lake"), RUN)


@pytest.fixture
def killed(runs, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield run_folder(copied(runs.killed, folder / "lake"), RUN)


def unnoticed(folder: Path, name: str, flips: int, before: int | None = None) -> int:
    """Flip single bits of a file at random, one at a time; return after how many it reads well."""
    path, generator = folder / name, random.Random(1)
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


@pytest.mark.parametrize("flips", [60, pytest.param(1000, marks=pytest.mark.stress)])
def test_no_flipped_bit_is_silent(finished, killed, flips):
    assert unnoticed(finished, JOURNAL, flips) == 0
    assert unnoticed(finished, PAGES, flips // 10) == 0
    # The last transaction could as well have ended with the kill.
    commits = [start for start in frames(killed) if committing(killed, start)]
    assert unnoticed(killed, LOG, flips, before=commits[-3]) == 0


def frames(folder: Path) -> range:
    """Return where the frames of a log begin."""
    log = (folder / LOG).read_bytes()
    return range(HEADER, len(log), 24 + int.from_bytes(log[8:12]))


def committing(folder: Path, start: int) -> bool:
    return any((folder / LOG).read_bytes()[start + 4 : start + 8])


def test_commands_say_what_is_damaged(subtests, finished, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    flip(finished / JOURNAL)
    for command in READING:
        with subtests.test(command=command[0]):
            told = CliRunner().invoke(app, [*command, "--lake", str(finished.parent.parent)])
            assert (told.exit_code, told.stdout) == (Exit.FAULT, "")
            (line,) = told.stderr.splitlines()
            assert str(finished / JOURNAL) in line
            assert "lpfloop lake repair a" in line
            assert not (tmp_path / "elsewhere").exists()


DAMAGES = ((JOURNAL, flip), (JOURNAL, Path.unlink), (PAGES, truncate))


def test_repair_makes_finished_whole(subtests, runs, finished):
    for name, damage in DAMAGES:
        with subtests.test(case=name):
            damage(finished / name)
            lake = finished.parent.parent
            told = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
            assert told.exit_code == 0, told.output
            assert told.stdout.startswith("0 units")
            found = whole(lake)
            assert (found.digest, found.owed, found.damaged) == (runs.digest, [], [])
            again = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
            assert "the journal was damaged" not in again.stderr


def resumed(runs, folder: Path) -> str:
    lake = folder.parent.parent
    with stand_ins(lake):
        loop(lake, config=runs.config)
    assert whole(lake).owed == []
    return run_digest(folder)


def test_damaged_log_is_cut(runs, killed):
    commits = [start for start in frames(killed) if committing(killed, start)]
    flip(killed / LOG, commits[len(commits) // 2] + 100)
    assert "owed again" in str(mend(killed))
    check_journal(killed)
    assert resumed(runs, killed) == runs.digest


def test_page_no_backup_has(runs, killed):
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
