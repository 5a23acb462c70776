"""Sections of a report: pairs, refinement, training, answers; reasons for empty ones."""

from contextlib import closing
from dataclasses import replace

import lakes
import polars as pl
import pytest
from rows import STATISTIC

from lpfloop.loop.evaluation.plots import Lines, plot_bytes
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.answers import answers_section
from lpfloop.loop.report.critic import critic_section
from lpfloop.loop.report.over_optimisation import over_optimisation_section
from lpfloop.loop.report.pairs import pairs_section
from lpfloop.loop.report.spending import spending_section
from lpfloop.loop.report.training import training_section
from lpfloop.stores.records import Candidate, Critique, Prompt, Statistic


def section(lake, name, make):
    with closing(open_run(lake, name)) as run:
        return make(run)


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


def test_gain_by_aspect(lake):
    rows = section(lake, "told", pairs_section).tables["refinement"]
    gained = only(rows, aspect="Readability")
    assert (gained["n"], gained["improved"], gained["gain"]) == (1, 1, 1.0)
    same = only(rows, aspect="Completeness")
    assert (same["before"], same["after"], same["improved"]) == (1, 1, 0)
    whole = only(rows, aspect="all aspects")
    assert (whole["improved"], whole["before"], whole["after"]) == (1, pytest.approx(2 / 3), 1)


def test_recipe_without_such_rows(lake, subtests):
    for make in (
        answers_section,
        critic_section,
        over_optimisation_section,
        pairs_section,
        spending_section,
        training_section,
    ):
        with subtests.test(case=make):
            assert not section(lake, "empty", make).panels


def test_margins_and_outcomes(lake):
    made = section(lake, "told", pairs_section)
    rows = made.tables["pairs"]
    assert only(rows, measure="margin", name="50%")["value"] == pytest.approx(1.25)
    assert only(rows, measure="outcome", name="no_positive")["value"] == 0.5
    assert plot_bytes(made.panels, ".svg")


def test_lengths_of_answers_and_sides(lake):
    made = section(lake, "told", answers_section)
    counted = made.tables["answers"].group_by("part").agg(pl.col("count").sum())
    parts = dict(counted.iter_rows())
    assert parts["chosen"] == parts["rejected"] == 1
    assert parts["sample"] > parts["refinement"] > 0
    assert plot_bytes(made.panels, ".svg")


def test_trainings_on_one_axis(lake):
    made = section(lake, "online", training_section)
    loss = made.tables["training"].filter(metric="loss")
    assert loss["at"].to_list() == [1, 2, 3, 4, 5, 6]
    assert loss["step"].to_list() == [1, 2, 3, 1, 2, 3]
    assert [panel.title for panel in made.panels] == ["Loss", "KL from the reference"]
    (panel,) = (panel for panel in made.panels if panel.title == "Loss")
    assert isinstance(panel, Lines)
    assert list(panel.breaks) == [3.5]
    assert plot_bytes(made.panels, ".svg")


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
        made = section(tmp_path, name, pairs_section)
        shown[name] = only(made.tables["refinement"], aspect="all aspects")
        assert plot_bytes(made.panels, ".svg")
    apart, pairs, one = shown.values()
    assert apart["high"] - apart["low"] < pairs["high"] - pairs["low"]
    assert (one["low"], one["high"]) == (None, None)
