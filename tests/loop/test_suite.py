"""Several variants, one after another: how one ends keeps no other from running."""

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.papers import PAPERS, arms_of
from lpfloop.loop.daemon.suite import Arm, Suite, run_suite
from lpfloop.loop.run.outcomes import AlarmStopError, Regressed


@pytest.mark.parametrize("end", [AlarmStopError("it pleases its judge"), Regressed("it is worse")])
def test_a_variant_that_stops_since_its_policy_got_worse_lets_the_others_run(tmp_path, end):
    turned, told = list[str](), list[str]()

    def turn(job):
        turned.append(job.name)
        if job.config.recipe.name == "rlrf":
            raise end

    suite = Suite(
        config="tiny",
        arms=(Arm(name="rlrf", recipe="rlrf"), Arm(name="reward-only", recipe="reward-only")),
        seeds=(0,),
        lake=tmp_path,
        prefix="s",
        overrides=(),
        env={},
    )
    assert run_suite(suite, turn, told.append) == {}
    assert len(turned) == 2
    assert any(str(end) in line for line in told)


def test_an_arm_forks_the_first_one_or_that_which_it_names(tmp_path):
    jobs = dict[str, str | None]()

    def turn(job):
        jobs[job.name] = job.fork

    suite = Suite(
        config="tiny",
        arms=arms_of("rlrf"),
        seeds=(3,),
        lake=tmp_path,
        prefix="p",
        overrides=(),
        env={},
    )
    run_suite(suite, turn, lambda _: None)
    assert jobs == {
        "p-dpo-3": None,
        "p-rs-3": "p-dpo-3",
        "p-dpo-dpo-3": "p-dpo-3",
        "p-rs-dpo-3": "p-rs-3",
        "p-reward-only-dpo-3": "p-dpo-3",
        "p-reward-only-rs-3": "p-reward-only-dpo-3",
    }
    assert suite.methods == {name: name.removeprefix("p-").removesuffix("-3") for name in jobs}


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_every_arm_of_a_paper_has_a_configuration(paper, preset):
    named = set()
    for arm in arms_of(paper):
        config = load_config(preset, arm.recipe, list(arm.settings), {})
        assert config.recipe.name == arm.recipe
        assert arm.fork in {"", *named}
        named.add(arm.name)
    assert len(named) == len(arms_of(paper))


def test_another_paper_is_refused():
    with pytest.raises(ConfigError, match="the papers are rlrf, alpacafarm, ultrafeedback, chatgl"):
        arms_of("quark")
