"""The search index: rows once, one writer, and a sentence where it cannot be used."""

import shutil
from importlib.util import find_spec

import pyarrow as pa
import pytest

from lpfloop.stores import index as index_module
from lpfloop.stores.index import (
    Index,
    IndexQuery,
    IndexUnusableError,
    IndexWriter,
    Vectors,
    index_folder,
    part_key,
    writing,
)
from lpfloop.stores.journal_reader import Part
from lpfloop.stores.lock import LockedError

pytestmark = pytest.mark.skipif(
    find_spec("lancedb") is None, reason="the extra `lake` is not installed"
)

VECTORS = Vectors(kind="policy", model="m", model_name=None, identity="abc", max_tokens=64, dims=4)


def rows(texts, *, part="k", run="a", iteration=1, task="math", vectors=None):
    count = len(texts)
    table = {
        "id": [f"{part}-{n}" for n in range(count)],
        "run": [run] * count,
        "iteration": [iteration] * count,
        "task": [task] * count,
        "prompt_id": ["p"] * count,
        "part": [part] * count,
        "text": texts,
    }
    if vectors is not None:
        table["vector"] = pa.array(vectors, pa.list_(pa.float32(), 4))
    return pa.table(table)


def ids(index, words="", table="critiques", **wanted):
    return index.search(IndexQuery(table=table, words=words, **wanted))["id"].to_list()


@pytest.fixture
def lake(tmp_path):
    with writing(tmp_path, None) as index:
        index.add("critiques", ["k"], rows(["the unit is wrong", "all is well", "not wrong"]))
        index.finish()
    return tmp_path


def test_words_are_found_the_rarest_counting_most(lake):
    index = Index(index_folder(lake))
    assert ids(index, "wrong unit") == ["k-0", "k-2"]
    assert ids(index, "wrongly") == ids(index, "WRONG")
    assert ids(index, "absent") == []
    assert index.search(IndexQuery(table="critiques", words="unit"))["score"].min() > 0


def test_a_phrase_must_stand_as_it_is(lake):
    index = Index(index_folder(lake))
    assert ids(index, phrases=("not wrong",)) == ["k-2"]
    assert ids(index, phrases=("is wrong",), words="unit") == ["k-0"]
    assert ids(index, phrases=("wrong is",)) == []


def test_filters_hold_whatever_their_text(lake):
    with writing(lake, None) as index:
        index.add("critiques", ["j"], rows(["wrong"], part="j", iteration=3, task="o'clock"))
        index.finish()
    assert ids(index, "wrong", iteration=3) == ["j-0"]
    assert ids(index, "wrong", task="o'clock") == ["j-0"]
    assert ids(index, "wrong", task="' OR 1=1 --") == []
    assert ids(index, "wrong", run="b") == []


def test_rows_that_are_not_yet_in_order_are_found_too(lake):
    with writing(lake, None) as index:
        index.add("critiques", ["j"], rows(["unit again"], part="j"))
        assert "j-0" in ids(index, "unit")


@pytest.mark.parametrize("dies_in", ["_note", "_record", "unlink"])
def test_a_crash_between_rows_and_record_leaves_no_row_twice(lake, monkeypatch, dies_in):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    batch = rows(["unit of the second batch"], part="j")
    with monkeypatch.context() as patch:
        if dies_in == "unlink":
            patch.setattr(index_module.Path, "unlink", die)
        else:
            patch.setattr(IndexWriter, dies_in, die)
        with pytest.raises(Killed), writing(lake, None) as index:
            index.add("critiques", ["j"], batch)
    with writing(lake, None) as index:
        if "j" not in index.indexed():
            index.add("critiques", ["j"], batch)
        index.finish()
    assert index.indexed() == {"k", "j"}
    assert index.count("critiques") == 4
    assert not (index_folder(lake) / "pending.json").exists()


def test_forgotten_parts_are_gone_also_after_a_crash(lake, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(IndexWriter, "_drop_pending", lambda _: None)
        with writing(lake, None) as index:
            index.forget({"k"})
            assert index.count("critiques") == 3
    with writing(lake, None) as index:
        assert index.count("critiques") == 0
        assert index.indexed() == frozenset()


def test_one_process_writes_and_the_other_is_told(lake):
    with (
        writing(lake, None),
        pytest.raises(LockedError, match=r"the search index of .* is in use by another process"),
        writing(lake, None),
    ):
        pass


def test_reading_goes_on_while_another_writes(lake):
    reader = Index(index_folder(lake))
    with writing(lake, None) as index:
        index.add("critiques", ["j"], rows(["unit"], part="j"))
        index.finish()
        assert "k-0" in ids(reader, "unit")


def test_an_absent_index_says_what_makes_it(tmp_path):
    with pytest.raises(
        IndexUnusableError, match=r"no search index at .*`lpfloop lake reindex` makes it"
    ):
        Index(index_folder(tmp_path))


@pytest.mark.parametrize("what", ["data/*", "_indices/*/*", "_versions/*", ""])
def test_a_damaged_index_says_what_makes_it_anew(lake, what):
    table = index_folder(lake) / "tables" / "critiques.lance"
    if what:
        for path in table.glob(what):
            path.write_bytes(b"garbage" * 9)
    else:
        shutil.rmtree(table)
    with pytest.raises(IndexUnusableError, match="`lpfloop lake reindex --full` makes it anew"):
        ids(Index(index_folder(lake)), "wrong")
    with writing(lake, None, anew=True) as index:
        index.add("critiques", ["k"], rows(["wrong"]))
        index.finish()
        assert ids(index, "wrong") == ["k-0"]


@pytest.mark.parametrize("facts", [b"", b"[]", b"{", b'{"format": 9, "vectors": null}'])
def test_facts_that_can_not_be_read_are_no_traceback(lake, facts):
    (index_folder(lake) / "index.json").write_bytes(facts)
    with pytest.raises(IndexUnusableError, match="reindex --full"):
        Index(index_folder(lake))


def test_an_index_that_was_never_finished_answers_slowly(tmp_path):
    with writing(tmp_path, None) as index:
        index.add("critiques", ["k"], rows(["wrong"]))
    assert ids(Index(index_folder(tmp_path)), "wrong") == ["k-0"]


def test_a_table_without_rows_has_no_answers(lake):
    assert ids(Index(index_folder(lake)), "wrong", table="prompts") == []


def near(index, vector, **wanted):
    return ids(index, vector=vector, **wanted)


def test_vectors_rank_by_their_angle_and_join_with_words(tmp_path):
    vectors = [[1, 0, 0, 0], [0.6, 0.8, 0, 0], [0, 1, 0, 0]]
    with writing(tmp_path, VECTORS) as index:
        index.add("critiques", ["k"], rows(["wrong unit", "well", "also well"], vectors=vectors))
        index.finish()
    assert near(index, (1.0, 0, 0, 0)) == ["k-0", "k-1", "k-2"]
    scores = index.search(IndexQuery(table="critiques", vector=(1.0, 0, 0, 0)))["score"]
    assert scores.to_list() == pytest.approx([1, 0.6, 0], abs=1e-6)
    assert near(index, (0, 1.0, 0, 0), words="wrong", limit=2)[0] in ("k-0", "k-2")
    assert near(index, (1.0, 0, 0, 0), iteration=7) == []


def test_an_index_without_vectors_says_what_makes_them(lake):
    with pytest.raises(IndexUnusableError, match="`lpfloop lake reindex --embed`"):
        near(Index(index_folder(lake)), (1.0, 0, 0, 0))


def test_asking_for_vectors_makes_an_index_anew_that_has_none(lake):
    with writing(lake, VECTORS) as index:
        assert index.vectors == VECTORS
        assert index.indexed() == frozenset()
    with writing(lake, None) as index:
        assert index.vectors == VECTORS


def test_another_embedder_is_refused_with_the_remedy(tmp_path):
    with writing(tmp_path, VECTORS):
        pass
    other = Vectors(
        kind="policy", model="m", model_name=None, identity="other", max_tokens=64, dims=4
    )
    with (
        pytest.raises(IndexUnusableError, match=r"not of this embedder.*reindex --full --embed"),
        writing(tmp_path, other),
    ):
        pass
    with writing(tmp_path, other, anew=True) as index:
        assert index.vectors == other


def test_the_same_weights_elsewhere_are_the_same_embedder(tmp_path):
    with writing(tmp_path, VECTORS):
        pass
    moved = Vectors(
        kind="policy", model="elsewhere", model_name=None, identity="abc", max_tokens=64, dims=4
    )
    with writing(tmp_path, moved) as index:
        assert index.vectors == moved


def test_a_part_is_known_by_its_run_its_unit_and_its_bytes():
    part = {"table": "critiques", "iteration": 1, "stage": "s", "chunk": 0, "rows": 1, "size": 1}
    keys = {
        part_key(run, Part(**part, unit=unit, sha256=sha256))
        for run in "ab"
        for unit in "uv"
        for sha256 in "xy"
    }
    assert len(keys) == 8
