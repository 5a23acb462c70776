"""Critique distillation in the loop: its rows, what it asks and refuses, what a kill changes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from crashing import (
    KILLED,
    RUN,
    SMALL,
    Attempt,
    loop,
    quick_folder,
    stand_ins,
    whole,
    write_prompts,
)

import lpfloop
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.trace.find_row import find
from lpfloop.loop.lake.trace.lineage import lineage
from lpfloop.loop.lake.trace.show import shown
from lpfloop.loop.recipes.roles import needed_roles, trains
from lpfloop.loop.recipes.smoke_needs import trainings
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.stores.lake import RunReader, run_folder

VARIANT = "critique-distillation"
SETTINGS = (
    *(told for told in SMALL if not told.startswith("recipe.")),
    "recipe.n=2",
    "recipe.m=3",
    "prompts.per_iteration=6",
)


def configured(folder: Path, *more: str) -> RunConfig:
    source = f"prompts.source={write_prompts(folder, 12)}"
    return load_config("tiny", VARIANT, (*SETTINGS, source, *more), {})


def made(folder: Path, *more: str) -> RunReader:
    with stand_ins(folder):
        loop(folder, config=configured(folder, *more))
    return open_run(folder, RUN)


@contextmanager
def ran(place: Path, *more: str) -> Iterator[tuple[Path, RunReader]]:
    with quick_folder(place) as folder:
        run = made(folder, *more)
        yield folder, run
        run.close()


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RunReader]]:
    """A run in which those refinements are learned that the critic passes."""
    with ran(tmp_path_factory.getbasetemp()) as run:
        yield run


def rows(run: RunReader, table: str) -> pl.DataFrame:
    return run.scan(table).collect()


def by_id(run: RunReader, table: str, name: str) -> dict[str, dict[str, Any]]:
    return {row[name]: row for row in rows(run, table).to_dicts()}


def verdict(critique: dict[str, Any]) -> bool:
    scored = critique["status"] == "scored"
    return scored and all(aspect["rating"] == 1 for aspect in critique["aspects"])


def test_a_row_shows_the_teacher_what_the_refinement_was_drawn_after(passed) -> None:
    _, run = passed
    candidates = by_id(run, "candidates", "candidate_id")
    critiques = by_id(run, "critiques", "critique_id")
    prompts = by_id(run, "prompts", "prompt_id")
    learned = rows(run, "distillations").to_dicts()
    assert {row["iteration"] for row in learned} == {1, 2}
    for row in learned:
        z = candidates[row["candidate_id"]]
        draft, critique = candidates[z["parent_id"]], critiques[z["critique_id"]]
        assert z["kind"] == "refinement"
        assert row["completion"] == [{"role": "assistant", "content": z["text"]}]
        assert row["prompt"] == prompts[row["prompt_id"]]["messages"]
        question = row["teacher_prompt"][-1]["content"]
        asked = row["prompt"][-1]["content"]
        assert asked in question
        assert draft["text"] in question
        assert critique["text"].splitlines()[0] in question
        assert question != asked


def test_those_that_the_critic_passes_are_learned_and_no_others(passed) -> None:
    _, run = passed
    said = {row["candidate_id"]: row for row in rows(run, "critiques").to_dicts()}
    refined = rows(run, "candidates").filter(kind="refinement")["candidate_id"].to_list()
    learned = rows(run, "distillations")
    assert {*learned["candidate_id"]} == {z for z in refined if verdict(said[z])}
    assert 0 < learned.height < len(refined)
    assert {*learned["rule"]} == {"refined_success"}
    assert all(ratings and {*ratings} == {1} for ratings in learned["ratings"].to_list())
    yields = rows(run, "yields")
    assert yields["made"].sum() == learned.height
    assert {"distilled", "no_positive"} <= {*yields["outcome"]}


def test_where_all_are_learned_the_critic_is_not_asked_about_them(tmp_path: Path) -> None:
    with ran(tmp_path, "recipe.learn=all", "training.reference=initial") as (_, run):
        refined = rows(run, "candidates").filter(kind="refinement")
        learned = rows(run, "distillations")
        assert {*learned["candidate_id"]} == {*refined["candidate_id"]}
        judged = rows(run, "critiques").join(refined, on="candidate_id", how="semi")
        assert judged.height == 0
        assert {tuple(ratings) for ratings in learned["ratings"].to_list()} == {()}
        # The teacher is who wrote them, whatever DPO's reference would be.
        checkpoints = rows(run, "checkpoints").filter(pl.col("iteration") > 0)
        assert checkpoints["reference_id"].to_list() == checkpoints["parent_id"].to_list()
        assert {*rows(run, "statistics")["method"]} <= {"distil"}


def test_failures_alone_can_be_refined(tmp_path: Path) -> None:
    with ran(tmp_path, "recipe.refine=failures", "recipe.learn=all") as (_, run):
        refined = rows(run, "candidates").filter(kind="refinement")
        said = by_id(run, "critiques", "critique_id")
        assert refined.height
        assert not any(verdict(said[identity]) for identity in refined["critique_id"])
        assert "no_refinement" in {*rows(run, "yields")["outcome"]}


@pytest.mark.crash
def test_a_run_killed_at_any_of_its_stages_ends_with_the_same_rows(tmp_path: Path, passed) -> None:
    folder, _ = passed
    work = partial(loop, config=configured(tmp_path))
    lake = tmp_path / "killed"
    lake.mkdir()
    for number in (6, 4, 3):
        attempt = Attempt(lake=lake, work=work, points={f"stage.end#{number}": "kill"})
        assert attempt.start() == KILLED
    Attempt(lake=lake, work=work).finish()
    assert whole(lake) == whole(folder)


def test_without_refinements_nothing_is_trained_and_the_prompts_are_counted(
    tmp_path: Path,
) -> None:
    with (
        quick_folder(tmp_path) as folder,
        pytest.raises(NothingToTrainOn, match=r"made 0 distillations, .*6 no_refinement"),
    ):
        made(folder, "critic.engine.script=crashing:mumbling_critic")


def test_it_trains_weights_so_a_policy_behind_an_endpoint_is_told_of(tmp_path: Path) -> None:
    place = "policy.model=http://127.0.0.1:9/v1"
    config = configured(tmp_path, "policy.engine.kind=openai", place)
    assert trains(config)
    roles = {role.name: role.needed_by for role in needed_roles(config)}
    assert {"refine", "train"} <= {*roles["policy"]}
    assert "critique" in roles["critic"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("recipe.learn=some", r"recipe\.learn"),
        ("recipe.m=0", r"recipe\.m"),
        ("recipe.top_k=2", r"recipe\.top_k"),
        ("training.distil.divergence=l2", r"training\.distil\.divergence"),
        ("training.distil.temperature=0", r"training\.distil\.temperature"),
        ("training.distil.max_length=8", r"training\.distil\.max_length"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured(tmp_path, setting)


def test_the_plan_asks_the_critic_about_refinements_only_where_they_must_pass(
    tmp_path: Path,
) -> None:
    for learn, asked in (("passed", True), ("all", False)):
        config = configured(tmp_path, f"recipe.learn={learn}", "recipe.refine=failures")
        assert trainings(config) == ("distil",)
        found = rehearse(config, load_prompts(config.prompts, seed=0))
        stages = [stage.notes.stage for stage in found.stages if stage.notes.iteration == 1]
        assert ("critique:refine" in stages) == asked
        assert "train" in stages
        assert found.ends is None


def test_a_row_is_found_shown_and_followed_to_the_model(passed) -> None:
    folder, run = passed
    row = rows(run, "distillations").row(0, named=True)
    found = find(run, row["distillation_id"][:12])
    assert (found.kind, found.prompt_id) == ("distillation", row["prompt_id"])
    page = shown(run, found)
    assert f"distillation {row['distillation_id']}: rule refined_success" in str(page)
    assert "1 on all rated aspects" in str(page)
    z = page.rows.filter(candidate_id=row["candidate_id"]).row(0, named=True)
    assert z["distilled_by"] == [row["distillation_id"]]
    assert page.document["distillations"]
    graph = lineage(run, found)
    nodes = {node.id: node.kind for node in graph.nodes}
    assert nodes[row["distillation_id"]] == "distillation"
    edges = {(edge.target, edge.relation) for edge in graph.edges if edge.source == found.id}
    assert {relation for _, relation in edges} == {"trained on"}
    model = rows(run, "checkpoints").filter(iteration=row["iteration"])["checkpoint_id"][0]
    assert edges == {(model, "trained on")}
    story = shown(run, find(run, f"M_{row['iteration']}"))
    assert "distillations by refined_success" in str(story)
    frame = lpfloop.open(str(run_folder(folder, RUN))).distillations(1).collect()
    assert frame.height == rows(run, "distillations").filter(iteration=1).height


def test_rows_are_exported_with_both_prompts_or_as_demonstrations(passed, tmp_path: Path) -> None:
    folder, run = passed
    for form, columns in (
        ("parquet", {"prompt", "teacher_prompt", "completion", "candidate_id"}),
        ("trl-sft", {"prompt", "completion", "distillation_id", "candidate_id"}),
    ):
        export = Export(
            lake=folder, name=RUN, table="distillations", form=form, target=tmp_path / form
        )
        files = export_table(export).files
        assert files == {"train.parquet": rows(run, "distillations").height}
        table = pl.read_parquet(tmp_path / form / "train.parquet")
        assert columns <= {*table.columns}
        assert ("teacher_prompt" in table.columns) == (form == "parquet")
    card = (tmp_path / "parquet" / "README.md").read_text()
    assert "| distillations | refined_success |" in card


def test_status_counts_distillations_where_there_are_some(passed) -> None:
    from lpfloop.loop.cli.tables import _counted
    from lpfloop.loop.lake.query.runs import status

    _, run = passed
    told: Any = json.loads(json.dumps(status(run, 1)))["iterations"][0]["counts"]
    assert told["distillations"] > 0
    assert f"{told['distillations']} distillations" in _counted(told)
    assert "distillations" not in _counted({**told, "distillations": 0})
