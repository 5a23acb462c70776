# pyright: basic
"""The tables of a journal, and their version."""

import apsw

JOURNAL_VERSION = 12
"""The version of the tables. A journal with tables of another version is refused."""

_TABLES_SQL = """
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
    replaceable INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (iteration, stage)
) WITHOUT ROWID;
CREATE TABLE edges (
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    from_iteration INTEGER NOT NULL,
    from_stage TEXT NOT NULL,
    decides INTEGER NOT NULL,
    PRIMARY KEY (iteration, stage, from_iteration, from_stage)
) WITHOUT ROWID;
CREATE INDEX edges_from ON edges (from_iteration, from_stage);
CREATE TABLE units (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    telemetry TEXT,
    served TEXT
);
CREATE UNIQUE INDEX units_by_key ON units (key);
CREATE UNIQUE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE INDEX units_owed ON units (iteration, stage, chunk) WHERE NOT done;
CREATE TABLE parts (
    unit INTEGER NOT NULL REFERENCES units (number),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    file TEXT,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
CREATE INDEX parts_by_file ON parts (file) WHERE file IS NOT NULL;
CREATE INDEX parts_unsealed ON parts ("table", unit) WHERE file IS NULL;
CREATE TABLE blobs (
    unit INTEGER NOT NULL,
    "table" TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (unit, "table"),
    FOREIGN KEY (unit, "table") REFERENCES parts ON DELETE CASCADE
);
CREATE TABLE lost (unit TEXT NOT NULL, "table" TEXT NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (unit, "table")) WITHOUT ROWID;
CREATE TABLE reservations (unit TEXT NOT NULL, slice TEXT NOT NULL, cost TEXT NOT NULL,
    PRIMARY KEY (unit, slice)) WITHOUT ROWID;
CREATE TABLE replies (
    unit TEXT NOT NULL,
    number INTEGER NOT NULL,
    cost TEXT NOT NULL,
    replies TEXT NOT NULL,
    PRIMARY KEY (unit, number)
) WITHOUT ROWID;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE files (
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
CREATE INDEX files_by_stage ON files (iteration, stage);
"""
# A part is the rows of one unit in one table. It is a Parquet blob in `blobs` until its stage
# is finished; then `file` names the Parquet file that holds it.
#
# Units and parts have numbers in the order of their stages, so that rows which are committed
# together lie together on disk. Keys are hashes: ordered by them, each row would change another
# page.
#
# An edge records that a stage was planned from the rows of another one. With `decides`, the recipe
# took a decision from these rows, and the stage follows it: which policy it samples, for example.
# A stage is `replaceable` after a decision that it follows was forgotten: it may be planned again
# with other inputs.


def create_tables(database: apsw.Connection) -> None:
    """Make the tables of a new journal."""
    database.execute(_TABLES_SQL)
    database.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")
