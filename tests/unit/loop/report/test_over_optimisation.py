"""Over-optimisation of any model, from a run's rows alone: by step, by n, by round."""

from contextlib import closing
from dataclasses import replace
from math import log

import lakes
import pytest
from rows import EVALUATION, STATISTIC

from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.over_optimisation import curve_rows
from lpfloop.stores.records import Evaluation, Statistic


def number(benchmark, metric, value):
    row = replace(EVALUATION, iteration=1, benchmark=benchmark, metric=metric, value=value)
    return replace(row, stderr=0.02, n=100)


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
    lakes.write_run(folder, "ppo", {1: {Evaluation: steps, Statistic: rollouts}}, recipe="ppo")
    samples = [
        number(f"best-of-{n}", metric, value)
        for n, won in ((1, 0.4), (2, 0.55), (4, 0.5))
        for metric, value in (
            ("win_rate", won),
            ("expected_reward", log(n)),
            ("kl_bound", log(n) - (n - 1) / n),
        )
    ]
    lakes.write_run(folder, "bon", {1: {Evaluation: samples}}, recipe="best-of-n")
    return folder


def rows_of(lake, name):
    with closing(open_run(lake, name)) as run:
        return curve_rows(run)


def test_rows_by_step(lake):
    rows = rows_of(lake, "ppo")
    assert rows["by"].unique().to_list() == ["step"]
    assert rows.select("x", "win_rate", "reward", "kl").rows() == [
        (2, 0.5, 1.0, 2.0),
        (4, 0.6, 2.0, 4.0),
        (6, 0.4, 3.0, 6.0),
    ]
    assert all(low < won < high for low, won, high in rows.select("low", "win_rate", "high").rows())


def test_rows_of_best_of_n(lake):
    rows = rows_of(lake, "bon")
    assert rows["x"].to_list() == [1, 2, 4]
    assert rows["kl"].to_list() == pytest.approx([0.0, log(2) - 1 / 2, log(4) - 3 / 4])
    assert rows["reward"].to_list() == pytest.approx([log(1), log(2), log(4)])
