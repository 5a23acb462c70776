"""`lpfloop show`: its output for an id."""

import json

import pytest
from lakes import PAIRED, told_run, write_run
from rich.console import Console
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.stores.records import Prompt


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with two runs of the same rows; `told` is the later one."""
    folder = tmp_path_factory.mktemp("show")
    write_run(folder, "older", {0: {Prompt: [PAIRED]}})
    told_run(folder)
    return folder


@pytest.fixture
def call(lake, monkeypatch):
    def call(*arguments, width=80):
        monkeypatch.setattr(Console, "_environ", {"COLUMNS": str(width)})
        return CliRunner().invoke(app, [*map(str, arguments), "--lake", str(lake)])

    return call


def test_ids_and_their_beginnings(call, subtests):
    for identity in ("prompt-1", "cand-goo", "crit-better", "pref-made", "pair-"):
        with subtests.test(identity=identity):
            told = call("show", identity)
            assert told.exit_code == 0, told.stderr
            assert told.stdout.startswith("prompt-1, run told")
            assert "five" in told.stdout


def test_bad_ids_are_refused(call, subtests):
    for identity, told in (
        ("cand-nobody", "id 'cand-nobody' is not in any run"),
        ("cand-g", "13 ids begin with 'cand-g', such as cand-"),
        ("", "the id is empty"),
        ("\x1b[2J", "is not in any run"),
    ):
        with subtests.test(identity=identity):
            refused = call("show", identity)
            assert refused.exit_code == 2
            assert refused.stdout == ""
            assert "\x1b" not in refused.stderr
            assert told in " ".join(refused.stderr.split())


def test_json_holds_all_rows(call):
    document = json.loads(call("show", "pair-made", "--json").stdout)
    assert document["requested"] == {"kind": "pair", "id": "pair-made", "prompt_id": "prompt-1"}
    ids = [row["candidate_id"] for row in document["candidates"]]
    assert ids == ["cand-good", "cand-bad", "cand-better"]
    assert document["pairs"][0]["pair_id"] == "pair-made"
    assert "margin +1.250 (1.500 - 0.250)" in document["why"]["pair-made"]
    assert "Completeness -1, Readability 0" in document["why"]["pair-made"]
    older = json.loads(call("show", "prompt-1", "older", "--json").stdout)
    assert (document["run"], older["run"], older["candidates"]) == ("told", "older", [])


def test_page_leads_to_critique_checkpoint(call):
    told = " ".join(call("show", "pair-made", width=200).stdout.split())
    assert "refines cand-good, after critique crit-good" in told
    assert "M_1 was trained on rows of this iteration" in told
