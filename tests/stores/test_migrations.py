"""A lake that an older lpfloop wrote is brought up to date, whole or not at all."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from crash_scenarios import migrate
from crashing import KILLED, RUN, Attempt, loop, small_config, stand_ins, whole
from typer.testing import CliRunner

from lpfloop.configs.load import stored_config
from lpfloop.configs.schema import ModelPrice
from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores import migrations, packing
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Journal, migrated
from lpfloop.stores.journal_reader import JOURNAL, JournalError, Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.migrations import JOURNAL_VERSION, MIGRATIONS, create_tables
from lpfloop.stores.packing import pack_all
from lpfloop.stores.schemas import SCHEMAS

GOLDEN = Path(__file__).parent.parent / "data" / "lake-v1"
DIGESTS = json.loads((GOLDEN / "digests.json").read_text())

AS_IT_WAS = (
    "alarms.watch=false",
    "facts.judge=none",
    "prompts.deciding=660",
    "prompts.dev_share=0",
    "reward.cut_last=false",
    "reward.end_of_cut=true",
    "training.dpo.chosen_penalty=0",
    "training.quark.missing_eos=none",
    "verdict.on_regression=continue",
)
"""What the old run did, where the tiny world's presets or the tests have other values by now."""


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A copy of the lake that the first version wrote: its run was killed in iteration 2."""
    copy = Path(shutil.copytree(GOLDEN, tmp_path / "lake"))
    monkeypatch.chdir(copy)
    return copy


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / JOURNAL)) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def layout(database: sqlite3.Connection) -> dict[str, list]:
    """Return the columns of each table, and what the indexes are."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    found = {name: database.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in names}
    indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    return {**found, "indexes": sorted(database.execute(indexes).fetchall())}


def test_a_reader_says_what_to_do_and_changes_nothing(lake):
    folder = run_folder(lake, RUN)
    with pytest.raises(JournalError, match="`lpfloop lake migrate a`"):
        Reader(folder)
    assert version(folder) == 1
    told = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake)])
    assert told.exit_code == Exit.BAD_INPUT
    assert "lpfloop lake migrate a" in told.stderr


def test_a_migrated_run_has_all_its_rows(lake):
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


def test_a_migrated_journal_is_laid_out_as_a_new_one_and_says_what_was_done(lake):
    folder = run_folder(lake, RUN)
    done = migrated(folder)
    with closing(sqlite3.connect(":memory:")) as new:
        create_tables(new)
        with closing(sqlite3.connect(folder / JOURNAL)) as old:
            assert layout(old) == layout(new)
            noted = old.execute("SELECT * FROM migrations").fetchall()
    assert [number for number, _, _ in noted] == [m.version for m in done] == [2, 3, 4, 5, 6, 7, 8]
    assert all(at > 1_700_000_000 and code for _, at, code in noted)


def test_the_prices_of_policy_and_critic_become_those_of_their_models(lake):
    folder = run_folder(lake, RUN)
    with closing(sqlite3.connect(folder / JOURNAL)) as database:
        old = "SELECT value FROM meta WHERE key = 'config'"
        config = json.loads(database.execute(old).fetchone()[0])
        config["critic"]["engine"]["model_name"] = "judge-1"
        config["prices"] |= {"critic_prompt": 0.5, "critic_completion": 1.5}
        database.execute("UPDATE meta SET value = ? WHERE key = 'config'", (json.dumps(config),))
        database.commit()
    migrated(folder)
    told = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake)])
    assert told.exit_code == 0, told.stderr
    with closing(Reader(folder)) as reader:
        stored = stored_config(json.loads(reader.meta("config")), (), {})
    assert stored.prices.models == {"judge-1": ModelPrice(prompt=0.5, completion=1.5)}


def test_an_old_run_whose_stages_have_other_keys_now_goes_on_by_a_fork(lake, monkeypatch):
    monkeypatch.setattr(packing, "FEWEST", 2)
    config = small_config(Path("prompts.jsonl"), "prompts.chunk=2", *AS_IT_WAS)
    with stand_ins(lake):
        with pytest.raises(JournalError, match=r"was planned with other inputs; .* --fork a"):
            loop(lake, config=config)
        assert run_digest(run_folder(lake, RUN)) == DIGESTS["half"]
        loop(lake, config=config, name="b", fork=RUN)
        loop(lake, config=config, name="c")
    forked, straight = (whole(lake, name=name) for name in "bc")
    assert (forked.digest, forked.owed, forked.damaged) == (straight.digest, [], [])
    assert len(list(run_folder(lake, "b").glob("packs/critiques/*"))) > 1


def test_an_old_run_is_forked_once_it_was_migrated(lake):
    config = small_config(Path("prompts.jsonl"), "prompts.chunk=2")
    with pytest.raises(JournalError, match="`lpfloop lake migrate a`"):
        loop(lake, config=config, name="b", fork=RUN)
    assert not run_folder(lake, "b").exists()


def test_old_parts_are_packed_and_come_back_byte_for_byte(lake, monkeypatch):
    monkeypatch.setattr(packing, "FEWEST", 2)
    folder = run_folder(lake, RUN)
    with closing(Journal(folder)) as journal:
        assert pack_all(journal) > 20
    assert run_digest(folder) == DIGESTS["half"]


@pytest.mark.crash
@pytest.mark.parametrize(("place", "left"), [("before", 1), ("after", 2)])
def test_killed_in_a_migration_a_journal_is_the_old_one_or_the_new_one(lake, place, left):
    folder = run_folder(lake, RUN)
    points = {f"journal.migrate.{place}": "kill"}
    assert Attempt(lake=lake, work=migrate, points=points).start() == KILLED
    assert version(folder) == left
    migrate(lake)
    assert version(folder) == JOURNAL_VERSION
    assert run_digest(folder) == DIGESTS["half"]


def test_a_migration_that_fails_leaves_the_journal_as_it_was(lake, monkeypatch):
    def fail(database):
        database.execute("ALTER TABLE parts ADD COLUMN pack TEXT")
        database.execute("SELECT nonsense")

    broken = migrations.Migration(version=2, what="nothing", change=fail)
    folder = run_folder(lake, RUN)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (broken,))
        with pytest.raises(sqlite3.OperationalError, match="nonsense"):
            Journal(folder)
    assert version(folder) == 1
    Journal(folder).close()
    assert run_digest(folder) == DIGESTS["half"]


def test_a_journal_of_a_newer_version_is_left_alone(lake):
    folder = run_folder(lake, RUN)
    with closing(sqlite3.connect(folder / JOURNAL)) as database:
        database.execute(f"PRAGMA user_version = {JOURNAL_VERSION + 1}")
    for opened in (Reader, Journal):
        with pytest.raises(JournalError, match="upgrade lpfloop"):
            opened(folder)
    assert version(folder) == JOURNAL_VERSION + 1
