"""Plots of a run: refinement, pairs, training, judge; reasons for empty ones."""

from contextlib import contextmanager
from dataclasses import replace

import lakes
import polars as pl
import pytest
from rows import STATISTIC

from lpfloop.loop.evaluation.panels import Lines
from lpfloop.loop.evaluation.plots import plot_bytes
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.judge_health import judge_plot
from lpfloop.loop.report.pair_health import pairs_plot
from lpfloop.loop.report.refinement_gain import refinement_plot
from lpfloop.loop.report.refinement_rounds import rounds_plot
from lpfloop.loop.report.spending import spending_plot
from lpfloop.loop.report.training_curves import training_plot
from lpfloop.stores.records import Candidate, Critique, Prompt, Statistic


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
    """A lake of `told`, of a run with two trainings, and of an empty one."""
    folder = tmp_path_factory.mktemp("plots") / "lake"
    lakes.told_run(folder)
    lakes.write_run(folder, "online", {1: {Statistic: steps(1)}, 2: {Statistic: steps(2)}})
    lakes.write_run(folder, "empty", {0: {Prompt: [lakes.PAIRED]}}, recipe="best-of-n")
    return folder


def steps(iteration, count=3, metrics=("loss", "kl")):
    return [
        replace(STATISTIC, iteration=iteration, method="ppo", step=step, metric=metric, value=step)
        for step in range(1, count + 1)
        for metric in metrics
    ]


def only(rows, **wanted):
    found = rows.filter(*(pl.col(name) == value for name, value in wanted.items()))
    assert found.height == 1, found
    return found.row(0, named=True)


# refinement


def test_refinement_by_aspect(lake):
    with opened(lake, "told") as runs:
        plot = refinement_plot(runs)
    gained = only(plot.rows, aspect="Readability")
    assert (gained["n"], gained["moderate_to_success"], gained["gain"]) == (1, 1, 1.0)
    same = only(plot.rows, aspect="Completeness")
    assert (same["success_to_success"], same["improved"], same["worsened"]) == (1, 0, 0)
    whole = only(plot.rows, aspect="all aspects")
    assert (whole["improved"], whole["before"], whole["after"]) == (1, pytest.approx(2 / 3), 1)
    assert plot_bytes(plot.panels, ".svg")


def test_recipe_without_such_rows(lake, subtests):
    for plot in [refinement_plot, pairs_plot, training_plot, judge_plot, spending_plot]:
        with subtests.test(case=plot):
            with opened(lake, "empty") as runs:
                made = plot(runs)
            if plot is spending_plot:
                assert made.rows.height == 1
                return
            assert made.rows.is_empty()
            assert not made.panels
            assert made.missing.startswith("there is no ")
            assert "best-of-n" in made.missing


# pairs


def test_margins_and_outcomes(lake):
    with opened(lake, "told") as runs:
        plot = pairs_plot(runs)
    assert only(plot.rows, measure="margin", name="50%")["value"] == pytest.approx(1.25)
    assert only(plot.rows, measure="outcome", name="no_positive")["value"] == 0.5
    assert only(plot.rows, measure="rows a prompt", name="1")["value"] == 0.5
    assert only(plot.rows, name="chosen is a refinement")["value"] == 1
    assert only(plot.rows, name="chosen repeats another's text")["value"] == 0
    assert plot_bytes(plot.panels, ".svg")


# training


def test_trainings_on_one_axis(lake):
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


# judge


def judged(number, iteration, rating, **fields):
    answer = lakes.candidate(
        f"{number}-{iteration}", lakes.HELD_OUT[number], "Same.", kind="greedy", iteration=iteration
    )
    return answer, lakes.critique(answer, rating, **fields)


def test_drift_of_equal_answers(tmp_path):
    first = [judged(0, 0, 1), judged(1, 0, 1)]
    later = [judged(0, 1, 1), judged(1, 1, -1)]
    tables = {
        iteration: {Candidate: [c for c, _ in rows], Critique: [k for _, k in rows]}
        for iteration, rows in ((0, first), (1, later))
    }
    lakes.write_run(tmp_path, "drift", tables, stage="evaluate:held-out")
    with opened(tmp_path, "drift") as runs:
        plot = judge_plot(runs)
    drift = only(plot.rows, measure="anchor")
    assert (drift["iteration"], drift["value"], drift["count"]) == (1, -1.0, 2)
    assert drift["low"] < -1 < drift["high"]
    tables[0][Prompt] = [replace(p, cluster="alike") for p in lakes.HELD_OUT]
    lakes.write_run(tmp_path, "alike", tables, stage="evaluate:held-out")
    with opened(tmp_path, "alike") as runs:
        plot = judge_plot(runs)
    drift = only(plot.rows, measure="anchor")
    assert (drift["value"], drift["low"]) == (-1.0, None), "one cluster bounds nothing"
    assert plot_bytes(plot.panels, ".svg")


def passed_prompts(clusters):
    """Return the tables of six prompts, of which the first three have a passed refinement."""
    asked = [replace(lakes.prompt(n), cluster=name) for n, name in enumerate(clusters)]
    drafts = [lakes.candidate(f"draft-{n}", of, "No.") for n, of in enumerate(asked)]
    better = [
        lakes.candidate(
            f"better-{n}", of, "Yes.", kind="refinement", parent_id=drafts[n].candidate_id
        )
        for n, of in enumerate(asked)
    ]
    said = [lakes.critique(one, -1) for one in drafts]
    said += [lakes.critique(one, 1 if n < 3 else -1) for n, one in enumerate(better)]
    return {1: {Prompt: asked, Candidate: [*drafts, *better], Critique: said}}


def test_refined_prompts_of_one_cluster_count_together(tmp_path):
    shown = {}
    for name, clusters in (("apart", "abcdef"), ("pairs", "aabbcc"), ("one", "aaaaaa")):
        lakes.write_run(tmp_path, name, passed_prompts(clusters))
        with opened(tmp_path, name) as runs:
            rounds, gain = rounds_plot(runs), refinement_plot(runs)
        shown[name] = (only(rounds.rows, round=1), only(gain.rows, aspect="all aspects"))
        assert plot_bytes(rounds.panels, ".svg")
        assert plot_bytes(gain.panels, ".svg")
    for apart, pairs, one in zip(*shown.values(), strict=True):
        assert apart["high"] - apart["low"] < pairs["high"] - pairs["low"]
        assert (one["low"], one["high"]) == (None, None)
    assert shown["apart"][0]["share"] == 0.5
