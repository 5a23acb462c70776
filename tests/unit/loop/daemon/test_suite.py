"""Several recipes, one after another: one's failure does not stop the others."""

from lpfloop.loop.daemon.suite import Suite, run_suite
from lpfloop.loop.run.stop import AlarmStopError, Regressed

SAME = {"config": "tiny", "overrides": (), "env": {}}


def test_stopped_recipe_lets_others_run(tmp_path):
    turned, told = list[str](), list[str]()
    ends = {"rlrf": AlarmStopError("it pleases its judge"), "reward-only": Regressed("it is worse")}

    def turn(job):
        turned.append(job.name)
        if job.config.recipe.name in ends:
            raise ends[job.config.recipe.name]

    suite = Suite(recipes=(*ends, "dpo"), seeds=(0,), lake=tmp_path, prefix="s", **SAME)
    assert run_suite(suite, turn, told.append) == turned
    assert turned == ["s-rlrf-0", "s-reward-only-0", "s-dpo-0"]
    assert all(any(str(end) in line for line in told) for end in ends.values())


def test_others_reuse_the_first(tmp_path):
    jobs = dict[str, str | None]()

    def turn(job):
        jobs[job.name] = job.fork

    recipes = ("rlrf", "reward-only", "kto")
    suite = Suite(recipes=recipes, seeds=(3,), lake=tmp_path, prefix="p", **SAME)
    run_suite(suite, turn, lambda _: None)
    assert jobs == {"p-rlrf-3": None, "p-reward-only-3": "p-rlrf-3", "p-kto-3": "p-rlrf-3"}
