"""The loop on real models: vLLM samples, the feedback model judges, TRL trains."""

import json
import math
import os
import signal
from functools import partial
from statistics import fmean, stdev

import polars as pl
import pytest
from commands import LIMIT_S, call, start
from waiting import wait_until

from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.stores.sealed import check_folder

pytestmark = pytest.mark.model

VERIFIED = ("math_accuracy", "sentence_match", "general_fulfilled")
"""What the verifier decides of an answer, from 0 to 1, each of prompts of one task."""


def test_every_sentence_is_kept(real_lake):
    run = open_run(real_lake, "tiny-rlrf")
    (first, second, _) = status(run)["iterations"]
    assert first["counts"]["candidates"] == 80 + 80
    assert second["counts"]["candidates"] > 120 * 6 + 80 + 80
    assert second["counts"]["critiques"] == second["counts"]["candidates"]
    assert second["counts"]["pairs"] >= 4
    candidates = run.scan("candidates", iteration=1).collect()
    assert candidates["logprob"].null_count() == 0
    assert (candidates["completion_tokens"] > 0).all()
    rewards = run.scan("rewards").collect()
    assert rewards["score"].null_count() == 0
    run.close()


def test_the_critic_reads_the_reference_and_rates(real_lake):
    run = open_run(real_lake, "tiny-rlrf")
    critiques = run.scan("critiques").collect()
    prompts = run.scan("prompts").collect()
    grounded = critiques.filter(pl.col("reference_used"))
    tasks = grounded.join(prompts, on="prompt_id")["task"].unique().sort().to_list()
    assert tasks == ["facts", "math"]
    scored = critiques.filter(pl.col("status") == "scored").height
    assert scored / critiques.height > 0.95
    run.close()


def test_m_1_is_better_than_m_0_by_what_is_verified(real_lake):
    """By more than two standard errors of the mean gain, over prompts of no training."""
    run = open_run(real_lake, "tiny-rlrf")
    scores = run.scan("scores").filter(pl.col("metric").is_in(VERIFIED)).collect()
    run.close()
    before, after = (scores.filter(pl.col("iteration") == number) for number in (0, 1))
    both = before.join(after, on=("prompt_id", "metric"), suffix="_after")
    gains = (both["value_after"] - both["value"]).to_list()
    assert len(gains) == 80 + 80
    assert fmean(gains) > 2 * stdev(gains) / math.sqrt(len(gains))


def test_the_checkpoint_is_whole_and_names_its_parents(real_lake):
    run = open_run(real_lake, "tiny-rlrf")
    initial, trained, last = run.scan("checkpoints").sort("iteration").collect().to_dicts()
    assert last["parent_id"] == trained["checkpoint_id"]
    assert trained["parent_id"] == initial["checkpoint_id"]
    assert trained["reference_id"] == initial["checkpoint_id"]
    check_folder(run.folder / trained["path"])
    metrics = json.loads(trained["metrics"])
    assert trained["steps"] > 0
    assert metrics["loss"] > 0
    after = run.scan("candidates", iteration=1).collect().to_dicts()
    greedy = {row["policy"] for row in after if row["kind"] == "greedy"}
    sampled = {row["policy"] for row in after if row["kind"] != "greedy"}
    assert greedy == {trained["checkpoint_id"]}
    assert sampled == {initial["checkpoint_id"]}
    run.close()


def test_two_iterations_start_one_process_a_model(real_lake):
    """M_0 has one as policy and judge; that of M_1 goes on to M_2; the reward model's stays."""
    log = (real_lake / "runs" / "tiny-rlrf" / "logs" / "run.jsonl").read_text()
    said = [json.loads(line)["message"] for line in log.splitlines()]
    started = [text for text in said if text.startswith("a worker process loads ")]
    assert sorted(text.rpartition(" ")[2] for text in started) == [
        *("(engine)", "(engine)", "(scorer)"),
    ]
    assert not [text for text in said if "get a new process" in text]


def test_a_killed_run_is_resumed_to_the_same_lake(real_lake, tmp_path):
    """SIGKILL in the middle of sampling, and again of refining, then `resume`."""
    for stage in ("sample", "refine"):
        process = start(tmp_path, "run", "--iterations", "1")
        wait_until(partial(committed, tmp_path, stage), timeout_s=LIMIT_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, _, stderr = call(tmp_path, "resume", "tiny-rlrf")
    assert code == 0, stderr
    assert parts(tmp_path) == {p for p in parts(real_lake) if p.iteration <= 1}


def committed(lake, stage):
    """Whether a unit of the stage is committed."""
    if not (lake / "runs" / "tiny-rlrf" / "journal.sqlite").exists():
        return False
    run = open_run(lake, "tiny-rlrf")
    done = any(s.done for s in run.journal.stages() if s.stage == stage)
    run.close()
    return done


def parts(lake):
    run = open_run(lake, "tiny-rlrf")
    found = set(run.journal.parts())
    run.close()
    return found
