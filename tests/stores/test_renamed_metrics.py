"""Metrics of older runs that mean something else by now are read under their new names."""

from contextlib import closing
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from examples import PROMPT, SCORE
from lpfloop.loop.cli.app import app
from lpfloop.loop.run.fork import Fork
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Unit
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.migrations import RENAMED, SENTENCE_MATCH
from lpfloop.stores.records import Prompt, Score

SCORES = [replace(SCORE, metric=name) for name in ("fact_score", "facts_right", "mean_length")]
NEW = ["mean_length", "sentence_match", "sentences_right"]
NAMES = {"old": {RENAMED: canonical_json(dict(SENTENCE_MATCH))}, "new": {}}


@pytest.fixture(params=NAMES)
def run(tmp_path, request):
    """A run's scores: of one that was migrated, and of one that began under the names of now."""
    journal = Journal.create(run_folder(tmp_path / "lake", request.param), NAMES[request.param])
    with closing(RunWriter(journal)) as writer:
        writer.journal.plan(0, "measure:held-out", "x", lambda: ["u"])
        writer.commit("u", {Prompt: [PROMPT], Score: SCORES}, {})
        writer.flush()
        yield writer


def test_every_reader_sees_the_names_of_now(run):
    known = NEW if run.folder.name == "old" else sorted(score.metric for score in SCORES)
    with closing(RunReader(run.folder)) as reader:
        (about,) = reader.about(PROMPT.prompt_id, ["scores"])
        parts = reader.scan_parts("scores", reader.journal.parts(table="scores"))
        narrow = reader.scan("scores", columns={"metric"})
        for rows in (reader.scan("scores"), about, parts, narrow):
            assert sorted(rows.collect()["metric"].to_list()) == known
        assert reader.scan("scores", columns={"value"}).collect().height == len(SCORES)
    assert sorted(row.metric for row in run.rows(Score, "u")) == known
    lake = str(run.folder.parent.parent)
    query = "select metric from scores order by metric"
    told = CliRunner().invoke(app, ["sql", query, "--lake", lake, "--format", "csv"])
    assert told.stdout.split() == ["metric", *known], told.stderr


def test_a_fork_measures_anew_what_was_called_otherwise(run, tmp_path):
    child = Journal.create(run_folder(tmp_path / "lake", "child"), {})
    with closing(RunWriter(child)) as writer, closing(RunReader(run.folder)) as parent:
        writer.journal.plan(0, "measure:held-out", "x", lambda: ["u"])
        left = Fork(parent=parent).adopt(writer, [Unit(key="u", chunk=0)])
        writer.flush()

    assert len(left) == (run.folder.name == "old")
