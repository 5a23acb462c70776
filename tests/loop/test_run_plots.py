"""Plots of a run's refinement, pairs, training, judge and spending: their rows, and why none."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import asked
import polars as pl
import pytest
import told
from crashing import (
    RUN,
    Attempt,
    finished_and_killed,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    write_prompts,
)
from typer.testing import CliRunner

from examples import DEMONSTRATION, GRADE, STATISTIC
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.panels import Lines
from lpfloop.loop.evaluation.plots import plot_bytes
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.judge_health import judge_plot
from lpfloop.loop.report.pair_health import pairs_plot
from lpfloop.loop.report.refinement_gain import refinement_plot
from lpfloop.loop.report.spending import spending_plot
from lpfloop.loop.report.training_curves import POINTS, training_plot
from lpfloop.stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Grade,
    Prompt,
    Statistic,
    Yield,
)


@contextmanager
def opened(lake, *names):
    runs = [open_run(lake, name) for name in names]
    try:
        yield runs
    finally:
        for run in runs:
            run.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake of `told`, `a` and `b`, of a run with two trainings, and of one with nothing yet."""
    folder = tmp_path_factory.mktemp("plots") / "lake"
    told.told_run(folder)
    asked.make_lake(folder)
    told.write_run(folder, "online", {1: {Statistic: steps(1)}, 2: {Statistic: steps(2)}})
    told.write_run(folder, "empty", {0: {Prompt: [told.PAIRED]}}, recipe="best-of-n")
    return folder


def steps(iteration, count=3, metrics=("loss", "kl")):
    return [
        replace(
            STATISTIC,
            iteration=iteration,
            method="ppo",
            step=step,
            metric=metric,
            value=float(step),
        )
        for step in range(1, count + 1)
        for metric in metrics
    ]


def only(rows, **wanted):
    found = rows.filter(*(pl.col(name) == value for name, value in wanted.items()))
    assert found.height == 1, found
    return found.row(0, named=True)


# refinement


def test_a_refinement_is_compared_with_what_it_refines_aspect_by_aspect(lake):
    with opened(lake, "told") as runs:
        plot = refinement_plot(runs)
    gained = only(plot.rows, aspect="Readability")
    assert (gained["n"], gained["moderate_to_success"], gained["gain"]) == (1, 1, 1.0)
    same = only(plot.rows, aspect="Completeness")
    assert (same["success_to_success"], same["improved"], same["worsened"]) == (1, 0, 0)
    whole = only(plot.rows, aspect="all aspects")
    assert (whole["improved"], whole["before"], whole["after"]) == (1, pytest.approx(2 / 3), 1)
    assert plot_bytes(plot.panels, ".svg")


def test_what_refining_cost_is_told_per_refinement_that_is_better(tmp_path):
    config = small_config(write_prompts(tmp_path), "recipe.m=6", "iterations=1")
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        loop(folder, config=config)
        with opened(folder, RUN) as runs:
            rows = refinement_plot(runs).rows
            states = runs[0].journal.stages()
    for row in rows.filter(pl.col("aspect") == "all aspects", pl.col("improved") > 0).to_dicts():
        spent = sum(
            s.totals["tokens"] + s.totals["prompt_tokens"]
            for s in states
            if s.iteration == row["iteration"] and s.stage.endswith("refine")
        )
        assert row["tokens_per_improvement"] * row["improved"] == pytest.approx(spent)
    assert rows["improved"].sum()


@pytest.mark.parametrize(
    "plot", [refinement_plot, pairs_plot, training_plot, judge_plot, spending_plot]
)
def test_a_recipe_without_such_rows_is_named(lake, plot):
    with opened(lake, "empty") as runs:
        made = plot(runs)
    if plot is spending_plot:
        assert made.rows.height == 1
        return
    assert made.rows.is_empty()
    assert not made.panels
    assert made.missing.startswith("there is no ")
    assert "empty (recipe best-of-n)" in made.missing


# pairs


def test_margins_prompts_without_pairs_and_refinements_are_counted(lake):
    with opened(lake, "told") as runs:
        plot = pairs_plot(runs)
    assert only(plot.rows, measure="margin", name="50%")["value"] == pytest.approx(1.25)
    assert only(plot.rows, measure="outcome", name="no_positive")["value"] == 0.5
    assert only(plot.rows, measure="rows a prompt", name="1")["value"] == 0.5
    assert only(plot.rows, name="chosen is a refinement")["value"] == 1
    assert only(plot.rows, name="chosen repeats another's text")["value"] == 0
    assert plot_bytes(plot.panels, ".svg")


def test_demonstrations_count_too_and_a_text_chosen_twice_is_a_repetition(tmp_path):
    same = [replace(DEMONSTRATION, demonstration_id=f"d{n}", candidate_id=f"c{n}") for n in "ab"]
    rows = {Demonstration: same, Yield: [told.made(told.PAIRED, "demonstrated", 2)]}
    told.write_run(tmp_path, "rs", {1: rows})
    with opened(tmp_path, "rs") as runs:
        plot = pairs_plot(runs)
    assert only(plot.rows, name="chosen repeats another's text")["value"] == 0.5
    assert plot.rows.filter(measure="margin").is_empty()


# training


def test_all_trainings_lie_behind_each_other_on_one_axis(lake):
    with opened(lake, "online") as runs:
        plot = training_plot(runs)
    loss = plot.rows.filter(metric="loss")
    assert loss["at"].to_list() == [1, 2, 3, 4, 5, 6]
    assert loss["step"].to_list() == [1, 2, 3, 1, 2, 3]
    assert [panel.title for panel in plot.panels] == ["Loss", "KL from the reference"]
    (panel,) = (panel for panel in plot.panels if panel.title == "Loss")
    assert isinstance(panel, Lines)
    assert list(panel.breaks) == [3.5]
    assert plot_bytes(plot.panels, ".svg")


def test_many_steps_are_drawn_as_few_points_that_keep_the_extremes(tmp_path):
    count = 10 * POINTS
    told.write_run(tmp_path, "long", {1: {Statistic: steps(1, count, ("loss",))}})
    with opened(tmp_path, "long") as runs:
        rows = training_plot(runs).rows
    assert rows.height == POINTS
    assert rows["steps"].sum() == count
    assert (rows["low"].min(), rows["high"].max()) == (1, count)
    assert rows["value"].mean() == pytest.approx((count + 1) / 2)


# judge


def test_what_is_unread_is_told_by_reason(lake):
    with opened(lake, "a") as runs:
        plot = judge_plot(runs)
    unread = only(plot.rows, iteration=2, name="critiques: unreadable")
    assert (unread["measure"], unread["value"], unread["count"]) == ("unread", 0.25, 24)
    levels = only(plot.rows, iteration=1, measure="entropy", name="Logical Correctness")
    assert levels["value"] == pytest.approx(1.585, abs=0.001)
    assert any("No person rated" in note for note in plot.notes)
    assert plot_bytes(plot.panels, ".svg")


def judged(number, iteration, rating, **fields):
    answer = told.candidate(
        f"{number}-{iteration}", told.HELD_OUT[number], "Same.", kind="greedy", iteration=iteration
    )
    return answer, told.critique(answer, rating, **fields)


def test_equal_answers_that_are_rated_otherwise_are_drift(tmp_path):
    first = [judged(0, 0, 1), judged(1, 0, 1)]
    later = [judged(0, 1, 1), judged(1, 1, -1)]
    tables = {
        iteration: {Candidate: [c for c, _ in rows], Critique: [k for _, k in rows]}
        for iteration, rows in ((0, first), (1, later))
    }
    told.write_run(tmp_path, "drift", tables, stage="evaluate:held-out")
    with opened(tmp_path, "drift") as runs:
        plot = judge_plot(runs)
    drift = only(plot.rows, measure="anchor")
    assert (drift["iteration"], drift["value"], drift["count"]) == (1, -1.0, 2)
    assert drift["low"] < -1 < drift["high"]


def test_the_critic_is_held_to_most_people(tmp_path):
    (answer, said), (other, also) = judged(0, 1, 1), judged(1, 1, 1)
    people = [
        told.critique(answer, rating, critic=f"human:{name}")
        for name, rating in (("a", 1), ("b", 1), ("c", -1))
    ]
    against = told.critique(other, -1, critic="human:a")
    rows = {Candidate: [answer, other], Critique: [said, also, *people, against]}
    told.write_run(tmp_path, "people", {1: rows})
    with opened(tmp_path, "people") as runs:
        plot = judge_plot(runs)
    agreement = only(plot.rows, measure="agreement")
    assert (agreement["name"], agreement["value"], agreement["count"]) == ("people", 0.5, 2)


def test_grades_are_judgements_too(tmp_path):
    graded = [replace(GRADE, grade_id=f"g{n}", rating=float(n), status="scored") for n in (1, 2)]
    unread = replace(GRADE, grade_id="g3", rating=None, status="malformed")
    told.write_run(tmp_path, "graded", {1: {Grade: [*graded, unread]}})
    with opened(tmp_path, "graded") as runs:
        rows = judge_plot(runs).rows
    assert only(rows, name="grades: malformed")["value"] == pytest.approx(1 / 3)
    assert only(rows, measure="entropy")["value"] == 1


# spending


@pytest.mark.crash
def test_a_resume_says_what_it_found_done(tmp_path):
    config = small_config(write_prompts(tmp_path))
    with quick_folder(tmp_path) as folder:
        finished, killed = finished_and_killed(folder, config)
        Attempt(lake=killed, work=partial(loop, config=config)).finish()
        with opened(killed, RUN) as runs:
            plot = spending_plot(runs)
        with opened(finished, RUN) as runs:
            whole = spending_plot(runs)
    stages, resumed = (
        plot.rows.filter(pl.col("attempt").is_null()),
        plot.rows.filter(pl.col("attempt").is_not_null()),
    )
    assert set(resumed["attempt"]) == {2}
    assert resumed["found"].sum() > 0
    assert resumed["made"].sum() > 0
    assert resumed["found"].sum() + resumed["made"].sum() == stages["planned"].sum()
    assert plot.panels[-1].title == "Units at each resume"
    assert plot_bytes(plot.panels, ".svg")
    assert whole.rows["attempt"].null_count() == whole.rows.height
    assert whole.rows["tokens"].sum() == stages["tokens"].sum()


# several runs


@pytest.mark.parametrize("plot", [pairs_plot, judge_plot, spending_plot])
def test_several_runs_are_named_in_their_lines(lake, plot):
    with opened(lake, "a", "b") as runs:
        made = plot(runs)
    assert set(made.rows["run"]) == {"a", "b"}
    svg = plot_bytes(made.panels, ".svg").decode()
    assert ">a" in svg
    assert ">b" in svg


@pytest.mark.parametrize("plot", [refinement_plot, pairs_plot, judge_plot, spending_plot])
def test_the_command_below_a_plot_gives_its_rows(lake, plot):
    with opened(lake, "told") as runs:
        program, *words = plot(runs).command.split()
    assert program == "lpfloop"
    done = CliRunner().invoke(app, [*words, "--lake", str(lake)])
    assert done.exit_code == Exit.DONE, done.output
    assert done.output
