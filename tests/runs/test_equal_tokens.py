"""Methods at equal tokens: the same trials for each, one budget, and refusals before the start."""

import json
from functools import cache

import pytest
from lakes import TurnedWorld
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.equal_tokens import ITERATIONS, EqualComparison
from lpfloop.loop.daemon.suite import Suite
from lpfloop.loop.data import prompts
from lpfloop.loop.evaluation.method_outcomes import method_outcomes
from lpfloop.loop.run.stop import Stopped


@pytest.fixture(scope="module", autouse=True)
def remembered():
    """Cache the slowest step: the tiny world's prompts."""
    made = cache(prompts.tiny_prompts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "tiny_prompts", lambda: list(made()))
        yield


BUDGET = 40_000
FEW = ("prompts.max_test=4", "prompts.max_dev=4", "reward.model=tiny")


def call(lake, *words):
    done = CliRunner().invoke(app, [*map(str, words), "--lake", str(lake)])
    return done.exit_code, done.stdout, done.stderr


def suite(lake, *, seeds=(0, 1, 2), overrides=FEW):
    return Suite(
        config="tiny", recipes=(), seeds=seeds, lake=lake, prefix="eq", overrides=overrides, env={}
    )


def equal(lake, *, budget=BUDGET, trials=2, turn=None, told=None, **about):
    return EqualComparison(
        suite=suite(lake, **about),
        budget=budget,
        trials=trials,
        turn=turn or TurnedWorld().turn,
        note=(told if told is not None else []).append,
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two methods, two trials each, three seeds: the lake, the runs, the world, the notes."""
    lake, told = tmp_path_factory.mktemp("equal"), list[str]()
    world = TurnedWorld()
    names = equal(lake, turn=world.turn, told=told).run(["reward-only", "ppo"])
    return lake, names, world, told


def test_trials_then_a_run_for_each_seed(compared):
    lake, names, world, told = compared
    trials = [f"eq-trial-{method}-{n}" for method in ("reward-only", "ppo") for n in (1, 2)]
    runs = [f"eq-{method}-{seed}" for seed in (0, 1, 2) for method in ("reward-only", "ppo")]
    assert world.turned == [*trials, *runs]
    assert names == runs
    first, *outcomes = method_outcomes(lake, names, BUDGET)
    assert [point.policy.name for point in first.points] == ["M_0"] * 3
    for outcome in outcomes:
        for point in outcome.points:
            assert 0.9 <= point.cost.policy_tokens / BUDGET <= 1
        assert not outcome.is_short(BUDGET)
        assert min(len(course.points) for course in outcome.courses) > ITERATIONS
    assert any("trial of ppo" in line and "training.ppo.learning_rate" in line for line in told)


def test_dev_prompts_choose_among_trials(tmp_path):
    own = load_config("tiny", "reward-only", [], {}).training.dpo.learning_rate
    best = float(f"{3 * own:.6g}")
    world, told = TurnedWorld(best_rate=best, gain=0.2), list[str]()
    equal(tmp_path, seeds=(0,), turn=world.turn, told=told).run(["reward-only"])
    chosen = f"chosen: training.dpo.learning_rate={best:g}"
    assert any("verified on dev" in line and chosen in line for line in told)
    assert world.rates["eq-reward-only-0"] == best


def test_resume_adds_seeds(tmp_path):
    world = TurnedWorld()

    def stopping(job):
        if job.name == "eq-reward-only-1":
            raise Stopped
        world.turn(job)

    with pytest.raises(Stopped):
        equal(tmp_path, trials=1, turn=stopping).run(["reward-only"])
    sizes = dict(world.sizes)
    names = equal(tmp_path, trials=1, turn=world.turn).run(["reward-only"])
    assert names == ["eq-reward-only-0", "eq-reward-only-1", "eq-reward-only-2"]
    assert sizes.items() <= world.sizes.items(), "the decisions follow from the runs"
    assert len({world.sizes[name] for name in names}) == 1
    wider = equal(tmp_path, trials=1, seeds=(0, 1, 2, 3), turn=world.turn)
    assert wider.run(["reward-only"]) == [*names, "eq-reward-only-3"]
    assert world.sizes["eq-reward-only-3"] == world.sizes[names[0]]


def test_incomparable_methods_are_refused(tmp_path, subtests):
    rows = [{"prompt": f"What is {n} + 1?", "reference": str(n + 1)} for n in range(40)]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(map(json.dumps, rows)))
    without_dev = (*FEW, "prompts.dev_share=0", f"prompts.source={prompts}")
    for recipe, asked, said in (
        ("sft", {}, "sft"),
        ("reward-only", {"budget": 30}, "too few for one prompt"),
        ("reward-only", {"overrides": without_dev}, "dev prompts choose"),
    ):
        with subtests.test(recipe=recipe, said=said):
            lake, world = tmp_path / "lake", TurnedWorld()
            with pytest.raises(ConfigError, match=said):
                equal(lake, seeds=(0,), trials=1, turn=world.turn, **asked).run([recipe])
            assert world.turned == []
            assert not lake.exists()


def test_comparison_is_shown_again(compared, tmp_path):
    lake, names, *_ = compared
    show = ("compare", *names, "--policy-tokens", BUDGET)
    code, stdout, _ = call(lake, *show, "--json")
    assert code == 0
    told = json.loads(stdout)
    assert [row["method"] for row in told["methods"]] == ["M_0", "reward-only", "ppo"]
    first, plot = told["methods"][1], tmp_path / "eq.svg"
    assert first["policy_tokens_low"] <= first["policy_tokens"] <= BUDGET
    assert [each["answer"] for each in told["verdicts"]] == ["undecided"]
    assert told["remarks"] == []
    code, stdout, _ = call(lake, *show, "--plot", str(plot))
    assert code == 0
    assert "undecided" in stdout
    assert plot.exists()
    assert call(lake, "compare", "qe", "--policy-tokens", "9")[0] == 2
