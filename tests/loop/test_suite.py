"""Several variants, one after another: how one ends keeps no other from running."""

import pytest

from lpfloop.loop.daemon.suite import Suite, run_suite
from lpfloop.loop.evaluation.watch_policy import AlarmStopError
from lpfloop.loop.run.outcomes import Regressed


@pytest.mark.parametrize("end", [AlarmStopError("it pleases its judge"), Regressed("it is worse")])
def test_a_variant_that_stops_since_its_policy_got_worse_lets_the_others_run(tmp_path, end):
    turned, told = list[str](), list[str]()

    def turn(job):
        turned.append(job.name)
        if job.config.recipe.name == "rlrf":
            raise end

    suite = Suite(
        config="tiny",
        variants=("rlrf", "reward-only"),
        seeds=(0,),
        lake=tmp_path,
        prefix="s",
        overrides=(),
        env={},
    )
    assert run_suite(suite, turn, told.append) == {}
    assert len(turned) == 2
    assert any(str(end) in line for line in told)
