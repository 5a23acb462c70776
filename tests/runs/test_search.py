"""Searching a lake: queries, results, and errors."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from rows import CANDIDATE, CRITIQUE, PROMPT
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.search.text_search import TextSearch, search
from lpfloop.stores.index import index_folder
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Critique, Message, Prompt


def opened(lake: Path, name: str = "a") -> RunWriter:
    """Open a run for writing, or make it."""
    folder = run_folder(lake, name)
    if (folder / JOURNAL).exists():
        return RunWriter(Journal(folder))
    return RunWriter(Journal.create(folder, {"config": '{"policy": {"model": "tiny"}}'}))


def prompts(texts: Sequence[str], *, task: str = "math", split: str = "train") -> list[Prompt]:
    return [
        replace(
            PROMPT,
            prompt_id=f"prompt-{split}-{task}-{n}",
            task=task,
            split=split,
            messages=(Message(role="user", content=text),),
        )
        for n, text in enumerate(texts)
    ]


def candidates(prompt: str, texts: Sequence[str], *, iteration: int = 1) -> list[Candidate]:
    return [
        replace(
            CANDIDATE,
            candidate_id=f"cand-{prompt}-{iteration}-{n}",
            prompt_id=prompt,
            iteration=iteration,
            text=text,
        )
        for n, text in enumerate(texts)
    ]


def critiques(prompt: str, texts: Sequence[str], *, iteration: int = 1) -> list[Critique]:
    return [
        replace(
            CRITIQUE,
            critique_id=f"crit-{prompt}-{iteration}-{n}",
            candidate_id=f"cand-{prompt}-{iteration}-{n}",
            prompt_id=prompt,
            iteration=iteration,
            text=text,
        )
        for n, text in enumerate(texts)
    ]


def commit(
    lake: Path, units: Sequence[tuple[str, Sequence[Prompt | Candidate | Critique]]], run: str = "a"
) -> None:
    """Commit units, each in a separate stage with rows of one kind."""
    writer = opened(lake, run)
    for stage, rows in units:
        iteration = getattr(rows[0], "iteration", 0)
        key = f"{run} {iteration} {stage}"
        writer.journal.plan(iteration, stage, key, lambda key=key: [key])
        writer.commit(key, {type(rows[0]): rows}, {})
    writer.close()


pytestmark = pytest.mark.skipif(
    find_spec("lancedb") is None, reason="the extra `lake` is not installed"
)

ASKED = prompts(["How long is a mile in metres?", "Name the capital of France."])
FIRST, SECOND = (prompt.prompt_id for prompt in ASKED)


def call(lake, *words):
    told = CliRunner().invoke(app, [*map(str, words), "--lake", str(lake)])
    return told.exit_code, told.stdout, told.stderr


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


def test_words_found_in_each_table(lake):
    assert ids(lake, "wrong conversions") == [f"crit-{FIRST}-1-1"]
    assert ids(lake, "1609", table="candidates") == [f"cand-{FIRST}-1-0"]
    assert ids(lake, "france", table="prompts") == [SECOND]


def test_committed_since_is_found(lake):
    assert ids(lake, "metres", iteration=2) == []
    commit(lake, [("critique", critiques(FIRST, ["Metres it is."], iteration=2))])
    assert ids(lake, "metres", iteration=2) == [f"crit-{FIRST}-2-0"]


def test_command_prints_rows(lake):
    code, stdout, stderr = call(lake, "search", "wrong", "--json")
    assert code == 0, stderr
    assert [row["id"] for row in json.loads(stdout)] == [f"crit-{FIRST}-1-1"]
    code, stdout, stderr = call(lake, "search", 'an "open phrase')
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error LPF-")


def test_damaged_index_rebuilt(lake):
    assert ids(lake, "wrong")
    for path in (index_folder(lake) / "tables").rglob("*.manifest"):
        path.write_bytes(b"")
    code, _, stderr = call(lake, "search", "wrong")
    assert code == 2
    assert "remove this folder" in stderr
    shutil.rmtree(index_folder(lake))
    assert len(ids(lake, "wrong")) == 1
