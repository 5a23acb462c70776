"""Over-optimisation of any model, from a run's rows alone: by step, by n, by round."""

from contextlib import closing
from dataclasses import replace
from math import log

import pytest
import told

from examples import EVALUATION, STATISTIC
from lpfloop.loop.evaluation.panels import Lines
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.optimisation_plot import optimisation_plot, optimisation_rows
from lpfloop.loop.report.report_page import drawn
from lpfloop.stores.records import Evaluation, Statistic


def number(benchmark, metric, value, iteration=1):
    return replace(
        EVALUATION,
        iteration=iteration,
        benchmark=benchmark,
        metric=metric,
        value=value,
        stderr=0.02,
        n=100,
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves") / "lake"
    wins = {2: 0.5, 4: 0.6, 6: 0.4}
    steps = [number(f"step-{step}:dev", "win_rate", won) for step, won in wins.items()]
    rollouts = [
        replace(STATISTIC, iteration=1, method="ppo", step=step, metric=metric, value=value)
        for step in range(1, 7)
        for metric, value in (("reward", step / 2), ("kl", float(step)))
    ]
    told.write_run(folder, "ppo", {1: {Evaluation: steps, Statistic: rollouts}}, recipe="ppo")
    samples = [
        number(f"best-of-{n}", metric, value)
        for n, won in ((1, 0.4), (2, 0.55), (4, 0.5))
        for metric, value in (
            ("win_rate", won),
            ("expected_reward", log(n)),
            ("kl_bound", log(n) - (n - 1) / n),
        )
    ]
    told.write_run(folder, "bon", {1: {Evaluation: samples}}, recipe="best-of-n")
    rounds = [number("held-out", "win_rate", 0.4 + n / 10, iteration=n) for n in (0, 1, 2)]
    told.write_run(folder, "rounds", {n: {Evaluation: [rounds[n]]} for n in (0, 1, 2)})
    one = [number("held-out", "win_rate", 0.4)]
    told.write_run(folder, "one", {1: {Evaluation: one}})
    return folder


def rows_of(lake, name):
    with closing(open_run(lake, name)) as run:
        return optimisation_rows(run)


def test_a_policy_of_a_step_has_its_rollouts_reward_where_its_answers_have_none(lake):
    rows = rows_of(lake, "ppo")
    assert rows["by"].unique().to_list() == ["step"]
    assert rows.select("x", "win_rate", "reward", "kl").rows() == [
        (2, 0.5, 1.0, 2.0),
        (4, 0.6, 2.0, 4.0),
        (6, 0.4, 3.0, 6.0),
    ]
    assert all(low < won < high for low, won, high in rows.select("low", "win_rate", "high").rows())


def test_the_best_of_n_has_its_expected_reward_and_its_bound(lake):
    rows = rows_of(lake, "bon")
    assert rows["x"].to_list() == [1, 2, 4]
    assert rows["kl"].to_list() == pytest.approx([0.0, log(2) - 1 / 2, log(4) - 3 / 4])
    assert rows["reward"].to_list() == pytest.approx([log(1), log(2), log(4)])


def test_rounds_are_iterations_and_one_point_is_no_curve(lake):
    assert rows_of(lake, "rounds").select("by", "x").rows() == [("iteration", n) for n in (0, 1, 2)]
    assert rows_of(lake, "one").is_empty()
    with closing(open_run(lake, "one")) as run:
        plot = optimisation_plot([run])
    assert plot.panels == []
    assert "one (recipe" in plot.missing


def test_runs_stand_in_one_panel_over_kl_and_each_kind_in_its_own(lake):
    with closing(open_run(lake, "ppo")) as ppo, closing(open_run(lake, "bon")) as bon:
        plot = optimisation_plot([ppo, bon])
        assert len(drawn(plot).panels) == len(plot.panels)
    lines = [panel for panel in plot.panels if isinstance(panel, Lines)]
    assert [panel.title for panel in lines] == [
        "win-rate by step",
        "reward by step",
        "win-rate by n of best-of-n",
        "reward by n of best-of-n",
        "win-rate against KL to M_0",
        "win-rate against reward",
    ]
    (steps,) = lines[0].series
    assert (steps.label, list(steps.y)) == ("ppo, dev prompts", [50.0, 60.0, 40.0])
    assert lines[2].log_x
    labels = [series.label for series in lines[4].series]
    assert labels == ["ppo, dev prompts", "bon: best-of-n"]
