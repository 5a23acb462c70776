"""Pairs and critiques derived from a stored run, and runs trained from them."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crashes import CHILD, flip, train_child
from typer.testing import CliRunner
from world import RUN, calls, loop, quick_folder, small_config, stand_ins, whole, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
from lpfloop.loop.lake.derive.reparse import reparse
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.derived import DerivedError, derived_names, scan_derived
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder
from lpfloop.stores.sealed import DamagedError

OWN = "success_vs_failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    lake: Path
    config: RunConfig

    @property
    def folder(self) -> Path:
        return run_folder(self.lake, RUN)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A finished run of two iterations, read-only by convention."""
    with quick_folder(tmp_path_factory.mktemp("made")) as lake:
        config = small_config(write_prompts(lake), "recipe.n=6", "recipe.top_k=2")
        # This lake does not record the tests' questions: each test works on a copy.
        with stand_ins(lake):
            loop(lake, config=config)
        yield Made(lake=lake, config=config)


@pytest.fixture
def made(finished: Made, tmp_path: Path) -> Iterator[Made]:
    """A copy of the finished run; the fake models record every question."""
    with quick_folder(tmp_path) as folder:
        lake = folder / "lake"
        shutil.copytree(finished.lake, lake, ignore=shutil.ignore_patterns("*.sock"))
        with stand_ins(lake):
            yield replace(finished, lake=lake)


def derive(made: Made, **wanted: object):
    run = open_run(made.lake, RUN)
    try:
        return rebuild_pairs(run, DerivationRequest(**{"rule": OWN, **wanted}))
    finally:
        run.close()


def read_again(made: Made, name: str | None = None):
    run = open_run(made.lake, RUN)
    try:
        return reparse(run, name)
    finally:
        run.close()


def rows(made: Made, table: str, name: str | None = None) -> list[dict]:
    if name is not None:
        return scan_derived(made.folder, name, table).collect().to_dicts()
    run = open_run(made.lake, RUN)
    found = run.scan(table).collect().to_dicts()
    run.close()
    return found


def ordered(found: list[dict]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def test_own_rule_gives_own_pairs(made):
    """It also works while a daemon has the run's lock."""
    journal = Journal(made.folder)
    for name in (None, "again"):
        found = derive(made, name=name).derived.name
        assert ordered(rows(made, "pairs", found)) == ordered(rows(made, "pairs")) != []
        assert ordered(rows(made, "pairing_outcomes", found)) == ordered(
            rows(made, "pairing_outcomes")
        )
    journal.close()


def test_people_decide_unless_ignored(made):
    before = derive(made, iteration=1, name="before")
    chosen = [row["chosen_id"] for row in rows(made, "pairs", "before")]
    wrong = {"candidate_id": chosen[0], "annotator": "human:ada"}
    (judged,) = (row for row in rows(made, "critiques") if row["candidate_id"] == chosen[0])
    wrong["ratings"] = dict.fromkeys((a["name"] for a in judged["aspects"]), -1)
    path = made.lake / "said.jsonl"
    path.write_text(json.dumps(wrong) + "\n")
    words = ("import", str(path), "--run", RUN, "--as", "annotations", "--lake", str(made.lake))
    assert CliRunner().invoke(app, words).exit_code == 0
    after = derive(made, iteration=1)
    found = {row["chosen_id"] for row in rows(made, "pairs", after.derived.name)}
    assert chosen[0] not in found
    as_before = derive(made, iteration=1, people="ignored")
    assert rows(made, "pairs", as_before.derived.name) == rows(made, "pairs", "before")
    assert after.derived.lineage["people"] == "decide"
    assert "people" not in before.derived.lineage


def test_name_maps_to_one_lineage(made):
    before, asked = run_digest(made.folder), calls(made.lake)
    assert not derive(made, name="mine").again
    assert derive(made, name="mine").again
    with pytest.raises(DerivedError, match="top_k"):
        derive(made, name="mine", top_k=1)
    assert derived_names(made.folder) == ["mine"]
    assert (run_digest(made.folder), calls(made.lake)) == (before, asked)


def test_refused_derivations(made, monkeypatch, subtests):
    for wanted, said in [
        ({"rule": "best"}, "--rule best"),
        ({"iteration": 9}, "iteration 9"),
        ({"critiques": "x"}, "'x'"),
        ({"name": "../x"}, "--name ../x"),
    ]:
        with subtests.test(wanted=wanted, said=said), pytest.raises(DerivedError, match=said):
            derive(made, **wanted)
    monkeypatch.setattr("lpfloop.stores.derived.publish_folder", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        derive(made)
    assert [path.name for path in (made.folder / "derived").iterdir()] == ["run.lock"]


def test_same_parser_reads_the_same(made):
    told = read_again(made)
    found = told.derived.lineage["found"]
    assert (told.derived.name, found["read"] > 0) == ("reparsed", True)
    assert [found[key] for key in ("scored_to_unscored", "unscored_to_scored")] == [0, 0]
    assert ordered(rows(made, "critiques", "reparsed")) == ordered(rows(made, "critiques"))
    assert read_again(made).again
    derive(made, critiques="reparsed", name="again")
    assert rows(made, "pairs", "again") == rows(made, "pairs", derive(made).derived.name)
    flip(made.folder / "derived" / "reparsed" / "critiques.parquet")
    with pytest.raises(DamagedError, match="altered"):
        derive(made, critiques="reparsed", name="never")


# training


def child(made: Made, name: str, iteration: int | None = None) -> None:
    """Train a child run from a derived table."""
    train_child(made.lake, config=made.config, name=name, iteration=iteration)


def checkpoints(made: Made, name: str) -> dict[int, dict]:
    run = open_run(made.lake, name)
    found = {row["iteration"]: row for row in run.scan("checkpoints").collect().to_dicts()}
    run.close()
    return found


def test_child_trains_from_given_rows(made):
    iteration = 2
    derive(made, top_k=1, seed=5, name="given")
    asked = set(calls(made.lake))
    child(made, "given", iteration)
    mine, theirs = checkpoints(made, CHILD), checkpoints(made, RUN)
    assert mine[iteration - 1] == theirs[iteration - 1]
    assert mine[iteration]["parent_id"] == theirs[iteration - 1]["checkpoint_id"]
    assert mine[iteration]["checkpoint_id"] != theirs[iteration]["checkpoint_id"]
    run = open_run(made.lake, CHILD)
    found = run.scan("pairs").collect().to_dicts()
    run.close()
    expected = [row for row in rows(made, "pairs", "given") if row["iteration"] == iteration]
    assert found == expected
    assert all(times == 1 for line, times in calls(made.lake).items() if line in asked)
    looked = whole(made.lake, CHILD)
    assert (looked.pending, looked.damaged, looked.repeated) == ([], [], [])
