"""The search index: each row once, one writer, and a clear error if it is unusable."""

import shutil
from importlib.util import find_spec

import pyarrow as pa
import pytest

from lpfloop.stores.index import (
    Index,
    IndexQuery,
    IndexUnusableError,
    IndexWriter,
    index_folder,
    writing,
)
from lpfloop.stores.lock import LockedError

pytestmark = pytest.mark.skipif(
    find_spec("lancedb") is None, reason="the extra `lake` is not installed"
)


def rows(texts, *, part="k", iteration=1, task="math"):
    count = len(texts)
    table = {
        "id": [f"{part}-{n}" for n in range(count)],
        "run": ["a"] * count,
        "iteration": [iteration] * count,
        "task": [task] * count,
        "prompt_id": ["p"] * count,
        "part": [part] * count,
        "text": texts,
    }
    return pa.table(table)


def ids(index, words="", table="critiques", **wanted):
    return index.search(IndexQuery(table=table, words=words, **wanted))["id"].to_list()


@pytest.fixture
def lake(tmp_path):
    with writing(tmp_path) as index:
        index.add("critiques", ["k"], rows(["the unit is wrong", "all is well", "not wrong"]))
        index.finish()
    return tmp_path


def test_rare_words_first(lake):
    index = Index(index_folder(lake))
    assert ids(index, "wrong unit") == ["k-0", "k-2"]
    assert ids(index, "wrongly") == ids(index, "WRONG")
    assert ids(index, "absent") == []
    assert index.search(IndexQuery(table="critiques", words="unit"))["score"].min() > 0


def test_filters_hold(lake):
    with writing(lake) as index:
        index.add("critiques", ["j"], rows(["wrong"], part="j", iteration=3, task="o'clock"))
        index.finish()
    assert ids(index, "wrong", iteration=3) == ["j-0"]
    assert ids(index, "wrong", task="o'clock") == ["j-0"]
    assert ids(index, "wrong", task="' OR 1=1 --") == []
    assert ids(index, "wrong", run="b") == []


def test_crash_duplicates_no_row(subtests, lake, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    for dies_in in ["_note", "_record"]:
        with subtests.test(case=dies_in):
            batch = rows([f"unit of the batch {dies_in}"], part=dies_in)
            with monkeypatch.context() as patch:
                patch.setattr(IndexWriter, dies_in, die)
                with pytest.raises(Killed), writing(lake) as index:
                    index.add("critiques", [dies_in], batch)
            with writing(lake) as index:
                if dies_in not in index.indexed_parts():
                    index.add("critiques", [dies_in], batch)
                index.finish()
            assert dies_in in index.indexed_parts()
            assert index.count("critiques") == 2 + len(index.indexed_parts())
            assert not (index_folder(lake) / "pending.json").exists()


def test_one_process_writes(lake):
    with (
        writing(lake),
        pytest.raises(LockedError, match=r"the search index of .* is in use by another process"),
        writing(lake),
    ):
        pass


def test_damaged_index(subtests, lake):
    for what in ["data/*", "_versions/*"]:
        with subtests.test(case=what):
            for path in (index_folder(lake) / "tables" / "critiques.lance").glob(what):
                path.write_bytes(b"garbage" * 9)
            with pytest.raises(IndexUnusableError, match="remove this folder"):
                ids(Index(index_folder(lake)), "wrong")
            shutil.rmtree(index_folder(lake))
            with writing(lake) as index:
                index.add("critiques", ["k"], rows(["wrong"]))
                index.finish()
                assert ids(index, "wrong") == ["k-0"]
