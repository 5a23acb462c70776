"""Rows of a lake in a bucket are read from local copies; missing ones are downloaded."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lakes import make_units
from s3 import KEYS, BadWay, bad_way

from lpfloop.loop.lake.query.sql import query
from lpfloop.stores.address import ADDRESS, BucketError
from lpfloop.stores.durable import make_folder
from lpfloop.stores.failpoints import arm
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunWriter, run_folder

COUNTS = [3 + chunk % 4 for chunk in range(16)]
QUERIES = (
    "select count(*) from candidates",
    "select * exclude (run, reasoning) from candidates order by candidate_id",
    "select * from pairs",
    "select text from candidates where candidate_id = 'cand-3-1'",
    "select prompt_id, count(*), avg(seed) from candidates where seed > 300 group by 1 order by 1",
    "select aspect, rating, count(*) from ratings group by all order by all",
)


@pytest.fixture
def way(s3_server: str, bucket: str, environ: dict[str, str]) -> Iterator[BadWay]:
    with bad_way(s3_server) as way:
        environ["AWS_ENDPOINT_URL"] = way.endpoint
        yield way


@pytest.fixture
def run(bucket: str, tmp_path: Path) -> Path:
    """A run in a bucket."""
    (make_folder(tmp_path / "far") / ADDRESS).write_text(f"s3://{bucket}/lake\n")
    with arm({"lake.seal": "enospc"}):
        make_units(run_folder(tmp_path / "far", "a"), COUNTS).close()
    return run_folder(tmp_path / "far", "a")


def test_bucket_sql_equals_folder_sql(run, tmp_path):
    near = tmp_path / "near"
    make_units(run_folder(near, "a"), COUNTS).close()
    wanted = {sql: query(near, sql) for sql in QUERIES}
    for sql in QUERIES[::3]:
        assert query(run.parent.parent, sql).equals(wanted[sql]), sql
    RunWriter(Journal(run)).close()
    with closing(Reader(run)) as journal:
        assert journal.unsealed_stages() == []
    shutil.rmtree(run / "files")
    for sql in QUERIES:
        assert query(run.parent.parent, sql).equals(wanted[sql]), sql
    for path in (run / "files").rglob("*.parquet"):
        path.write_bytes(b"spoiled")
    for sql in QUERIES[::3]:
        assert query(run.parent.parent, sql).equals(wanted[sql]), sql
    with closing(Journal(run)) as journal:
        journal.lose(journal.key(1, "sample", 2))
    found = query(run.parent.parent, QUERIES[0])
    assert found.item() == sum(COUNTS) - COUNTS[2]


def test_bucket_that_does_not_answer(run, way):
    RunWriter(Journal(run)).close()
    wanted = query(run.parent.parent, "select count(*) from candidates")
    way.faults = lambda _, path: "403" if path.endswith(".parquet") else None
    assert query(run.parent.parent, "select count(*) from candidates").equals(wanted)
    shutil.rmtree(run / "files")
    with pytest.raises(BucketError, match="403") as refused:
        query(run.parent.parent, "select count(*) from candidates")
    assert "\n" not in str(refused.value)
    assert not any(secret in str(refused.getrepr()) for secret in KEYS.values())
