"""`lpfloop.open`: a run in Python, read-only, light to import, safe during writes."""

import json
import re
from dataclasses import replace

import pytest
from lakes import M1, PAIRED, candidate, critique, prompt, told_run, write_run

import lpfloop
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Prompt


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    told_run(folder)
    return folder


@pytest.fixture
def run(lake):
    with lpfloop.open(lake / "runs" / "told") as run:
        yield run


def test_a_run_is_opened_by_name_or_folder(lake, environ):
    for run in (
        lpfloop.open(str(lake / "runs" / "told")),
        lpfloop.open("told", lake=lake),
        lpfloop.open(lake=str(lake)),
    ):
        assert run.name == "told"
        run.close()
    environ["LPFLOOP_LAKE"] = str(lake)
    with lpfloop.open("told") as run:
        assert run.folder == lake / "runs" / "told"
        assert repr(run).startswith(f"run told in {lake}/runs/told: ")
    assert repr(run) == f"lpfloop.open('{lake}/runs/told'), closed"


def test_rows_committed_meanwhile_are_seen(tmp_path):
    folder = run_folder(tmp_path, "live")
    writer = RunWriter(Journal.create(folder, {"config": "{}"}))
    writer.journal.plan(1, "made", "x", lambda: ["k0", "k1"])
    with lpfloop.open(folder) as run:
        writer.commit("k0", {Candidate: [candidate("a", PAIRED, "one")]}, {})
        writer.flush()
        before = run.candidates()
        writer.commit("k1", {Candidate: [candidate("b", PAIRED, "two")]}, {})
        writer.flush()
        assert before.collect().height == 1
        assert run.candidates().collect().height == 2
    writer.close()


def test_show(run):
    shown = run.show("cand-better")
    assert "▶ refinement cand-better" in str(shown)
    assert "{+right +}" in str(shown)
    assert json.loads(json.dumps(shown.document))["prompt"]["prompt_id"] == "prompt-1"
    assert "M_1 of run told" in str(run.show(M1))
    assert run.show(M1).document == run.model("M_1").as_json()


def test_hostile_text_is_shown_as_text(tmp_path):
    asked = replace(prompt(1), task="<img src=x onerror=alert(1)>", reference="\u202e</div>")
    answer = candidate("<b>", asked, "<script>alert(1)</script>\x1b[2J")
    said = critique(answer, 1)
    tables = {1: {Prompt: [asked], Candidate: [answer], type(said): [said]}}
    with lpfloop.open(write_run(tmp_path, "hostile", tables)) as run:
        told = str(run.show("prompt-1"))
    assert not [bad for bad in ("\x1b", "\u202e") if bad in told]


BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_guides_examples_run(root, tmp_path, environ, capsys):
    pytest.importorskip("datasets")
    told_run(tmp_path, "tiny-rlrf")
    environ["LPFLOOP_LAKE"] = str(tmp_path)
    names = {}
    for block in BLOCK.findall((root / "docs" / "python.md").read_text()):
        exec(compile(block, "docs/python.md", "exec"), names)  # noqa: S102 -- our own guide
    assert names["dataset"].num_rows == 1
    assert names["means"].height == 3
    assert names["worse"]["prompt_id"].to_list() == ["prompt-14"]
    assert "pair pair-made" in capsys.readouterr().out
