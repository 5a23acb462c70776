"""One table of results for any task: measurements, changes, and changes that a mean hides."""

import json
import os
from dataclasses import replace

import pytest
from lakes import prompt, write_run
from rows import CHECKPOINT, SCORE
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.evaluation.metrics import summarise
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.records import Checkpoint, Evaluation, Prompt, Score

pytestmark = pytest.mark.usefixtures("environ")

FAMILIES = ("ode", "haiku", "limerick")
POEMS = [
    prompt(n, task="poems", split="held-out", family=FAMILIES[n % 3], cluster=f"poet-{n // 4}")
    for n in range(24)
]
LOSING = {0: (1.0, 1.0, 0.0), 1: (1.0, 0.0, 1.0), 2: (1.0, 0.0, 1.0)}
"""Score of each family by iteration: the policy loses haikus, and wins limericks."""


def scored(iteration, metric, value):
    return [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=f"{iteration}{iteration}" * 32,
            benchmark="held-out",
            metric=metric,
            prompt_id=poem.prompt_id,
            candidate_id=f"cand-{iteration}-{poem.prompt_id}",
            value=value(n),
        )
        for n, poem in enumerate(POEMS)
    ]


def measured(iteration, worth):
    """Return the scores of a model: its readability is the family's `worth`."""
    return [
        *scored(iteration, "rating:Comprehension", lambda _: 1.0),
        *scored(iteration, "rating:Readability", lambda n: worth[n % 3]),
        *scored(iteration, "reward", lambda n: n / 10 + iteration),
        *scored(iteration, "mean_length", lambda n: 20.0 + iteration * (n % 2)),
    ]


def write(lake, name, prompts):
    tables = {
        number: {
            Checkpoint: [replace(CHECKPOINT, iteration=number, checkpoint_id=f"{number}" * 64)],
            Score: (rows := measured(number, worth)),
            Evaluation: summarise(rows),
        }
        for number, worth in LOSING.items()
    }
    tables[0] |= {Prompt: prompts}
    write_run(lake, name, tables)


def told(lake, *arguments):
    os.environ["COLUMNS"] = "80"
    result = CliRunner().invoke(app, [*arguments, "--lake", str(lake)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    write(folder, "poems", POEMS)
    return folder


def test_by_family_losses_first(lake):
    lines = [line.split() for line in told(lake, "status", "poems", "--by", "family").splitlines()]
    families = [line[:4] for line in lines if line and line[0].rstrip(",") in ("all", *FAMILIES)]
    assert families == [
        ["all,", "24", "66.7", "66.7"],
        ["haiku,", "8", "100.0", "0.0"],
        ["ode,", "8", "100.0", "100.0"],
        ["limerick,", "8", "0.0", "100.0"],
    ]


def test_change_is_paired(lake):
    with_clusters = json.loads(told(lake, "status", "poems", "--json"))["results"]
    row = next(
        row
        for row in with_clusters["rows"]
        if (row["scope"], row["figure"], row["iteration"]) == ("all", "approval", 2)
    )
    assert (row["against"], row["n"], row["paired"], row["clusters"]) == (0, 24, 24, 6)
    assert (row["change"], row["better"], row["worse"]) == (0.0, 8, 8)
    alone = [replace(poem, cluster=None) for poem in POEMS]
    write(lake, "alone", alone)
    run = open_run(lake, "alone")
    without = run_results(run).figure("approval")[2]
    run.close()
    assert without.clusters == 24
    # Each poet wrote about as many haikus as limericks, so that the losses and gains cancel.
    assert row["change_high"] - row["change_low"] < without.change_high - without.change_low
