"""lpfloop filters prompts by rule and by judgment, once a run, and counts each outcome."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from judges import BAD, GOOD, write_reviewed
from world import Silent, Telling

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.iterations import order_prompts
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.run import Run
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.loop.stages.select_prompts import suitable
from lpfloop.loop.tiny.world import prompts as tiny_world
from lpfloop.stores.records import SCORED, Prompt, PromptReview

SETTINGS = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:critic'}",
    "reward.model=none",
    "prompts={chunk: 3, dev_share: 0}",
    "recipe={n: 2, m: 0}",
    "iterations=1",
    "training.min_pairs=1000000",
)
JUDGED = (
    "prompts.quality.judge=model",
    "prompts.quality.model=tiny",
    "prompts.quality.engine.kind=scripted",
)
BY_REVIEWER = (*JUDGED, "prompts.quality.engine.script=lpfloop.loop.tiny.reviewer:reviewer")


def job(folder: Path, *overrides: str, texts=(*GOOD, *BAD)) -> Job:
    source = f"prompts.source={write_reviewed(folder, *texts)}"
    config = load_config("tiny", "rlrf", (*SETTINGS, source, *overrides), {})
    return Job(config=config, lake=folder, name="a")


@contextmanager
def running(wanted: Job) -> Iterator[tuple[Run, list[Prompt], Telling]]:
    prompts = load_prompts(wanted.config.prompts, seed=wanted.config.seed)
    told = Telling()
    with open_job(wanted, prompts, told, StopSignal()) as run:
        yield run, order_prompts(prompts, "train", wanted.config.seed), told


def texts_of(prompts) -> set[str]:
    return {prompt.instruction for prompt in prompts}


def receipts_of(folder: Path) -> dict[str, dict[str, int]]:
    reader = open_run(folder, "a")
    found = status(reader, 0)["iterations"][0]["filter_counts"]
    reader.close()
    return {
        account["filter"]: {o["outcome"]: o["count"] for o in account["outcomes"]}
        for account in found
    }


def reviews_of(run: Run) -> list[PromptReview]:
    journal = run.store.journal
    keys = journal.keys(0, "prompts:review")
    return [row for key in keys for row in run.store.rows(PromptReview, key)]


def test_bad_prompts_are_dropped_by_worst_aspect(tmp_path):
    with running(job(tmp_path, *BY_REVIEWER)) as (run, train, _):
        left = suitable(run, train)
        reviews = reviews_of(run)
    assert texts_of(left.prompts) == set(GOOD)
    assert len(reviews) == len(GOOD) + len(BAD)
    assert {review.status for review in reviews} == {SCORED}
    found = receipts_of(tmp_path)
    assert found == {"prompts:quality": {"kept": len(GOOD), **dict.fromkeys(BAD.values(), 1)}}


def test_unjudged_prompt_is_kept(tmp_path):
    silent = (*JUDGED, "prompts.quality.engine.script=judges:silent")
    with running(job(tmp_path, *silent)) as (run, train, _):
        left = suitable(run, train)
        reviews = reviews_of(run)
    assert [p.prompt_id for p in left.prompts] == [p.prompt_id for p in train]
    assert {r.status for r in reviews} == {"no_dictionary"}
    assert {r.attempts for r in reviews} == {2}
    assert all(a.rating is None for r in reviews for a in r.aspects)
    count = len(train)
    assert receipts_of(tmp_path) == {"prompts:quality": {"kept": 0, "kept: unjudged": count}}


def test_classes_are_counted(tmp_path):
    world = [p.text for p in tiny_world("train", size=40)]
    settings = (*BY_REVIEWER, "prompts.quality.intentions=tiny", "prompts.quality.per_intention=10")
    with running(job(tmp_path, *settings, texts=(*world, *BAD))) as (run, train, told):
        left = suitable(run, train)
    assert texts_of(left.prompts) == set(world)
    counts = Counter(left.intentions[p.prompt_id] for p in left.prompts)
    found = receipts_of(tmp_path)["prompts:intentions"]
    assert sum(found.values()) == len(world)
    for name in ("mathematics", "life", "instruction", "conversation"):
        short = "" if counts[name] >= 10 else ", short of 10"
        assert found[f"kept: {name}{short}"] == counts[name]
    assert counts["conversation"] < 10
    (note,) = told.notes
    assert "conversation" in note


def test_run_uses_remaining_prompts(tmp_path):
    wanted = job(tmp_path, *BY_REVIEWER, "prompts.rules.duplicates=true", "prompts.per_iteration=6")
    with pytest.raises(NothingToTrainOn):
        run_loop(wanted, Silent(), StopSignal())
    reader = open_run(tmp_path, "a")
    asked = set(reader.scan("candidates", iteration=1).collect()["prompt_id"])
    prompts = load_prompts(wanted.config.prompts, seed=wanted.config.seed)
    kept = {p.prompt_id for p in prompts if p.instruction in GOOD}
    reader.close()
    assert len(asked) == 6
    assert asked <= kept
    found = receipts_of(tmp_path)
    assert found["prompts:rules"] == {"kept": 11}
    assert found["prompts:quality"]["low_semantics"] == 1
