"""A lake that an older lpfloop wrote is brought up to date, whole or not at all."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner
from world import RUN, whole

from lpfloop.loop.cli.app import app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.migrations import JOURNAL_VERSION, MIGRATIONS
from lpfloop.stores.schemas import SCHEMAS

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "data" / "lake-v1"
DIGESTS = json.loads((GOLDEN / "digests.json").read_text())


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A copy of the lake that the first version wrote: its run was killed in iteration 2."""
    copy = Path(shutil.copytree(GOLDEN, tmp_path / "lake"))
    monkeypatch.chdir(copy)
    return copy


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / JOURNAL)) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def test_migrated_run_has_rows(lake):
    folder = run_folder(lake, RUN)
    told = CliRunner().invoke(app, ["lake", "migrate", RUN, "--lake", str(lake)])
    assert told.exit_code == 0, told.stderr
    steps = [f"journal version {m.version}: {m.what}" for m in MIGRATIONS]
    assert told.stdout.splitlines() == steps
    assert version(folder) == JOURNAL_VERSION
    assert run_digest(folder) == DIGESTS["half"]
    assert whole(lake).damaged == []
    with closing(RunReader(folder)) as reader:
        heights = {table: reader.scan(table).collect().height for table in SCHEMAS}
    assert heights["candidates"] > 0
    assert heights["preferences"] == 0
    again = CliRunner().invoke(app, ["lake", "migrate", RUN, "--lake", str(lake)])
    assert again.stdout == "the journal is up to date\n"
