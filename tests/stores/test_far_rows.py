"""Reading a lake in a bucket costs few requests, few bytes and little waiting."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from s3 import KEYS, BadWay, bad_way, environment, new_bucket
from small_units import make

from lpfloop.loop.lake.query.sql import SqlError, query
from lpfloop.stores import bucket as bucket_module
from lpfloop.stores import reading_ahead
from lpfloop.stores.address import ADDRESS
from lpfloop.stores.bucket import Bucket
from lpfloop.stores.digest import run_digest
from lpfloop.stores.durable import make_folder
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.objects import objects_of
from lpfloop.stores.packing import pack_all
from lpfloop.stores.packs import require_unaltered
from lpfloop.stores.reading_ahead import read_ahead

COUNTS = [3 + chunk % 4 for chunk in range(16)]
LONG = COUNTS * 4
WAIT_S = 2.0
MANY = 10
"""As many requests at a time no reader makes that asks for one thing after the other."""
QUERIES = (
    "select count(*) from candidates",
    "select * exclude (run, reasoning) from candidates order by candidate_id",
    "select * exclude run from critiques order by critique_id, candidate_id",
    "select * from pairs",
    "select text from candidates where candidate_id = 'cand-3-1'",
    "select text from candidates where candidate_id = 'none'",
    "select text from candidates where candidate_id like '%3-1' order by all",
    "select prompt_id, count(*), avg(seed) from candidates where seed > 300 group by 1 order by 1",
    "select c.text, d.seed from candidates c join candidates d using (prompt_id) order by all",
    "select aspect, rating, count(*) from ratings group by all order by all",
    "select count(*) from candidates where reasoning is null",
)


class Crowd:
    """Tells how many requests for rows are under way at a time: each waits for more to come.

    It waits for longer than a busy machine takes to send so many, but not for ever: Polars begins
    with fewer.
    """

    def __init__(self) -> None:
        self.most = 0
        self._here = 0
        self._changed = threading.Condition()

    def __call__(self, method: str, path: str) -> None:
        if method not in ("GET", "HEAD") or not path.endswith(".parquet"):
            return
        with self._changed:
            self._here += 1
            self.most = max(self.most, self._here)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= MANY, timeout=WAIT_S)
            self._here -= 1


@pytest.fixture
def way(s3_server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadWay]:
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        yield way


def in_bucket(lake: Path, bucket: str, counts: list[int]) -> Path:
    """Make a run in a bucket; return its folder."""
    (make_folder(lake) / ADDRESS).write_text(f"s3://{bucket}/lake\n")
    make(run_folder(lake, "a"), counts).close()
    return run_folder(lake, "a")


@pytest.fixture
def run(bucket: str, tmp_path: Path) -> Path:
    """A run in a bucket."""
    return in_bucket(tmp_path / "far", bucket, COUNTS)


@pytest.fixture(scope="module")
def long_run(s3_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a bucket, of more objects, that tests only read: Polars begins with few at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(s3_server).items():
            patch.setenv(name, value)
        return in_bucket(tmp_path_factory.mktemp("far"), new_bucket(s3_server), LONG)


def pack(run: Path) -> None:
    with closing(Journal(run)) as journal:
        assert pack_all(journal) == 3 * len(COUNTS)


def deep(run: Path) -> None:
    with closing(Reader(run)) as journal:
        assert damages(journal, deep=True) == []


def hashed(run: Path) -> None:
    with closing(Reader(run)) as journal:
        require_unaltered(journal)


def listed(run: Path) -> None:
    with closing(RunReader(run)) as reader:
        assert reader.scan("candidates").select("seed").collect().height == sum(LONG)


def counted(run: Path) -> None:
    assert query(run.parent.parent, "select count(*) n from candidates")["n"].item() == sum(LONG)


@pytest.mark.parametrize("read", [deep, hashed, listed, counted, run_digest])
def test_what_reads_many_objects_asks_for_many_at_once(
    long_run, way, read: Callable[[Path], object]
):
    way.faults = crowd = Crowd()
    read(long_run)
    assert crowd.most >= MANY


def test_what_packs_many_objects_asks_for_many_at_once(run, way):
    way.faults = crowd = Crowd()
    pack(run)
    assert crowd.most >= MANY


@pytest.mark.parametrize("packed", [False, True])
def test_sql_tells_of_a_bucket_what_it_tells_of_a_folder(run, tmp_path, packed):
    near = tmp_path / "near"
    make(run_folder(near, "a"), COUNTS).close()
    if packed:
        pack(run)
    for sql in QUERIES:
        assert query(run.parent.parent, sql).equals(query(near, sql)), sql


def test_sql_leaves_out_rows_of_units_that_are_owed_again(run):
    pack(run)
    with closing(Journal(run)) as journal:
        journal.lose(journal.key(1, "sample", 2))
    found = query(run.parent.parent, "select count(*) n from candidates")
    assert found["n"].item() == sum(COUNTS) - COUNTS[2]


def test_a_filter_fetches_other_columns_only_where_it_finds_something(run, way):
    size = 1 << 16
    ids = [f"cand-{n:08}" for n in range(size)]
    texts = [hashlib.sha256(name.encode()).hexdigest() * 2 for name in ids]
    prompts = [f"p{n:06}" for n in range(size)]
    table = pa.table({"prompt_id": prompts, "candidate_id": ids, "text": texts})
    pack = objects_of(run).write_pack(run / "packs" / "x", table)
    path = run / "packs" / "x" / f"{pack.sha256}.parquet"
    rows = objects_of(run).dataset([(path, pack.size)], table.schema)
    assert rows is not None
    way.sent = 0
    text = rows.to_table(columns=["text"])["text"][77].as_py()
    whole, way.sent = way.sent, 0
    wanted = pc.field("candidate_id") == ids[77]
    rows = objects_of(run).dataset([(path, pack.size)], table.schema)
    found = rows.scanner(columns=["text"], filter=wanted).to_table()
    assert found["text"].to_pylist() == [text]
    assert way.sent < whole / 3


@pytest.mark.parametrize(("fault", "said"), [("403", "ACCESS_DENIED"), ("500", "HTTP status 500")])
def test_sql_says_in_one_sentence_that_a_bucket_does_not_answer(run, way, fault, said):
    way.faults = lambda _, path: fault if path.endswith(".parquet") else None
    with pytest.raises(SqlError, match=said) as refused:
        query(run.parent.parent, "select count(*) from candidates")
    assert "\n" not in str(refused.value)
    assert not any(secret in str(refused.getrepr()) for secret in KEYS.values())


def test_a_large_object_is_hashed_and_fetched_in_few_requests(way, bucket, tmp_path):
    there, data = Bucket(f"s3://{bucket}/x"), os.urandom(1 << 20) * 20
    there.put("weights.gz", data)
    way.seen.clear()
    assert there.sha256("weights.gz") == hashlib.sha256(data).hexdigest()
    there.download("weights.gz", tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == data
    blocks = -(-len(data) // bucket_module.BLOCK)
    assert [method for method, _ in way.seen].count("GET") <= 2 * blocks


# what is read ahead


def test_what_is_fetched_ahead_comes_in_order_and_errors_in_their_place():
    def fetch(number: int) -> int:
        time.sleep(0.01 * (number % 3))
        if number == 7:
            raise OSError("the seventh")
        return number

    given = list[int]()
    with pytest.raises(OSError, match="the seventh"):
        given.extend(read_ahead(fetch, range(20), size=lambda _: 1))
    assert given == list(range(7))
    given.clear()
    for number in (reader := read_ahead(fetch, range(20), size=lambda _: 1)):
        given.append(number)
        if number == 6:
            reader.close()
    assert given == list(range(7))


def test_no_more_is_fetched_ahead_than_memory_has_room_for(monkeypatch):
    monkeypatch.setattr(reading_ahead, "AHEAD_BYTES", 100)
    begun = list[int]()
    for place, size in enumerate(read_ahead(lambda n: begun.append(n) or n, [30] * 20, int)):
        time.sleep(0.01)
        assert len(begun) <= place + 4
        assert size == 30
    large = [300, 300, 300]
    assert list(read_ahead(lambda n: n, large, int)) == large


def test_a_reader_that_stops_fetches_no_more():
    begun = list[int]()

    def fetch(number: int) -> int:
        begun.append(number)
        return number

    reader = read_ahead(fetch, range(1000), size=lambda _: 1)
    next(reader)
    reader.close()
    assert len(begun) <= 2 * reading_ahead.AT_ONCE
