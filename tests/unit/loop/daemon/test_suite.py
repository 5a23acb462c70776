"""Several variants, one after another: one's failure does not stop the others."""

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.papers import arms_of
from lpfloop.loop.daemon.suite import Arm, Suite, run_suite
from lpfloop.loop.run.outcomes import AlarmStopError, Regressed

SAME = {"config": "tiny", "overrides": (), "env": {}}


def test_stopped_variant_lets_others_run(tmp_path):
    turned, told = list[str](), list[str]()
    ends = {"rlrf": AlarmStopError("it pleases its judge"), "reward-only": Regressed("it is worse")}

    def turn(job):
        turned.append(job.name)
        if job.config.recipe.name in ends:
            raise ends[job.config.recipe.name]

    arms = tuple(Arm(name=name, recipe=name) for name in (*ends, "dpo"))
    suite = Suite(arms=arms, seeds=(0,), lake=tmp_path, prefix="s", **SAME)
    run_suite(suite, turn, told.append)
    assert len(turned) == 3
    assert all(any(str(end) in line for line in told) for end in ends.values())


def test_arms_fork_as_named(tmp_path):
    jobs = dict[str, str | None]()

    def turn(job):
        jobs[job.name] = job.fork

    suite = Suite(arms=arms_of("rlrf"), seeds=(3,), lake=tmp_path, prefix="p", **SAME)
    run_suite(suite, turn, lambda _: None)
    assert jobs == {
        "p-dpo-3": None,
        "p-rs-3": "p-dpo-3",
        "p-dpo-dpo-3": "p-dpo-3",
        "p-rs-dpo-3": "p-rs-3",
        "p-reward-only-dpo-3": "p-dpo-3",
        "p-reward-only-rs-3": "p-reward-only-dpo-3",
    }
    with pytest.raises(ConfigError, match="the papers are"):
        arms_of("quark")
    assert suite.methods == {name: name.removeprefix("p-").removesuffix("-3") for name in jobs}
