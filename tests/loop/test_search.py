"""Searching a lake: what is asked, what is found, and what is said when it cannot be."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec

import pytest
from commands import call
from crashing import loop, small_config, stand_ins, write_prompts
from hypothesis import given
from hypothesis import strategies as st
from texts import candidates, commit, critiques, prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.search import text_search as searching
from lpfloop.loop.lake.search.embedding import configured, opened
from lpfloop.loop.lake.search.text_search import (
    SNIPPET,
    TextSearch,
    parsed,
    reindex,
    reindexed,
    search,
    snippet,
)
from lpfloop.stores.index import (
    Index,
    IndexUnusableError,
    IndexWriter,
    index_folder,
    writing,
)
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder
from lpfloop.stores.sealed import DamagedError

pytestmark = pytest.mark.skipif(
    find_spec("lancedb") is None, reason="the extra `lake` is not installed"
)

ASKED = prompts(["How long is a mile in metres?", "Name the capital of France."])
FIRST, SECOND = (prompt.prompt_id for prompt in ASKED)


@pytest.fixture
def lake(tmp_path):
    units = [
        ("prompts", ASKED),
        ("sample", candidates(FIRST, ["A mile is 1609 metres.", "A mile is 16 metres."])),
        ("critique", critiques(FIRST, ["All is right.", "A wrong unit conversion."])),
    ]
    commit(tmp_path / "lake", units)
    return tmp_path / "lake"


def ids(lake, text, **wanted):
    return search(lake, TextSearch(text=text, **wanted))["id"].to_list()


# what is found


def test_a_search_makes_the_index_and_finds_words_in_each_table(lake):
    assert ids(lake, "wrong conversions") == [f"crit-{FIRST}-1-1"]
    assert ids(lake, "1609", table="candidates") == [f"cand-{FIRST}-1-0"]
    assert ids(lake, "france", table="prompts") == [SECOND]
    (row,) = search(lake, TextSearch(text="wrong")).to_dicts()
    assert row.pop("score") > 0
    assert row == {
        "run": "a",
        "iteration": 1,
        "id": f"crit-{FIRST}-1-1",
        "prompt_id": FIRST,
        "task": "math",
        "snippet": "A wrong unit conversion.",
    }


def test_what_was_committed_since_is_found(lake):
    assert ids(lake, "metres", iteration=2) == []
    commit(lake, [("critique", critiques(FIRST, ["Metres it is."], iteration=2))])
    assert ids(lake, "metres", iteration=2) == [f"crit-{FIRST}-2-0"]


def test_runs_are_told_apart(lake):
    commit(lake, [("critique", critiques(SECOND, ["Wrong, too."]))], run="b")
    assert len(ids(lake, "wrong")) == 2
    assert ids(lake, "wrong", run="b") == [f"crit-{SECOND}-1-0"]
    shutil.rmtree(run_folder(lake, "b"))
    assert len(ids(lake, "wrong")) == 1


def test_rows_that_were_made_again_replace_the_old_ones(lake):
    assert len(ids(lake, "wrong")) == 1
    journal = Journal(run_folder(lake, "a"))
    journal.lose("a 1 critique")
    journal.close()
    assert ids(lake, "wrong") == []
    assert ids(lake, "mile", table="candidates")


@given(st.text(alphabet=st.sampled_from('ab" .'), max_size=12))
def test_a_query_is_words_and_phrases_or_refused(text):
    letters = sorted(c for c in text if c in "ab")
    if text.count('"') % 2 or not letters:
        with pytest.raises(InputError, match="is open" if text.count('"') % 2 else "no word"):
            parsed(TextSearch(text=text))
        return
    question = parsed(TextSearch(text=text))
    found = " ".join([question.words, *question.phrases])
    assert sorted(found.replace(" ", "")) == letters


@given(st.text(max_size=400), st.lists(st.text(min_size=1, max_size=9), max_size=3))
def test_a_snippet_is_a_short_piece_of_the_text(text, words):
    piece = snippet(text, words)
    assert len(piece) <= SNIPPET + 2
    assert piece.strip("…") in " ".join(text.split())


def test_a_snippet_shows_the_match():
    text = "so it goes " * 50 + "but the unit is wrong here " + "and on " * 50
    assert "unit is wrong" in snippet(text, ["wrong", "unit"])


# what cannot be answered


def test_the_command_prints_rows_and_refuses_what_is_no_query(lake):
    code, stdout, stderr = call(lake, "search", "wrong", "--json")
    assert code == 0, stderr
    assert [row["id"] for row in json.loads(stdout)] == [f"crit-{FIRST}-1-1"]
    code, stdout, stderr = call(lake, "search", 'an "open phrase')
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: query ")


def test_a_lake_that_is_not_there_is_not_made(tmp_path):
    code, _, stderr = call(tmp_path / "lake", "search", "wrong")
    assert code == 2
    assert "there is no run in" in stderr
    assert not (tmp_path / "lake").exists()


def test_much_that_is_missing_is_said_and_not_waited_for(lake, monkeypatch, capsys):
    assert ids(lake, "wrong")
    monkeypatch.setattr(searching, "AT_ONCE", 0)
    commit(lake, [("more", critiques(SECOND, ["Wrong, too."]))])
    assert ids(lake, "wrong") == [f"crit-{FIRST}-1-1"]
    assert (
        "1 row is not indexed yet: `lpfloop lake reindex` adds what is missing"
        in capsys.readouterr().err
    )
    shutil.rmtree(index_folder(lake))
    with pytest.raises(IndexUnusableError, match="`lpfloop lake reindex` makes it"):
        ids(lake, "wrong")
    assert reindexed(lake, None, (), full=False, embed=False)["added"] == 7
    assert len(ids(lake, "wrong")) == 2


def test_a_search_does_not_wait_for_who_writes(lake):
    assert ids(lake, "wrong")
    commit(lake, [("more", critiques(SECOND, ["Wrong, too."]))])
    with writing(lake, None):
        assert ids(lake, "wrong") == [f"crit-{FIRST}-1-1"]
    assert len(ids(lake, "wrong")) == 2


def test_a_damaged_index_is_one_sentence_and_made_anew(lake):
    assert ids(lake, "wrong")
    for path in (index_folder(lake) / "tables").rglob("*.manifest"):
        path.write_bytes(b"")
    code, _, stderr = call(lake, "search", "wrong")
    assert code == 2
    assert "`lpfloop lake reindex --full` makes it anew" in stderr
    assert stderr.count("\n") == 1
    code, stdout, stderr = call(lake, "lake", "reindex", "--full")
    assert code == 0, stderr
    assert stdout == "6 rows added; the index holds 2 candidates, 2 critiques, 2 prompts\n"
    assert len(ids(lake, "wrong")) == 1


def test_a_damaged_run_does_not_stop_a_search(lake, capsys):
    assert ids(lake, "wrong")
    commit(lake, [("more", critiques(SECOND, ["Wrong, too."]))])
    for path in (run_folder(lake, "a") / "parts" / "critiques").glob("*.parquet"):
        path.write_bytes(b"")
    assert ids(lake, "wrong") == [f"crit-{FIRST}-1-1"]
    told = capsys.readouterr().err
    assert "is not brought up to date" in told
    assert "was altered" in told
    with pytest.raises(
        DamagedError, match=r"critiques/\w+.parquet was altered.*`lpfloop lake repair a`"
    ):
        reindex(lake)


def test_a_crash_while_indexing_repeats_a_batch_and_no_row(lake, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(IndexWriter, "_record", die)
        with pytest.raises(Killed):
            reindex(lake)
    assert reindex(lake).rows == 6
    index = Index(index_folder(lake))
    assert [index.count(table) for table in ("prompts", "candidates", "critiques")] == [2, 2, 2]
    assert reindex(lake).rows == 0


def test_a_run_goes_on_beside_an_index_that_is_no_index(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "index").write_text("not a folder")
    with stand_ins(lake):
        loop(lake, config=small_config(write_prompts(tmp_path)))


# what makes vectors


def config(*settings):
    return load_config("tiny", "rlrf", settings, {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["index.embedder.kind=none"], "there are no vectors"),
        (["index.embedder.kind=endpoint"], "index.embedder.model is missing"),
        (["index.embedder.model=/nowhere"], "no such model folder"),
        (["policy.model=http://127.0.0.1:9/v1"], "does not give hidden states"),
        (
            ["index.embedder.kind=endpoint", "index.embedder.model=http://127.0.0.1:9/v1"],
            "cannot be reached",
        ),
    ],
)
def test_an_embedder_that_can_not_be_used_is_a_matter_of_configuration(settings, said):
    with pytest.raises(ConfigError, match=said):
        configured(config(*settings))


@pytest.mark.skipif(
    find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed"
)
def test_sentence_transformers_are_used_only_where_installed(tmp_path):
    settings = ["index.embedder.kind=sentence-transformers", "index.embedder.model=tiny"]
    told = "sentence-transformers is not installed: .*pip install sentence-transformers"
    with pytest.raises(ConfigError, match=told), opened(configured(config(*settings)), tmp_path):
        pass


def test_words_alone_need_no_vectors_and_meaning_does(lake):
    assert ids(lake, "wrong")
    with pytest.raises(IndexUnusableError, match="`lpfloop lake reindex --embed`"):
        ids(lake, "wrong", by_meaning=True)


def test_only_settings_of_the_index_are_taken(lake):
    with pytest.raises(ConfigError, match="only settings of the index"):
        reindexed(lake, None, ["seed=1"], full=False, embed=False)


@pytest.mark.model
def test_the_policys_hidden_states_find_what_means_the_same(lake):
    done = reindexed(lake, None, (), full=False, embed=True)
    assert (done["vectors"]["kind"], done["vectors"]["dims"]) == ("policy", 128)
    wanted = TextSearch(text="A mile is 1609 metres.", by_meaning=True, by_words=False)
    best = search(lake, replace(wanted, table="candidates")).to_dicts()
    assert best[0]["id"] == f"cand-{FIRST}-1-0"
    assert best[0]["score"] == pytest.approx(1, abs=1e-4)
    assert best[1]["score"] < best[0]["score"]
    commit(lake, [("more", critiques(SECOND, ["Wrong, too."]))])
    assert reindex(lake).by_table["critiques"] == 1
    with pytest.raises(IndexUnusableError, match="not of this embedder"):
        reindexed(lake, None, ["index.embedder.max_tokens=9"], full=False, embed=True)
