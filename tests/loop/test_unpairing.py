"""Successes and failures by themselves: what is a row, what is left out, and what it trains."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from crashing import KILLED, RUN, Attempt, loop, quick_folder, stand_ins, whole, write_prompts
from crashing import SMALL as CRASHING

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.derived_run import given_by
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.pairs import CONTRADICTED, EITHER, REPEATED, Outcome, Pairing, unpair
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.data.receipts import accounts
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.trace.find_row import find
from lpfloop.loop.lake.trace.lineage import lineage
from lpfloop.loop.lake.trace.show import shown
from lpfloop.loop.recipes.smoke_needs import trainings
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.stores.derived import DerivedError
from lpfloop.stores.lake import RunReader

SMALL = tuple(s for s in CRASHING if not s.startswith(("recipe.m=", "recipe.top_k=")))
HOW = Pairing(rule=EITHER, top_k=1, root_seed=0, iteration=1)
PROMPTS = pl.DataFrame(
    {"prompt_id": ["a", "b"], "messages": [[{"role": "user", "content": "?"}]] * 2}
)


def answer(name: str, prompt: str, text: str, *, success: bool | None) -> dict[str, object]:
    return {
        "prompt_id": prompt,
        "candidate_id": f"cand-{name}",
        "text": text,
        "usable": True,
        "reward": None,
        "ratings": [] if success is None else [1 if success else 0],
        "success": success is True,
        "failure": success is False,
    }


SCHEMA = {"reward": pl.Float64, "ratings": pl.List(pl.Int8)}


def test_each_text_is_a_success_or_a_failure_once_and_never_both():
    judged = pl.DataFrame(
        [
            answer("1", "a", "good", success=True),
            answer("2", "a", " good", success=True),
            answer("3", "a", "bad", success=False),
            answer("4", "a", "unread", success=None),
            answer("5", "a", "disputed", success=True),
            answer("6", "a", "disputed", success=False),
            answer("7", "b", "good", success=False),
        ],
        schema_overrides=SCHEMA,
    )
    made = unpair(judged, PROMPTS, HOW)
    labels = dict(made.rows.select("candidate_id", "label").iter_rows())
    assert labels == {"cand-1": True, "cand-3": False, "cand-7": False}
    assert {*made.yields["outcome"]} == {Outcome.UNPAIRED}
    (account,) = accounts(made.receipts)
    assert {o.outcome: o.count for o in account.outcomes} == {
        "kept": 3, REPEATED: 1, CONTRADICTED: 2
    }  # fmt: skip
    assert unpair(judged.reverse(), PROMPTS, HOW).rows.equals(made.rows)


def test_a_prompt_whose_answers_say_nothing_has_none():
    judged = pl.DataFrame(
        [
            answer("1", "a", "same", success=True),
            answer("2", "a", "same", success=False),
            answer("3", "b", "unread", success=None),
        ],
        schema_overrides=SCHEMA,
    )
    made = unpair(judged, PROMPTS, HOW)
    assert made.rows.is_empty()
    assert made.yields["outcome"].to_list() == [Outcome.ALL_IDENTICAL, Outcome.NONE_RATED]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder, stand_ins(folder):
        loop(folder, config=config_of(folder))
        yield folder


@pytest.fixture
def run(lake: Path) -> Iterator[RunReader]:
    reader = open_run(lake, RUN)
    yield reader
    reader.close()


def config_of(lake: Path, *more: str) -> RunConfig:
    source = f"prompts.source={write_prompts(lake)}"
    return load_config("tiny", "kto", (*SMALL, "recipe.n=4", source, *more), {})


def test_the_recipe_trains_on_every_verdict_and_asks_no_reward_model(run: RunReader):
    rows = run.scan("unpaired_answers", iteration=1).collect()
    said = run.scan("critiques", iteration=1).collect()
    passed = {
        row["candidate_id"]: all(a["rating"] == 1 for a in row["aspects"])
        for row in said.to_dicts()
        if row["status"] == "scored"
    }
    assert rows.height > 2
    for row in rows.to_dicts():
        assert row["label"] == passed[row["candidate_id"]]
        assert row["completion"][0]["role"] == "assistant"
    assert run.scan("rewards").collect().is_empty()
    assert run.scan("pairs").collect().is_empty()
    stages = {s.stage for s in run.journal.stages() if s.iteration == 1}
    assert {"sample", "critique:sample", "unpair", "train"} <= stages
    checkpoint = run.scan("checkpoints", iteration=1).collect().to_dicts()[0]
    assert checkpoint["recipe"] == "kto"


def test_a_row_is_shown_and_traced(run: RunReader):
    row = run.scan("unpaired_answers", iteration=1).collect().to_dicts()[0]
    found = find(run, row["unpaired_id"][:12])
    assert found.id == row["unpaired_id"]
    side = "a success" if row["label"] else "a failure"
    assert f"rule {EITHER}; {side} for" in str(shown(run, found))
    told = lineage(run, found)
    relations = {(e.source, e.relation) for e in told.edges if e.target == row["unpaired_id"]}
    assert (row["candidate_id"], side) in relations
    assert "judged" in {relation for _, relation in relations}
    assert "trained on" in {e.relation for e in told.edges if e.source == row["unpaired_id"]}


def test_rows_are_exported_as_trl_takes_them(lake: Path, run: RunReader, tmp_path: Path):
    job = Export(
        lake=lake, name=RUN, table="unpaired_answers", form="trl-kto", target=tmp_path / "out"
    )
    export_table(job)
    table = pq.read_table(tmp_path / "out" / "train.parquet")
    assert table.num_rows == run.scan("unpaired_answers").collect().height
    assert {"prompt", "completion", "label", "unpaired_id", "candidate_id"} <= {*table.column_names}


def test_any_judged_run_gives_such_rows_again_and_a_child_can_train_on_them(
    lake: Path, run: RunReader
):
    told = rederive(run, DerivationRequest(rule=EITHER))
    assert told.derived.name == EITHER
    made = told.derived.scan("unpaired_answers").collect()
    own = run.scan("unpaired_answers").collect()
    assert {*made["unpaired_id"]} == {*own["unpaired_id"]}
    given = given_by(run, EITHER, 1, config_of(lake))
    assert (given.table, given.iteration) == ("unpaired_answers", 1)
    with pytest.raises(DerivedError, match="makes no pairs: leave --table out"):
        rederive(run, DerivationRequest(rule=EITHER, table="pairs"))
    with pytest.raises(DerivedError, match="makes no unpaired_answers"):
        rederive(run, DerivationRequest(rule="top_reward", table="unpaired_answers"))


def test_failures_alone_are_not_trained_on_and_the_counts_are_told(lake: Path):
    config = config_of(lake, "critic.engine.script=critics_of_rounds:content", "iterations=1")
    with pytest.raises(NothingToTrainOn, match=r"\d+ successes and 0 failures, and KTO learns"):
        loop(lake, config=config, name="content")


def test_the_plan_and_the_smoke_test_know_the_training(lake: Path):
    config = config_of(lake)
    assert trainings(config) == ("kto",)
    prompts = load_prompts(config.prompts, seed=config.seed)
    stages = {s.stage: s for s in planned(config, prompts, lake / "planned").stages}
    assert stages["critique:sample"].calls == stages["sample"].calls > 0
    assert "unpair" in stages


@pytest.mark.crash
@pytest.mark.parametrize("place", ["stage.end#5", "checkpoint.published", "part.rename.before#9"])
def test_killed_and_resumed_it_ends_with_equal_rows(lake: Path, tmp_path: Path, place: str):
    work = partial(loop, config=config_of(lake))
    assert Attempt(lake=tmp_path, work=work, points={place: "kill"}).start() == KILLED
    Attempt(lake=tmp_path, work=work).finish()
    assert whole(tmp_path).digest == whole(lake).digest
    assert whole(tmp_path).owed == []


def test_a_pass_of_one_answer_is_refused_before_anything_is_paid(lake: Path):
    with pytest.raises(ValueError, match=r"--set: training\.kto: micro_batch_size is 1"):
        config_of(lake, "training.kto.micro_batch_size=1", "training.kto.batch_size=1")


def test_prompts_are_those_of_the_rows(run: RunReader):
    row = run.scan("unpaired_answers").collect().to_dicts()[0]
    prompts = run.scan("prompts").filter(pl.col("prompt_id") == row["prompt_id"]).collect()
    assert row["prompt"] == prompts["messages"].to_list()[0]
