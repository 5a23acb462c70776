"""A run's journal verifies every page it reads, makes backups, and is repaired from them."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from crashes import flip, last_key_in, truncate
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
from lpfloop.stores.journal_file import (
    COMMITS,
    JOURNAL,
    DamagedJournalError,
    check_journal,
    damage_named,
    open_journal,
)
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

LOG = f"{JOURNAL}-wal"
HEADER = 32
FIRST_PAGE = 100
"""A byte that every reader of a journal reads."""
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


def content(folder: Path) -> list[list[tuple[object, ...]]]:
    """Return all rows of all tables of a journal."""
    with closing(open_journal(folder)) as opened:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = [name for (name,) in opened.database.execute(sql).fetchall()]
        with damage_named(folder):
            sql = 'SELECT * FROM "{}"'
            return [opened.database.execute(sql.format(t)).fetchall() for t in tables]


def misread(folder: Path, name: str, flips: int) -> tuple[int, int]:
    """Flip single bits of a file at random, one at a time, and read the whole journal.

    Return the numbers of flips with wrong rows, and with a refusal.
    """
    path, generator = folder / name, random.Random(1)
    data, wanted = bytearray(path.read_bytes()), content(folder)
    wrong = refused = 0
    for _ in range(flips):
        place, bit = generator.randrange(len(data)), generator.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        try:
            wrong += content(folder) != wanted
        except DamagedJournalError:
            refused += 1
        data[place] ^= 1 << bit
    path.write_bytes(data)
    assert content(folder) == wanted
    return wrong, refused


@pytest.mark.parametrize("flips", [60, pytest.param(1000, marks=pytest.mark.stress)])
def test_no_flipped_bit_is_silent(finished, killed, flips):
    for folder, name, least in ((finished, JOURNAL, flips // 2), (killed, LOG, flips // 2)):
        wrong, refused = misread(folder, name, flips)
        assert wrong == 0
        assert refused > least
    assert misread(finished, COMMITS, flips // 10) == (0, 0)


def frames(folder: Path) -> range:
    """Return where the frames of a log begin."""
    log = (folder / LOG).read_bytes()
    return range(HEADER, len(log), 24 + int.from_bytes(log[8:12]))


def committing(folder: Path, start: int) -> bool:
    return any((folder / LOG).read_bytes()[start + 4 : start + 8])


def test_commands_report_damage(subtests, finished, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    flip(finished / JOURNAL, FIRST_PAGE)
    for command in READING:
        with subtests.test(command=command[0]):
            told = CliRunner().invoke(app, [*command, "--lake", str(finished.parent.parent)])
            assert (told.exit_code, told.stdout) == (Exit.FAULT, "")
            (line,) = told.stderr.splitlines()
            assert str(finished / JOURNAL) in line
            assert "lpfloop lake repair a" in line
            assert not (tmp_path / "elsewhere").exists()


DAMAGES = ((JOURNAL, flip), (JOURNAL, Path.unlink), (JOURNAL, truncate))


def test_repair_makes_finished_whole(subtests, runs, finished):
    for name, damage in DAMAGES:
        with subtests.test(case=name):
            damage(finished / name)
            lake = finished.parent.parent
            told = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
            assert told.exit_code == 0, told.output
            assert told.stdout.startswith("0 units")
            found = whole(lake)
            assert (found.digest, found.pending, found.damaged) == (runs.digest, [], [])
            again = CliRunner().invoke(app, ["lake", "repair", RUN, "--lake", str(lake)])
            assert "the journal was damaged" not in again.stderr


def resumed(runs, folder: Path) -> str:
    lake = folder.parent.parent
    with stand_ins(lake):
        loop(lake, config=runs.config)
    assert whole(lake).pending == []
    return run_digest(folder)


def test_damaged_log_is_cut(runs, killed):
    commits = [start for start in frames(killed) if committing(killed, start)]
    flip(killed / LOG, commits[len(commits) // 2] + 100)
    assert "pending again" in str(mend(killed))
    check_journal(killed)
    assert resumed(runs, killed) == runs.digest


def test_page_no_backup_has(runs, killed):
    with closing(Journal(killed)) as journal:
        units = sum(stage.done for stage in journal.stages())
    flip(killed / JOURNAL, last_key_in(killed))
    assert "its last backup has taken its place" in str(mend(killed))
    with closing(Reader(killed)) as reader:
        assert 0 < sum(stage.done for stage in reader.stages()) < units
    assert len(list((killed / "quarantine").glob(f"*-{JOURNAL}"))) == 1
    assert resumed(runs, killed) == runs.digest
