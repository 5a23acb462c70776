"""Pairs and critiques derived anew from a stored run, and runs trained from them."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from children import CHILD, train_child
from crash_scenarios import flip
from crashing import (
    RUN,
    Attempt,
    Silent,
    calls,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)
from typer.testing import CliRunner

from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.critics.judge import Question, Reading
from lpfloop.critics.rating_dictionary import AspectRatings
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.derived_run import given_by
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.derive.derivation import derived_rows
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.derive.reparse import reparse
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
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
    """A finished run of two iterations; nobody changes it."""
    with quick_folder(tmp_path_factory.mktemp("made")) as lake:
        config = small_config(write_prompts(lake), "recipe.n=6", "recipe.top_k=2")
        # What the tests ask is not noted here: each has a copy of its own.
        with stand_ins(lake):
            loop(lake, config=config)
        yield Made(lake=lake, config=config)


@pytest.fixture
def made(finished: Made, tmp_path: Path) -> Iterator[Made]:
    """A copy of the finished run; every question that is asked is noted."""
    with quick_folder(tmp_path) as folder:
        lake = folder / "lake"
        shutil.copytree(finished.lake, lake, ignore=shutil.ignore_patterns("*.sock"))
        with stand_ins(lake):
            yield replace(finished, lake=lake)


def derive(made: Made, **wanted: object):
    run = open_run(made.lake, RUN)
    try:
        return rederive(run, DerivationRequest(**{"rule": OWN, **wanted}))
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


@pytest.mark.parametrize("packed", [False, True])
def test_the_runs_own_rule_and_seed_give_the_runs_own_pairs(made, packed):
    if packed:
        from lpfloop.stores.packing import pack_all

        journal = Journal(made.folder)
        pack_all(journal)
        journal.close()
    told = derive(made)
    assert told.derived.name == f"{OWN}-k2"
    assert ordered(rows(made, "pairs", told.derived.name)) == ordered(rows(made, "pairs"))
    assert ordered(rows(made, "yields", told.derived.name)) == ordered(rows(made, "yields"))
    assert rows(made, "pairs")


def test_another_rule_gives_others_and_changes_nothing_of_the_run(made):
    before, asked = run_digest(made.folder), calls(made.lake)
    told = derive(made, rule=OWN, top_k=1, seed=7, iteration=2, name="other")
    found = rows(made, "pairs", "other")
    assert {row["iteration"] for row in found} == {2}
    assert {row["rank"] for row in found} == {0}
    assert told.derived.lineage["found"]["outcomes"]["paired"] == len(found)
    assert (run_digest(made.folder), calls(made.lake)) == (before, asked)


def test_a_run_with_distinct_positives_is_derived_as_it_was_made(tmp_path):
    limits = ("recipe.n=24", "recipe.top_k=4", "iterations=1")
    with quick_folder(tmp_path) as lake, stand_ins(lake):
        config = small_config(write_prompts(lake), *limits, "pairs.distinct_positives=true")
        loop(lake, config=config)
        made = Made(lake=lake, config=config)
        told = derive(made)
        assert told.derived.name == f"{OWN}-k4-distinct"
        for table in ("pairs", "yields"):
            assert ordered(rows(made, table, told.derived.name)) == ordered(rows(made, table))
        fates = [Counter[str](), Counter[str]()]
        for count, name in zip(fates, (None, told.derived.name), strict=True):
            for row in rows(made, "receipts", name):
                count[row["outcome"]] += row["count"]
        assert fates[0] == fates[1]
        assert min(fates[0]["kept"], fates[0]["repeated"]) > 0
        words = ["rederive", RUN, "--rule", OWN, "--no-distinct", "--json"]
        done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
        others = rows(made, "pairs", json.loads(done.stdout)["name"])
        for found, repeats in ((others, True), (rows(made, "pairs"), False)):
            chosen = [(row["prompt_id"], str(row["chosen"])) for row in found]
            assert (len(set(chosen)) < len(chosen)) == repeats


def disagreeing(made: Made, iteration: int) -> list[dict]:
    """What a person says of what the critic passes in an iteration: that it is wrong."""
    return [
        {
            "candidate_id": row["candidate_id"],
            "annotator": "human:ada",
            "ratings": dict.fromkeys((a["name"] for a in row["aspects"]), -1),
        }
        for row in rows(made, "critiques")
        if row["iteration"] == iteration and row["status"] == "scored"
        if all(aspect["rating"] == 1 for aspect in row["aspects"])
    ]


def annotate(made: Made, said: list[dict]) -> None:
    path = made.lake / "said.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in said))
    words = ("import", str(path), "--run", RUN, "--as", "annotations")
    done = CliRunner().invoke(app, [*words, "--lake", str(made.lake)])
    assert done.exit_code == 0, done.output


def test_people_decide_unless_they_are_ignored(made):
    before = derive(made, iteration=1, name="before")
    chosen = {row["chosen_id"] for row in rows(made, "pairs", "before")}
    said = [row for row in disagreeing(made, 1) if row["candidate_id"] in chosen]
    assert len(said) > 1
    said[1]["ratings"] = dict.fromkeys(said[1]["ratings"], 1)
    annotate(made, said[:2])
    after = derive(made, iteration=1)
    found = {row["chosen_id"] for row in rows(made, "pairs", after.derived.name)}
    assert [row["candidate_id"] in found for row in said[:2]] == [False, True]
    as_before = derive(made, iteration=1, people="ignored")
    assert rows(made, "pairs", as_before.derived.name) == rows(made, "pairs", "before")
    assert as_before.derived.name == f"{OWN}-k2-people-ignored-i1"
    assert after.derived.lineage["people"] == "decide"
    assert "people" not in before.derived.lineage
    with pytest.raises(DerivedError, match="made in another way"):
        derive(made, iteration=1, name="before")


def test_demonstrations_are_derived_too(made):
    told = derive(made, rule="success", top_k=1)
    found = rows(made, "demonstrations", told.derived.name)
    assert found
    assert {(row["rule"], row["rank"]) for row in found} == {("success", 0)}
    assert {rating for row in found for rating in row["ratings"]} == {1}


def test_blocks_do_not_matter(made, monkeypatch):
    derive(made, name="whole")
    monkeypatch.setattr("lpfloop.loop.lake.derive.judged_blocks.CANDIDATES_A_BLOCK", 1)
    derive(made, name="pieces")
    assert rows(made, "pairs", "whole") == rows(made, "pairs", "pieces")


def test_a_name_stands_for_one_lineage(made):
    assert not derive(made, name="mine").again
    files = {path: path.read_bytes() for path in (made.folder / "derived").rglob("*.parquet")}
    assert derive(made, name="mine").again
    with pytest.raises(DerivedError, match=r"made in another way \(top_k\): choose another --name"):
        derive(made, name="mine", top_k=1)
    assert all(path.read_bytes() == data for path, data in files.items())
    assert derived_names(made.folder) == ["mine"]


def test_it_is_made_while_a_daemon_holds_the_run(made):
    journal = Journal(made.folder)
    try:
        assert derive(made).derived.lineage["rows"]["pairs"] > 0
    finally:
        journal.close()


def test_nothing_half_made_is_left(made, monkeypatch):
    with pytest.raises(NothingToTrainOn, match=r"makes no pairs of run .* none_rated"):
        derive(made, rule="top_reward")
    monkeypatch.setattr("lpfloop.stores.derived.publish_folder", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        derive(made)
    assert derived_names(made.folder) == []
    assert [path.name for path in (made.folder / "derived").iterdir()] == ["run.lock"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"rule": "best"}, "--rule best: there is no such rule; the rules are success_vs_failure"),
        ({"iteration": 9}, "iteration 9 of run .* has no judged candidates; .* iterations 0, 1, 2"),
        ({"critiques": "x"}, "has no derived table 'x'; it has none"),
        ({"rule": "success", "distinct": False}, "demonstrations never repeat a text"),
        ({"rule": "overall", "distinct": True}, "leave out --derived, --top-k, --distinct"),
        (
            {"table": "prompts"},
            "--table prompts: only pairs, demonstrations, unpaired_answers can be derived",
        ),
        ({"name": "../x"}, "--name ../x: use 1 to 64 of a-z"),
    ],
)
def test_what_can_not_be_is_refused(made, wanted, said):
    with pytest.raises(DerivedError, match=said):
        derive(made, **wanted)


def test_an_unfinished_iteration_is_refused(made):
    journal = Journal(made.folder)
    journal.lose(journal.parts(table="critiques", iteration=2)[0].unit)
    journal.close()
    with pytest.raises(DerivedError, match=r"iteration 2 of run .* is not finished"):
        derive(made, iteration=2)
    assert {row["iteration"] for row in rows(made, "pairs", derive(made).derived.name)} == {1}


def test_the_same_parser_reads_the_same(made):
    told = read_again(made)
    found = told.derived.lineage["found"]
    assert (told.derived.name, found["read"] > 0) == ("reparsed", True)
    assert [found[key] for key in ("scored_to_unscored", "unscored_to_scored")] == [0, 0]
    assert ordered(rows(made, "critiques", "reparsed")) == ordered(rows(made, "critiques"))
    assert read_again(made).again
    derive(made, critiques="reparsed", name="again")
    assert rows(made, "pairs", "again") == rows(made, "pairs", derive(made).derived.name)
    flip(made.folder / "derived" / "reparsed" / "critiques.parquet")
    with pytest.raises(DamagedError, match="was altered"):
        derive(made, critiques="reparsed", name="never")


def test_another_parser_gives_other_critiques_and_other_pairs(made, monkeypatch):
    as_it_is = Question.read

    def severe(self, text: str, *rest: object) -> list[Reading[AspectRatings]]:
        if "can not say" in text:
            text = '{"Comprehension": -1, "Completeness": -1, "Readability": -1}'
        return as_it_is(self, text.replace(": 1", ": 0"), *rest)

    monkeypatch.setattr(Question, "read", severe)
    found = read_again(made, "severe").derived.lineage["found"]
    assert found["ratings_changed"] > 0
    assert found["scored_to_unscored"] == 0
    assert found["unscored_to_scored"] == sum(
        row["status"] != "scored" for row in rows(made, "critiques")
    )
    with pytest.raises(NothingToTrainOn, match="no_positive"):
        derive(made, critiques="severe", name="none")


def test_derived_tables_are_listed(made):
    derive(made)
    read_again(made)
    run = open_run(made.lake, RUN)
    first, second = derived_rows(run)
    run.close()
    assert (first["table"], first["rule"], first["top_k"]) == ("pairs", OWN, 2)
    assert (second["table"], second["name"]) == ("critiques", "reparsed")
    assert first["rows"] == len(rows(made, "pairs"))
    done = CliRunner().invoke(app, ["lake", "derived", RUN, "--lake", str(made.lake), "--json"])
    assert [row["name"] for row in json.loads(done.stdout)] == [first["name"], "reparsed"]


def test_the_commands_say_what_they_made(made):
    call = partial(CliRunner().invoke, app)
    where = ["--lake", str(made.lake)]
    done = call(["rederive", RUN, "--rule", OWN, "--json", *where])
    told = json.loads(done.stdout)
    assert (done.exit_code, told["again"], told["seed"]) == (0, False, 0)
    done = call(["rederive", RUN, "--rule", OWN, *where])
    assert f"{OWN}-k2 was there already, with {told['rows']['pairs']} pairs" in done.stdout
    assert call(["rederive", RUN, "--rule", "worst", *where]).exit_code == 2
    assert call(["rederive", RUN, "--rule", "top_reward", *where]).exit_code == 4
    done = call(["lake", "reparse", RUN, *where])
    assert "0  ratings changed" in done.stdout
    assert call(["train", RUN, "--derived", "nothing", *where]).exit_code == 2


def test_answers_from_elsewhere_are_paired_by_what_people_said_of_them(tmp_path):
    call = partial(CliRunner().invoke, app)
    answers = [
        {"prompt": "Name a prime.", "response": text, "annotator": "ada", "ratings": {"Right": r}}
        for text, r in (("7", 1), ("9", -1), ("It is 8.", 0))
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in answers))
    where = ["--lake", str(tmp_path)]
    assert call(["import", str(path), "--run", "answers", *where]).exit_code == 0
    done = call(["rederive", "answers", "--rule", OWN, "--name", "mine", *where])
    assert (done.exit_code, "mine holds 1 pairs" in done.stdout) == (0, True)
    (row,) = scan_derived(run_folder(tmp_path, "answers"), "mine", "pairs").collect().to_dicts()
    assert row["chosen"][0]["content"] == "7"
    assert row["rejected"][0]["content"] in {"9", "It is 8."}
    assert call(["lake", "reparse", "answers", *where]).exit_code == 2
    assert call(["train", "answers", "--derived", "mine", *where]).exit_code == 2


# training


def child(made: Made, name: str, iteration: int | None = None) -> None:
    """Train a child run from a derived table."""
    train_child(made.lake, config=made.config, name=name, iteration=iteration)


def numbers(made: Made, name: str) -> pl.DataFrame:
    run = open_run(made.lake, name)
    # How a policy's style differs from the one before is unknown to a child that begins with it.
    measured = run.scan("evaluations").filter(pl.col("benchmark") != "style").collect()
    found = measured.sort("iteration", "benchmark", "metric")
    run.close()
    return found


def checkpoints(made: Made, name: str) -> dict[int, dict]:
    run = open_run(made.lake, name)
    found = {row["iteration"]: row for row in run.scan("checkpoints").collect().to_dicts()}
    run.close()
    return found


@pytest.mark.crash
@pytest.mark.parametrize("iteration", [1, 2])
def test_a_child_trains_from_given_rows_and_begins_where_its_parent_began(made, iteration):
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
    before = pl.col("iteration") == iteration - 1
    assert numbers(made, CHILD).filter(before).equals(numbers(made, RUN).filter(before))
    assert numbers(made, CHILD)["iteration"].unique().sort().to_list() == [iteration - 1, iteration]
    again = [line for line in calls(made.lake) if line in asked]
    assert all(calls(made.lake)[line] == 1 for line in again)
    looked = whole(made.lake, CHILD)
    assert (looked.owed, looked.damaged, looked.repeated) == ([], [], [])


@pytest.mark.crash
def test_a_child_is_whole_without_its_parent_and_goes_on_by_its_recipe(made):
    derive(made, name="given")
    child(made, "given", 2)
    shutil.rmtree(made.folder)
    config = made.config.model_copy(update={"iterations": 3})
    run_loop(Job(config=config, lake=made.lake, name=CHILD), Silent(), StopSignal())
    looked = whole(made.lake, CHILD)
    assert (looked.owed, looked.damaged) == ([], [])
    assert looked.rows["checkpoints"] == 3


@pytest.mark.crash
@pytest.mark.parametrize("at", ["lake.commit.before#2", "checkpoint.published", "stage.unit#2"])
def test_a_child_that_was_killed_and_resumed_has_the_same_digest(made, tmp_path, at):
    derive(made, name="given")
    straight = replace(made, lake=tmp_path / "straight")
    shutil.copytree(made.lake, straight.lake, ignore=shutil.ignore_patterns("*.sock"))
    work = partial(train_child, config=made.config, name="given", iteration=2)
    Attempt(lake=straight.lake, work=work).finish()
    assert Attempt(lake=made.lake, work=work, points={at: "kill"}).start() != 0
    Attempt(lake=made.lake, work=work).finish()
    assert whole(made.lake, CHILD) == whole(straight.lake, CHILD)


@pytest.mark.crash
def test_demonstrations_are_trained_by_sft(made):
    derive(made, rule="success", name="given")
    child(made, "given")
    assert checkpoints(made, CHILD)[2]["steps"] == 1
    run = open_run(made.lake, CHILD)
    assert run.scan("demonstrations").collect().height > 0
    run.close()


def test_what_nothing_can_be_trained_from_is_refused(made):
    read_again(made)
    derive(made, name="few", iteration=1)
    with pytest.raises(DerivedError, match="holds critiques; `lpfloop rederive"):
        child(made, "reparsed")
    with pytest.raises(DerivedError, match="no rows to train iteration 2 on; it has those of 1"):
        child(made, "few", 2)
    strict = made.config.model_copy(
        update={"training": made.config.training.model_copy(update={"min_pairs": 10**6})}
    )
    with pytest.raises(NothingToTrainOn, match=r"fewer than training\.min_pairs=1000000"):
        train_child(made.lake, config=strict, name="few")
    assert not run_folder(made.lake, CHILD).exists()
    flip(made.folder / "derived" / "few" / "pairs.parquet")
    with pytest.raises(DamagedError, match="was altered"):
        child(made, "few")


@pytest.mark.crash
def test_a_child_that_is_there_is_not_trained_over(made):
    derive(made, name="given")
    child(made, "given", 1)
    run = open_run(made.lake, RUN)
    given = given_by(run, "given", 1, made.config)
    run.close()
    with pytest.raises(ConfigError, match="exists already: `lpfloop resume child` goes on with it"):
        run_loop(
            Job(config=made.config, lake=made.lake, name=CHILD, fork=RUN, given=given),
            Silent(),
            StopSignal(),
        )
