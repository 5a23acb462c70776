"""The tables of a journal, and the migrations of journals that an older lpfloop wrote.

Each migration is one transaction, done by the process that holds the run when it opens the journal
to write, and noted in the table `migrations`. After a crash the journal is the old one or
the new one.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from .failpoints import reach
from .keys import canonical_json

TABLES_SQL = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE stages (
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    identity TEXT NOT NULL,
    planned INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    totals TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (iteration, stage)
) WITHOUT ROWID;
CREATE TABLE units (
    key TEXT PRIMARY KEY,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    telemetry TEXT,
    served TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE INDEX units_owed ON units (iteration, stage, chunk) WHERE NOT done;
CREATE TABLE parts (
    unit TEXT NOT NULL REFERENCES units (key),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    pack TEXT,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
CREATE TABLE lost (unit TEXT NOT NULL, "table" TEXT NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (unit, "table")) WITHOUT ROWID;
CREATE TABLE reservations (unit TEXT PRIMARY KEY, cost TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
"""

PACKS_SQL = """
CREATE TABLE packs (
    sha256 TEXT PRIMARY KEY,
    "table" TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    units INTEGER NOT NULL,
    live INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX packs_by_stage ON packs (iteration, stage);
CREATE INDEX parts_by_pack ON parts (pack) WHERE pack IS NOT NULL;
CREATE INDEX parts_unpacked ON parts ("table", sha256) WHERE pack IS NULL;
CREATE TABLE migrations (version INTEGER PRIMARY KEY, at REAL NOT NULL, lpfloop TEXT NOT NULL);
"""

REPLIES_SQL = """
ALTER TABLE reservations RENAME TO whole_reservations;
CREATE TABLE reservations (unit TEXT NOT NULL, slice TEXT NOT NULL, cost TEXT NOT NULL,
    PRIMARY KEY (unit, slice)) WITHOUT ROWID;
INSERT INTO reservations SELECT unit, '', cost FROM whole_reservations;
DROP TABLE whole_reservations;
CREATE TABLE replies (
    unit TEXT NOT NULL,
    number INTEGER NOT NULL,
    cost TEXT NOT NULL,
    replies TEXT NOT NULL,
    PRIMARY KEY (unit, number)
) WITHOUT ROWID;
"""

NUMBERS_SQL = """
CREATE TABLE numbered_units (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    telemetry TEXT,
    served TEXT
);
INSERT INTO numbered_units (key, iteration, stage, chunk, done, telemetry, served)
    SELECT key, u.iteration, u.stage, chunk, u.done, telemetry, served
    FROM units u JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage
    ORDER BY u.iteration, ordinal, chunk;
CREATE UNIQUE INDEX units_by_key ON numbered_units (key);
CREATE TABLE numbered_parts (
    unit INTEGER NOT NULL REFERENCES numbered_units (number),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    pack TEXT,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
INSERT INTO numbered_parts SELECT number, "table", sha256, rows, size, pack
    FROM parts JOIN numbered_units ON key = unit ORDER BY number, "table";
DROP TABLE parts;
DROP TABLE units;
ALTER TABLE numbered_units RENAME TO units;
ALTER TABLE numbered_parts RENAME TO parts;
CREATE UNIQUE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE INDEX units_owed ON units (iteration, stage, chunk) WHERE NOT done;
CREATE INDEX parts_by_pack ON parts (pack) WHERE pack IS NOT NULL;
CREATE INDEX parts_unpacked ON parts ("table", sha256) WHERE pack IS NULL;
"""
"""Units and parts lie in the order of their stages: those that are committed together lie together.
Under their keys, which are hashes, each would change a page of its own."""

RENAMED = "renamed_metrics"
"""The fact about a run that maps its metrics' names to those of now."""
SENTENCE_MATCH: Mapping[str, str] = {
    f"{prefix}{old}": f"{prefix}{new}"
    for prefix in ("", "expected_")
    for old, new in (
        ("fact_score", "sentence_match"),
        ("facts_right", "sentences_right"),
        ("facts_wrong", "sentences_wrong"),
    )
}
"""What counted equal sentences was called `fact_score`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The step to journal version `version` from the one before."""

    version: int
    what: str
    change: Callable[[sqlite3.Connection], None]


def _add_packs(database: sqlite3.Connection) -> None:
    _execute(database, f"ALTER TABLE parts ADD COLUMN pack TEXT; {PACKS_SQL}")
    database.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")


def _add_replies(database: sqlite3.Connection) -> None:
    _execute(database, REPLIES_SQL)


def _add_served(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE units ADD COLUMN served TEXT")


def _number_units(database: sqlite3.Connection) -> None:
    _execute(database, NUMBERS_SQL)


def _price_by_name(database: sqlite3.Connection) -> None:
    """Give the prices of policy and critic, in the stored configuration, to models by name."""
    found = database.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
    config: dict[str, Any] = json.loads(found[0]) if found else {}
    old = config.get("prices", {})
    if "policy_prompt" not in old:
        return
    models: dict[str, dict[str, float]] = {}
    for part in ("policy", "critic"):
        of = config[part]
        price = {name: old[f"{part}_{name}"] for name in ("prompt", "completion")}
        if any(price.values()):
            models[of["engine"].get("model_name") or of["model"]] = price
    prices = {"prices": {"table": None, "models": models}}
    database.execute(
        "UPDATE meta SET value = ? WHERE key = 'config'", (canonical_json({**config, **prices}),)
    )


def _name_sentence_match(database: sqlite3.Connection) -> None:
    """Say that the run's older scores of facts count equal sentences, whatever they are called."""
    database.execute(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", (RENAMED, canonical_json(dict(SENTENCE_MATCH)))
    )
    database.execute("UPDATE meta SET value = '6' WHERE key = 'schema'")


def _add_later_columns(database: sqlite3.Connection) -> None:
    """Keep an lpfloop away that does not know the columns which parts may have from now on."""
    database.execute("UPDATE meta SET value = '4' WHERE key = 'schema'")


MIGRATIONS = (
    Migration(version=2, what="parts can lie in packs; preferences are stored", change=_add_packs),
    Migration(version=3, what="replies are kept until their unit is whole", change=_add_replies),
    Migration(version=4, what="units say which endpoints served them", change=_add_served),
    Migration(version=5, what="prices are those of models, by name", change=_price_by_name),
    Migration(version=6, what="candidates have their reasoning", change=_add_later_columns),
    Migration(
        version=7,
        what="scores of facts that count equal sentences are called so",
        change=_name_sentence_match,
    ),
    Migration(version=8, what="units lie in the order of their stages", change=_number_units),
)
JOURNAL_VERSION = MIGRATIONS[-1].version


def create_tables(database: sqlite3.Connection) -> None:
    """Make the tables of a new journal."""
    _execute(database, TABLES_SQL + PACKS_SQL + REPLIES_SQL + NUMBERS_SQL)
    database.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")


def outdated(database: sqlite3.Connection) -> bool:
    """Whether an open journal is of an older version."""
    ((found,),) = database.execute("PRAGMA user_version").fetchall()
    return found < JOURNAL_VERSION


def migrate(database: sqlite3.Connection) -> list[Migration]:
    """Bring a journal up to date; return what was done."""
    ((found,),) = database.execute("PRAGMA user_version").fetchall()
    wanted = [migration for migration in MIGRATIONS if migration.version > found]
    for migration in wanted:
        _apply(database, migration)
    return wanted


def _apply(database: sqlite3.Connection, migration: Migration) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        migration.change(database)
        database.execute(f"PRAGMA user_version = {migration.version}")
        database.execute(
            "INSERT INTO migrations VALUES (?, ?, ?)",
            (migration.version, time.time(), version("lpfloop")),
        )
        reach("journal.migrate.before")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    reach("journal.migrate.after")


def _execute(database: sqlite3.Connection, script: str) -> None:
    """Execute statements one by one: `executescript` would commit the open transaction."""
    for statement in filter(None, map(str.strip, script.split(";"))):
        database.execute(statement)
