"""The verbs of an iteration on scripted engines: plan, payment, stop, resume."""

import io
import json
import threading
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from world import write_prompts

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.display import PlainReporter
from lpfloop.loop.daemon import iterations
from lpfloop.loop.daemon.iterations import evaluate_sets
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.query.tables import rows
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.stop import NothingToTrainOn, Stopped, StopSignal
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.records import Critique

SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "prompts.held_out_share=0.25",
    "prompts.per_iteration=12",
    "prompts.max_test=4",
    "prompts.max_dev=4",
    "prompts.chunk=5",
    "recipe.n=3",
    "training.min_pairs=1000000",
)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Make jobs on a small file of prompts that need no verification process, or of sums."""
    place = tmp_path_factory.mktemp("prompts")
    general = write_prompts(place, 24)
    sums = place / "sums.jsonl"
    rows = [{"task": "math", "prompt": f"{n} + 1?", "reference": str(n + 1)} for n in range(24)]
    sums.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def made(lake: Path, *overrides: str, recipe: str = "rlrf", name: str = "a") -> Job:
        verified = any(said.startswith("critic.kind") for said in overrides)
        source = f"prompts.source={sums if verified else general}"
        settings = (*SCRIPTED, source, "iterations=1", *overrides)
        return Job(config=load_config("tiny", recipe, settings, {}), lake=lake, name=name)

    return made


@pytest.fixture(scope="module")
def plain(job, tmp_path_factory) -> Path:
    """A lake with a run that ended for lack of pairs, and that a test may run again."""
    lake = tmp_path_factory.mktemp("plain")
    finish(job(lake))
    return lake


class Watcher:
    """A reporter that requests a stop after some commits."""

    def __init__(self, stop: StopSignal | None = None, after: int = -1) -> None:
        self.commits = 0
        self.rows = Counter[str]()
        self.stage = ""
        self._stop = stop
        self._after = after

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        self.stage = stage

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        self.commits += 1
        self.rows[self.stage] += advance.rows
        if self._stop is not None and self.commits == self._after:
            self._stop.request()

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        pass

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str, event: str = "note", **_: object) -> None:
        pass


def finish(wanted: Job) -> Watcher:
    watcher = Watcher()
    with pytest.raises(NothingToTrainOn):
        run_loop(wanted, watcher, StopSignal())
    return watcher


def test_stage_asked_for_twice(job, tmp_path, monkeypatch):
    """At the second request its units are committed, but the first payment may still be ending."""

    def flush(store: RunWriter) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)
        plain_flush(store)

    plain_flush = RunWriter.flush
    monkeypatch.setattr(RunWriter, "flush", flush)
    monkeypatch.setattr(
        iterations, "evaluate_sets", lambda *args: (evaluate_sets(*args), evaluate_sets(*args))[1]
    )
    with pytest.raises(NothingToTrainOn):
        run_loop(job(tmp_path), PlainReporter(Console(file=io.StringIO())), StopSignal())


def committed(lake: Path, name: str = "a") -> set[tuple[str, str, str]]:
    reader = RunReader(run_folder(lake, name))
    found = {(p.unit, p.table, p.sha256) for p in reader.journal.parts()}
    reader.close()
    return found


def test_an_iteration(plain):
    run = open_run(plain, "a")
    candidates = run.scan("candidates", iteration=1).collect()
    assert candidates.filter(pl.col("kind") == "sample").height == 12 * 3
    m = load_config("tiny", "rlrf", (), {}).recipe.m
    refined = candidates.filter(pl.col("kind") == "refinement")
    assert 0 < refined.height <= 12 * m
    parents = set(refined["parent_id"])
    assert parents <= set(candidates.filter(pl.col("kind") == "sample")["candidate_id"])
    critiques = run.scan("critiques", iteration=1).collect()
    assert set(refined["critique_id"]) <= set(critiques["critique_id"])
    judged = set(critiques["candidate_id"])
    assert set(candidates.filter(pl.col("kind") != "greedy")["candidate_id"]) <= judged
    assert candidates["candidate_id"].n_unique() == candidates.height
    assert candidates["seed"].n_unique() == candidates.height
    run.close()


def test_unread_replies_retried(job, tmp_path):
    finish(job(tmp_path, "critic.attempts=3"))
    run = open_run(tmp_path, "a")
    critiques = run.scan("critiques").collect()
    unscored = critiques.filter(pl.col("status") != "scored")
    assert unscored.height < critiques.height / 20
    assert set(unscored["attempts"]) <= {3}
    assert set(critiques["attempts"]) >= {1, 2}
    ratings = unscored.explode("aspects").unnest("aspects")["rating"]
    assert ratings.null_count() == len(ratings)
    run.close()


def test_pairs_are_successes_against_failures(plain):
    run = open_run(plain, "a")
    pairs = run.scan("pairs").collect().to_dicts()
    assert pairs
    for pair in pairs:
        assert all(rating == 1 for rating in pair["chosen_ratings"])
        assert any(rating < 1 for rating in pair["rejected_ratings"])
        assert pair["chosen"] != pair["rejected"]
    outcomes = run.scan("pairing_outcomes").collect()
    assert outcomes.height == 12
    assert outcomes["made"].sum() == len(pairs)
    run.close()


def test_rejection_sampling(job, tmp_path):
    finish(job(tmp_path, "recipe.train=rs"))
    run = open_run(tmp_path, "a")
    demonstrations = run.scan("demonstrations").collect().to_dicts()
    assert demonstrations
    assert all(row["completion"][0]["role"] == "assistant" for row in demonstrations)
    assert all(rating == 1 for row in demonstrations for rating in row["ratings"])
    run.close()


def test_both_judges(job, tmp_path):
    finish(job(tmp_path, "critic.kind=both"))
    run = open_run(tmp_path, "a")
    verified = rows(run, "critiques", {"aspect": "Verified"}).collect().to_dicts()
    scored = [row for row in verified if row["status"] == "scored"]
    assert scored
    assert all(len(row["aspects"]) >= 2 for row in scored)
    run.close()


@settings(max_examples=3, derandomize=True)
@given(stops=st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_stopped_anywhere_and_resumed(job, plain, tmp_path_factory, stops):
    stopped = tmp_path_factory.mktemp("stopped")
    commits = 0
    for after in stops:
        stop = StopSignal()
        watcher = Watcher(stop, after)
        with pytest.raises((Stopped, NothingToTrainOn)):
            run_loop(job(stopped), watcher, stop)
        commits += watcher.commits
    commits += finish(job(stopped)).commits
    assert committed(stopped) == committed(plain)
    reader = RunReader(run_folder(stopped, "a"))
    assert commits == sum(s.done for s in reader.journal.stages())
    reader.close()


def test_splits_of_prompts(plain):
    run = open_run(plain, "a")
    prompts = run.scan("prompts").collect()
    train = set(prompts.filter(pl.col("split") == "train")["prompt_id"])
    asked = set(prompts.filter(pl.col("split") != "train")["prompt_id"])
    candidates = run.scan("candidates").collect()
    sampled = candidates.filter(pl.col("kind") == "sample")
    greedy = candidates.filter(pl.col("kind") == "greedy")
    assert set(sampled["prompt_id"]) <= train
    assert set(greedy["prompt_id"]) <= asked
    run.close()


def test_odd_answers(job, tmp_path):
    finish(
        job(
            tmp_path,
            "policy.engine.script=scripts:odd_policy",
            "critic.engine.script=scripts:odd_critic",
            "recipe.n=6",
        )
    )
    run = open_run(tmp_path, "a")
    candidates = run.scan("candidates", iteration=1).collect()
    texts = set(candidates["text"])
    assert {"", "same", "a\ufffdb", "\ufffd half a pair"} <= texts
    endless = candidates.filter(pl.col("text").str.starts_with("word word"))
    assert set(endless["finish_reason"]) == {"length"}
    chosen = {pair["chosen"][-1]["content"] for pair in run.scan("pairs").collect().to_dicts()}
    assert chosen
    assert all(text.strip() and not text.startswith("word word") for text in chosen)
    run.close()


def test_failures_alone_are_refined(job, tmp_path):
    finish(job(tmp_path, "recipe.refine=failures"))
    run = open_run(tmp_path, "a")
    critiques = frame_rows(Critique, run.scan("critiques").collect())
    refined = run.scan("candidates").filter(pl.col("kind") == "refinement").collect()
    assert refined.height
    assert any(row.positive for row in critiques)
    positive = {row.critique_id for row in critiques if row.positive}
    assert not positive & {*refined["critique_id"]}
    run.close()
