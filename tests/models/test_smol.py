"""The world `smol` in a small size: a real model passes all stages once."""

import os
import subprocess
import sys

import polars as pl
import pytest

from lpfloop.loop.lake.query.answer_logprobs import update_survival
from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.smol.weights import smol_folder

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {
    "PROMPTS__PER_ITERATION": "40",
    "PROMPTS__MAX_TEST": "30",
    "PROMPTS__MAX_DEV": "30",
    "TRAINING__MIN_PAIRS": "1",
}


def test_one_iteration(tmp_path) -> None:
    if smol_folder() is None:
        pytest.skip("no weights: `lpfloop prepare smol` fetches them")
    settings = {f"LPFLOOP_{name}": value for name, value in SMALL.items()}
    command = [sys.executable, "-P", "-m", "lpfloop", "run", "--config", "smol"]
    done = subprocess.run(
        [*command, "--iterations", "1", "--lake", str(tmp_path)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path, "smol-rlrf")
    _, turn = status(run)["iterations"]
    assert turn["counts"]["pairs"] >= 1
    survival = update_survival(run, 1)
    assert survival is not None
    assert survival > 0.8
    critiques = run.scan("critiques", iteration=1).collect()
    assert set(critiques["status"]) == {"scored"}
    comments = critiques["aspects"].explode().struct.field("comment")
    assert comments.str.starts_with("Asked: ").all()
    kinds = set(run.scan("candidates", iteration=1).collect()["kind"])
    assert {"sample", "refinement", "greedy"} <= kinds
    answered = run.scan("verdicts").filter(pl.col("scope") == "all").collect()
    assert set(answered["split"]) == {"dev", "held-out"}
    run.close()
