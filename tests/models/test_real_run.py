"""The loop on real models: vLLM samples, the feedback model judges, TRL trains."""

import json
import math
import os
import signal
import subprocess
import sys
from statistics import fmean, stdev

import polars as pl
import pytest
from preloaded import INTERPRETER

from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.sealed import check_folder

pytestmark = pytest.mark.model

PROMPTS = 24
VERIFIED = ("math_accuracy", "sentence_match", "general_fulfilled")
"""The verifier's figures of an answer, from 0 to 1, each for prompts of one task."""
SMALL = {
    "PROMPTS__PER_ITERATION": str(PROMPTS),
    "PROMPTS__MAX_TEST": "8",
    "PROMPTS__MAX_DEV": "8",
    "PROMPTS__CHUNK": "4",
    "RECIPE__N": "4",
    "RECIPE__M": "2",
    "TRAINING__MIN_PAIRS": "1",
    "TRAINING__DPO__LEARNING_RATE": "2e-4",
}
DYING = """
import os
import signal
import sys
from pathlib import Path

from lpfloop.loop.cli.app import main
from lpfloop.stores.failpoints import arm

sys.executable, log, left = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
sys.argv[1:] = sys.argv[4:]


def die(_):
    global left
    # The run is rehearsed first, without any model.
    left -= log.exists() and "a worker process loads" in log.read_text()
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)


with arm({"stage.unit": die}):
    main()
"""


def call(lake, *arguments, dies=False):
    """Run `lpfloop` on a small share of the tiny world to its end, or until it dies."""
    settings = {f"LPFLOOP_{name}": value for name, value in SMALL.items()}
    program = [sys.executable, "-m", "lpfloop"]
    if dies:  # After 24 answers of a real model, about 12 of them from M_0.
        log = str(lake / "runs" / "tiny-rlrf" / "logs" / "run.jsonl")
        program = [
            INTERPRETER,
            "-c",
            DYING,
            sys.executable,
            log,
            "24",
        ]  # Some 12 answers are of M_0.
    return subprocess.run(
        [*program, *arguments],
        env={**os.environ, **settings, "LPFLOOP_LAKE": str(lake)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with `tiny-rlrf`: one real iteration."""
    folder = tmp_path_factory.mktemp("real") / "lake"
    done = call(folder, "demo", "--iterations", "1")
    assert done.returncode == 0, done.stderr
    return folder


def test_rows_of_a_real_iteration(lake):
    run = open_run(lake, "tiny-rlrf")
    (_, turn) = status(run)["iterations"]
    assert turn["counts"]["critiques"] == turn["counts"]["candidates"] > PROMPTS * 4 + 8 + 8
    assert turn["counts"]["pairs"] >= 1
    candidates = run.scan("candidates", iteration=1).collect()
    assert candidates["logprob"].null_count() == 0
    assert (candidates["completion_tokens"] > 0).all()
    assert run.scan("rewards").collect()["score"].null_count() == 0
    critiques = run.scan("critiques").collect()
    grounded = critiques.filter(pl.col("reference_used"))
    tasks = grounded.join(run.scan("prompts").collect(), on="prompt_id")["task"]
    assert set(tasks) == {"facts", "math"}
    assert critiques.filter(pl.col("status") == "scored").height / critiques.height > 0.9
    run.close()


def test_real_checkpoint_and_its_parents(lake):
    run = open_run(lake, "tiny-rlrf")
    initial, trained = run.scan("checkpoints").sort("iteration").collect().to_dicts()
    assert trained["parent_id"] == trained["reference_id"] == initial["checkpoint_id"]
    check_folder(run.folder / trained["path"])
    assert trained["steps"] > 0
    assert json.loads(trained["metrics"])["loss"] > 0
    after = run.scan("candidates", iteration=1).collect().to_dicts()
    assert {row["policy"] for row in after if row["kind"] == "greedy"} == {trained["checkpoint_id"]}
    sampled = {row["policy"] for row in after if row["kind"] != "greedy"}
    assert sampled == {initial["checkpoint_id"]}
    run.close()


def test_killed_real_run_is_resumed(lake, tmp_path):
    """SIGKILL in the middle of the iteration, then `resume`."""
    killed = call(tmp_path, "demo", "--iterations", "1", dies=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = open_run(tmp_path, "tiny-rlrf")
    assert [s for s in run.journal.stages() if s.iteration == 1 and s.done]
    assert run.scan("checkpoints").collect().height == 1
    run.close()
    done = call(tmp_path, "resume", "tiny-rlrf")
    assert done.returncode == 0, done.stderr
    assert parts(tmp_path) == parts(lake)


def parts(lake):
    run = open_run(lake, "tiny-rlrf")
    found = set(run.journal.parts())
    run.close()
    return found


@pytest.mark.slow
def test_m1_is_better_than_m0(real_lake):
    """By more than two standard errors of the mean gain, over prompts of no training."""
    run = open_run(real_lake, "tiny-rlrf")
    scores = run.scan("scores").filter(pl.col("metric").is_in(VERIFIED)).collect()
    run.close()
    before, after = (scores.filter(pl.col("iteration") == number) for number in (0, 1))
    both = before.join(after, on=("prompt_id", "metric"), suffix="_after")
    gains = (both["value_after"] - both["value"]).to_list()
    assert len(gains) == 80 + 80
    assert fmean(gains) > 2 * stdev(gains) / math.sqrt(len(gains))
