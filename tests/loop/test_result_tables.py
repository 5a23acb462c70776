"""One table of results for any task: what was measured, each change, and what a mean hides."""

import json
from dataclasses import replace

import pytest
from told import prompt, write_run
from typer.testing import CliRunner

from examples import CHECKPOINT, SCORE, STANDING
from lpfloop.loop.cli.app import app
from lpfloop.loop.evaluation.metrics import summarise
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.records import Checkpoint, Evaluation, PolicyStanding, Prompt, Score

FAMILIES = ("ode", "haiku", "limerick")
POEMS = [
    prompt(n, task="poems", split="held-out", family=FAMILIES[n % 3], cluster=f"poet-{n // 4}")
    for n in range(24)
]
LOSING = {0: (1.0, 1.0, 0.0), 1: (1.0, 0.0, 1.0), 2: (1.0, 0.0, 1.0)}
"""What each family is worth under each model: haikus are lost, limericks won."""


def scored(iteration, metric, value, split="held-out"):
    return [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=f"{iteration}{iteration}" * 32,
            benchmark=split,
            metric=metric,
            prompt_id=poem.prompt_id,
            candidate_id=f"cand-{iteration}-{poem.prompt_id}",
            value=value(n),
        )
        for n, poem in enumerate(POEMS)
    ]


def measured(iteration, worth, split="held-out"):
    """Return what a model is worth: approved in both aspects where its family is."""
    return [
        *scored(iteration, "rating:Comprehension", lambda _: 1.0, split),
        *scored(iteration, "rating:Readability", lambda n: worth[n % 3], split),
        *scored(iteration, "reward", lambda n: n / 10 + iteration, split),
        *scored(iteration, "mean_length", lambda n: 20.0 + iteration * (n % 2), split),
    ]


def write(lake, name, worths=LOSING, *, prompts=POEMS, standing=None, splits=("held-out",)):
    tables = {
        number: {
            Checkpoint: [replace(CHECKPOINT, iteration=number, checkpoint_id=f"{number}" * 64)],
            Score: (rows := [s for split in splits for s in measured(number, worth, split)]),
            Evaluation: summarise(rows),
        }
        for number, worth in worths.items()
    }
    tables[0] |= {Prompt: prompts}
    if standing is not None:
        tables[max(worths)] |= {PolicyStanding: [standing]}
    write_run(lake, name, tables)


def told(lake, *arguments, width=80):
    result = CliRunner().invoke(app, [*arguments, "--lake", str(lake)], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    write(folder, "poems")
    return folder


def test_a_task_of_the_user_s_own_has_every_figure_that_was_measured(lake):
    shown = told(lake, "status", "poems")
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert "Results on the held-out prompts (test)" in shown
    assert lines["approval"][2:5] == ["66.7", "66.7", "66.7"]
    assert lines["reward"][1:5] == ["1.15", "2.15", "3.15", "+2.00"]
    assert lines["tokens"][1:5] == ["20.0", "20.5", "21.0", "+1.0"]
    assert max(map(len, shown.splitlines()[-20:-4])) <= 80


def test_the_mean_hides_a_family_and_the_status_names_it(lake):
    shown = " ".join(told(lake, "status", "poems").split())
    assert (
        "lost most from M_0 to M_2: haiku (poems), approval % 100.0 to 0.0 on 8 prompts "
        "(8 worse, 0 better); `lpfloop show prompt-1` and `lpfloop show prompt-10`"
    ) in shown


def test_by_family_what_was_lost_most_comes_first(lake):
    lines = [line.split() for line in told(lake, "status", "poems", "--by", "family").splitlines()]
    families = [line[:5] for line in lines if line and line[0].rstrip(",") in ("all", *FAMILIES)]
    assert families == [
        ["all,", "24", "66.7", "66.7", "66.7"],
        ["haiku,", "8", "100.0", "0.0", "0.0"],
        ["ode,", "8", "100.0", "100.0", "100.0"],
        ["limerick,", "8", "0.0", "100.0", "100.0"],
    ]


def test_a_change_is_paired_and_its_interval_draws_clusters(lake):
    with_clusters = json.loads(told(lake, "status", "poems", "--json"))["results"]
    row = next(
        row
        for row in with_clusters["rows"]
        if (row["scope"], row["figure"], row["iteration"]) == ("all", "approval", 2)
    )
    assert (row["against"], row["n"], row["paired"], row["clusters"]) == (0, 24, 24, 6)
    assert (row["change"], row["better"], row["worse"]) == (0.0, 8, 8)
    alone = [replace(poem, cluster=None) for poem in POEMS]
    write(lake, "alone", prompts=alone)
    run = open_run(lake, "alone")
    without = run_results(run).figure("approval")[2]
    run.close()
    assert without.clusters == 24
    # Each poet wrote about as many haikus as limericks, so that the losses and gains cancel.
    assert row["change_high"] - row["change_low"] < without.change_high - without.change_low


def test_only_the_prompts_of_both_are_compared(tmp_path):
    rows = {0: measured(0, (0, 0, 0)), 1: measured(1, (1, 1, 1))[:-1]}
    rows[1] = [s for s in rows[1] if s.prompt_id != "prompt-3" or s.metric == "reward"]
    write_run(
        tmp_path,
        "a",
        {n: {Score: of, Evaluation: summarise(of)} for n, of in rows.items()} | {},
    )
    run = open_run(tmp_path, "a")
    found = run_results(run).figure("approval")[1]
    run.close()
    assert (found.n, found.paired, found.change) == (23, 23, 1.0)


def test_what_the_run_decided_is_marked_and_its_best_model_is_told_of(tmp_path):
    standing = replace(STANDING, iteration=2, best_iteration=1)
    write(tmp_path, "a", standing=standing)
    shown = told(tmp_path, "status", "a")
    assert "M_1 since M_0, 95 %" in shown
    assert "best  latest" in shown
    models = json.loads(told(tmp_path, "status", "a", "--json"))["results"]["models"]
    assert [model["marks"] for model in models] == [[], ["best"], ["latest"]]


def test_the_test_split_is_shown_once_it_is_measured_and_dev_is_asked_for(tmp_path):
    write(tmp_path, "both", splits=("dev", "held-out"))
    assert "the held-out prompts (test)" in told(tmp_path, "status", "both")
    assert "the dev prompts (they decide" in told(tmp_path, "status", "both", "--split", "dev")
    write(tmp_path, "young", splits=("dev",))
    assert "the dev prompts (they decide" in told(tmp_path, "status", "young")
    refused = CliRunner().invoke(
        app, ["status", "young", "--split", "held-out", "--lake", str(tmp_path)]
    )
    assert refused.exit_code == 2
    assert "nothing measured on the split 'held-out': it has dev" in refused.stderr


def test_the_table_fits_into_80_columns_however_many_models_there_are(tmp_path):
    write(tmp_path, "long", dict.fromkeys(range(12), (1.0, 0.0, 1.0)))
    shown = told(tmp_path, "status", "long")
    table = shown[shown.index("Results on") : shown.index("not shown for want of width")]
    assert max(map(len, table.splitlines())) <= 80
    heads = table.splitlines()[2].split()
    assert heads[0] == "M_0"
    assert "M_11" in heads
    assert "M_1," in shown[shown.index("not shown for want of width") :]
    wide = told(tmp_path, "status", "long", "--wide", width=160)
    assert [f"M_{n} " in wide for n in range(12)] == [True] * 12


def test_prompts_of_no_family_cannot_be_told_by_it(tmp_path):
    write(tmp_path, "a", prompts=[replace(poem, family=None) for poem in POEMS])
    refused = CliRunner().invoke(app, ["status", "a", "--by", "family", "--lake", str(tmp_path)])
    assert refused.exit_code == 2
    assert "of no family" in refused.stderr
    assert "haiku" not in told(tmp_path, "status", "a")


def test_the_difference_by_family_begins_with_the_loss(lake):
    found = json.loads(told(lake, "diff", "poems", "--by", "family", "--json"))
    assert [(row["family"], row["difference"]) for row in found["summary"]] == [
        ("haiku", -1.0),
        ("ode", 0.0),
        ("limerick", 1.0),
    ]
    assert found["before"].startswith("iteration 0")
    shown = told(lake, "diff", "poems", "--limit", "2")
    down, up = shown.split("8 values went down")[1].split("8 values went up")
    assert down.count("haiku") == 2
    assert up.count("limerick") == 2
    assert max(map(len, shown.splitlines())) <= 80
