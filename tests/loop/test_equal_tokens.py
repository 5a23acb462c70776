"""Methods at equal tokens: the same trials for each, one budget, and what is refused before."""

import json
from contextlib import closing
from shutil import rmtree

import pytest
from commands import call
from equal_runs import Made, World, write_course

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli import equal_commands
from lpfloop.loop.cli.equal_commands import compare_at_equal_tokens
from lpfloop.loop.daemon.equal_record import read_record
from lpfloop.loop.daemon.equal_rows import EqualTable, as_document
from lpfloop.loop.daemon.equal_sizes import (
    ITERATIONS,
    RunSize,
    UnitCost,
    final_size,
    stepped_method,
    trial_size,
)
from lpfloop.loop.daemon.equal_tokens import (
    TRIAL_SEED,
    EqualSuite,
    compared_methods,
    outcomes_of,
    run_equal,
)
from lpfloop.loop.daemon.suite import Suite
from lpfloop.loop.daemon.trials import MOST, TRIALS, trial_overrides, trials_of
from lpfloop.loop.evaluation.method_outcomes import MethodOutcome, _seed_error, method_verdicts
from lpfloop.loop.evaluation.token_course import TokenBudget, token_course
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import Stopped
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder

BUDGET = TokenBudget(policy_tokens=40_000)
FEW = ("prompts.evaluated=4", "prompts.deciding=4", "reward.model=tiny")


def suite(lake, *, seeds=(0, 1, 2), overrides=FEW):
    return Suite(
        config="tiny",
        arms=(),
        seeds=seeds,
        lake=lake,
        prefix="eq",
        overrides=overrides,
        env={},
    )


def equal(lake, *, budget=BUDGET, trials=2, **about):
    return EqualSuite(suite=suite(lake, **about), budget=budget, trials=trials)


def run(asked, *recipes, world=None, told=None):
    world = world or World()
    note = (told if told is not None else []).append
    return run_equal(asked, recipes, world.turn, note), world


class Seeing(World):
    """A world that keeps the jobs that it turned."""

    def turn(self, job):
        self.jobs = [*getattr(self, "jobs", []), job]
        super().turn(job)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two methods, two trials each, three seeds: the lake, the record, the world, what was told."""
    lake, told = tmp_path_factory.mktemp("equal"), list[str]()
    record, world = run(equal(lake), "reward-only", "ppo", world=Seeing(), told=told)
    return lake, record, world, told


def test_each_method_gets_its_trials_then_a_run_a_seed_with_the_whole_budget(compared):
    lake, record, world, told = compared
    trials = [f"eq-trial-{method}-{n}" for method in ("reward-only", "ppo") for n in (1, 2)]
    runs = [f"eq-{method}-{seed}" for seed in (0, 1, 2) for method in ("reward-only", "ppo")]
    assert world.turned == [*trials, *runs]
    assert record == read_record(lake, "eq"), "what was decided is kept"
    outcomes = outcomes_of(lake, record)
    for outcome in outcomes:
        for point in outcome.points:
            assert 0.9 <= BUDGET.used_by(point.cost) <= 1
        assert not outcome.is_short
        assert min(len(course.points) for course in outcome.courses) > ITERATIONS
    assert any("trial of ppo" in line and "training.ppo.learning_rate" in line for line in told)
    verdict = as_document(EqualTable(record=record, outcomes=outcomes))["verdicts"]
    assert [each["answer"] for each in verdict] == ["undecided"]


def test_the_dev_prompts_choose_among_the_trials_and_equal_ones_leave_the_presets_own(tmp_path):
    own = load_config("tiny", "reward-only", [], {}).training.dpo.learning_rate
    best = float(f"{3 * own:.6g}")
    world = World(best_rate=best, gain=0.2)
    record, _ = run(equal(tmp_path, seeds=(0,)), "reward-only", world=world)
    (method,) = record.methods
    assert method.chosen == 1
    assert method.trials[1].settings == (("training.dpo.learning_rate", best),)
    assert method.trials[1].score > method.trials[0].score
    assert {trial.figure for trial in method.trials} == {"verified"}
    with_none = World(best_rate=0.5)
    record, _ = run(equal(tmp_path / "other", seeds=(0,)), "reward-only", world=with_none)
    assert record.methods[0].chosen == 0


def test_the_same_call_goes_on_where_it_was_and_may_add_seeds(tmp_path):
    world = World()

    def stopping(job):
        if job.name == "eq-reward-only-1":
            raise Stopped
        world.turn(job)

    with pytest.raises(Stopped):
        run_equal(equal(tmp_path, trials=1), ["reward-only"], stopping, lambda _: None)
    begun = read_record(tmp_path, "eq")
    world.turned.clear()
    record, _ = run(equal(tmp_path, trials=1), "reward-only", world=world)
    assert world.turned == ["eq-reward-only-0", "eq-reward-only-1", "eq-reward-only-2"]
    assert record.methods == begun.methods
    world.turned.clear()
    longer, _ = run(equal(tmp_path, trials=1, seeds=(0, 1, 2, 3)), "reward-only", world=world)
    assert world.turned[-1] == "eq-reward-only-3"
    assert (longer.methods, longer.seeds) == (begun.methods, (0, 1, 2, 3))
    with pytest.raises(ConfigError, match=f"{TRIAL_SEED} is the seed of the trials"):
        run(equal(tmp_path, trials=1, seeds=range(TRIAL_SEED, TRIAL_SEED + 2)), "reward-only")
    other = (*FEW, "critic.samples=2", "training.dpo.beta=0.3")
    with pytest.raises(ConfigError, match=r"training\.dpo\.beta: 0\.1 -> 0\.3.*another one with"):
        run(equal(tmp_path, trials=1, overrides=other), "reward-only")
    with pytest.raises(ConfigError, match="--policy-tokens: the comparison eq was begun with"):
        run(equal(tmp_path, trials=1, budget=TokenBudget(policy_tokens=50_000)), "reward-only")
    with pytest.raises(ConfigError, match="--variants: the comparison eq was begun with rew"):
        run(equal(tmp_path, trials=1), "reward-only", "ppo")


def test_the_judges_budget_bounds_a_method_that_asks_much_and_no_other(tmp_path):
    budget = TokenBudget(policy_tokens=40_000, judge_tokens=9_000)
    record, _ = run(equal(tmp_path, budget=budget, seeds=(0,), trials=1), "rlrf", "ppo")
    asking, free = outcomes_of(tmp_path, record)
    (of_judges,), (own,) = asking.points, free.points
    assert 0.9 * 9_000 <= of_judges.cost.judge_tokens <= 9_000
    assert of_judges.cost.policy_tokens < 20_000
    assert own.cost.judge_tokens == 0
    assert 0.9 * 40_000 <= own.cost.policy_tokens <= 40_000
    assert not asking.is_short
    assert "9,000 of judges" in EqualTable(record=record, outcomes=[asking, free]).title


def test_a_run_that_spends_less_than_its_trial_gets_more_iterations(tmp_path):
    class Cheaper(World):
        def made(self, config):
            self.policy_tokens = 100 if config.prompts.evaluated == 1 else 75
            return super().made(config)

        def turn(self, job):
            super().turn(job)
            if len(self.made(job.config)) > ITERATIONS:
                rmtree(run_folder(job.lake, job.name))
                super().turn(job)
                self.turned.pop()

    record, world = run(equal(tmp_path, seeds=(0,), trials=1), "reward-only", world=Cheaper())
    assert world.turned.count("eq-reward-only-0") == 2, "4 iterations are 70 %, 5 are 88 %"
    (outcome,) = outcomes_of(tmp_path, record)
    assert outcome.points[0].policy.iteration == ITERATIONS + 1
    assert outcome.is_short


def test_a_seed_of_which_a_run_was_stopped_counts_for_no_method(tmp_path):
    record, _ = run(equal(tmp_path, seeds=(0, 1, 2), trials=1), "reward-only", "ppo")
    for outcome in outcomes_of(tmp_path, record):
        assert [course.seed for course in outcome.courses] == [0, 1, 2]
    with closing(Journal(run_folder(tmp_path, record.run_of("ppo", 1)))) as journal:
        journal.record("end", "Stopped: a stop was asked for")
    found = outcomes_of(tmp_path, record)
    assert [[c.seed for c in outcome.courses] for outcome in found] == [[0, 2], [0, 2]]
    table = EqualTable(record=record, outcomes=found)
    assert "over 2 seeds" in table.title
    assert [r for r in table.remarks() if "do not count" in r and ": 1; " in r]


def test_a_method_with_nothing_to_train_on_is_left_out_and_told(tmp_path):
    world = World()

    def turn(job):
        if job.config.recipe.name == "reward-only":
            raise NothingToTrainOn("iteration 1 made 3 pairs")
        world.turn(job)

    told = list[str]()
    asked = equal(tmp_path, seeds=(0,), trials=1)
    record = run_equal(asked, ["reward-only", "ppo"], turn, told.append)
    assert record.methods[0].size is None
    assert [outcome.method for outcome in outcomes_of(tmp_path, record)] == ["ppo"]
    shown = EqualTable(record=record, outcomes=outcomes_of(tmp_path, record))
    assert any("reward-only was left out" in remark for remark in shown.remarks())


def test_all_methods_begin_alike_are_judged_alike_and_share_no_units(compared):
    jobs = compared[2].jobs
    assert {job.fork for job in jobs} == {None}
    of = {job.name: job.config for job in jobs}
    one, two = of["eq-reward-only-0"], of["eq-ppo-0"]
    for section in ("policy", "critic", "reward", "evaluation", "assessment", "verdict"):
        assert getattr(one, section) == getattr(two, section), section
    assert two.prompts.evaluated == 4
    assert of["eq-trial-ppo-1"].prompts.evaluated == 1
    assert {of[f"eq-trial-{m}-1"].seed for m in ("reward-only", "ppo")} == {TRIAL_SEED}
    steps = two.training.ppo
    assert (steps.held_out_each, steps.choose) == (True, "last")
    assert one.assessment.kl
    assert one.verdict.on_regression == "continue"
    assert one.alarms.on_alarm == "continue"


@pytest.mark.parametrize(
    ("recipes", "asked", "said"),
    [
        (["sft"], {}, "sft does not make its policy of tokens that it generates"),
        (["best-of-n"], {}, "best-of-n does not make its policy"),
        (["reward-only"], {"trials": MOST + 1}, f"each method has {MOST} settings to try"),
        (
            ["reward-only"],
            {"budget": TokenBudget(policy_tokens=30)},
            "too few for one prompt of a trial of reward-only",
        ),
        (["ppo"], {"budget": TokenBudget(policy_tokens=900)}, "too few for one step"),
        (
            ["reward-only"],
            {"budget": TokenBudget(policy_tokens=90_000, judge_tokens=9)},
            "none of these methods asks a judge",
        ),
        (
            ["rlrf"],
            {"budget": TokenBudget(policy_tokens=90_000, judge_tokens=9)},
            "--judge-tokens 4,800",
        ),
        (
            ["reward-only"],
            {"overrides": (*FEW, "prompts.dev_share=0", "prompts.source=PROMPTS")},
            "no dev prompts",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_written(
    tmp_path, recipes, asked, said
):
    rows = [{"prompt": f"What is {n} + 1?", "reference": str(n + 1)} for n in range(40)]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(map(json.dumps, rows)))
    if "overrides" in asked:
        own = tuple(each.replace("PROMPTS", str(prompts)) for each in asked["overrides"])
        asked = {**asked, "overrides": own}
    lake, world = tmp_path / "lake", World()
    with pytest.raises(ConfigError, match=said):
        run(equal(lake, **{"seeds": (0,), "trials": 1, **asked}), *recipes, world=world)
    assert world.turned == []
    assert not lake.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--variants", "rlrf,ppo", "--trials", "2"], "--trials is about methods at equal tokens"),
        (["--judge-tokens", "9"], "--judge-tokens is about methods at equal tokens"),
        (["--policy-tokens", "9000"], "name them by --variants"),
        (["--policy-tokens", "9000", "--paper", "rlrf"], "without --paper"),
        (
            ["--policy-tokens", "9000", "--variants", "rlfr"],
            "--variants rlfr: there is no recipe 'rlfr'; write all, or",
        ),
        (["--policy-tokens", "9000", "--variants", "rlrf", "--fork", "a"], "leave out --fork"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(tmp_path, options, said):
    code, stdout, stderr = call(tmp_path, "run", *options)
    assert (code, stdout) == (2, "")
    assert said in stderr


def test_a_comparison_is_shown_again_as_tables_data_and_a_plot(compared, tmp_path):
    lake = compared[0]
    show = ("compare", "eq", "--equal-tokens")
    code, stdout, _ = call(lake, *show)
    assert code == 0
    for word in ("M_0", "reward-only", "ppo", "Policy tokens", "undecided", "chosen"):
        assert word in stdout
    code, stdout, _ = call(lake, *show, "--json")
    told = json.loads(stdout)
    assert [row["method"] for row in told["methods"]] == ["M_0", "reward-only", "ppo"]
    assert sum(trial["chosen"] for trial in told["trials"]) == 2
    first, plot, page = told["methods"][1], tmp_path / "eq.svg", tmp_path / "eq.html"
    assert told["seeds"] == [0, 1, 2]
    for reached in told["tokens_to_reach"]:
        assert [each["method"] for each in reached["tokens"]] == ["reward-only", "ppo"]
        (ratio,) = reached["ratios"]
        assert (ratio["method"], ratio["over"]) == ("reward-only", "ppo")
        both = zip(*(each["by_seed"] for each in reached["tokens"]), strict=True)
        assert ratio["by_seed"] == [one / two if one and two else None for one, two in both]
    assert told["tokens_to_reach"]
    assert "Tokens of the policy to the same score" in stdout_of(lake, *show)
    assert first["policy_tokens_low"] <= first["policy_tokens"] <= BUDGET.policy_tokens
    code, _, _ = call(lake, *show, "--plot", str(plot), "--report", str(page))
    assert code == 0
    assert "1,000 tokens of policy and judges" in plot.read_text()
    assert "The settings that were tried" in page.read_text()
    code, _, stderr = call(lake, "compare", "qe", "--equal-tokens")
    assert (code, "no comparison qe" in stderr, "but eq" in stderr) == (2, True, True)


def test_a_run_ends_with_its_tables_and_a_command_that_draws_them(tmp_path, monkeypatch, capfd):
    world, lake = World(), tmp_path / "lake"
    monkeypatch.setattr(equal_commands, "stop_signal", lambda *_, **__: None)
    monkeypatch.setattr(equal_commands, "turn", lambda job, _: world.turn(job))
    for _ in range(2):
        asked = equal(lake, trials=1, seeds=(0,))
        compare_at_equal_tokens(asked, ["reward-only", "ppo"], where=f" --lake {lake}")
        told = capfd.readouterr()
        assert "reward-only" in told.out
    drawing = next(part for part in told.err.split("`") if "--plot" in part)
    words = drawing.removesuffix(f" --lake {lake}").split()[1:]
    assert call(lake, *words, cwd=tmp_path)[0] == 0
    assert (tmp_path / "eq.svg").exists()
    assert (tmp_path / "eq.html").exists()


def stdout_of(lake, *words):
    code, stdout, _ = call(lake, *words)
    assert code == 0
    return stdout


def outcomes(lake, *methods, seeds):
    found = []
    for method, shares in methods:
        for seed in range(seeds):
            made = [Made(policy_tokens=100, right=shares[seed])]
            write_course(lake, f"{method}-{seed}", made, config={"seed": seed})
        found.append((method, [f"{method}-{seed}" for seed in range(seeds)]))
    return [_outcome(lake, method, names) for method, names in found]


def _outcome(lake, method, names):
    courses = []
    for name in names:
        with closing(open_run(lake, name)) as opened:
            courses.append(token_course(opened, method))
    return MethodOutcome(method=method, budget=BUDGET, courses=tuple(courses))


def test_which_of_two_methods_is_named_first_changes_no_verdict(tmp_path):
    named = [(f"m{n}", tuple(0.3 + 0.05 * n + 0.05 * (s == n) for s in range(3))) for n in range(3)]
    there = outcomes(tmp_path / "a", *named, seeds=3)
    bounds = {
        (v.before.method, v.after.method): (v.decision.low, v.decision.high)
        for v in method_verdicts(there)
    }
    for verdict in method_verdicts(there[::-1]):
        low, high = bounds[verdict.after.method, verdict.before.method]
        assert (verdict.decision.low, verdict.decision.high) == (
            pytest.approx(-high),
            pytest.approx(-low),
        )
    # Three lines share 5 %, of which "better" and "worse" have a half each: Student's t of 4
    # degrees at 0.05 / 6 is 3.961.
    error, degrees = _seed_error(there, "verified")
    (low, high) = bounds["m0", "m2"]
    assert degrees == 4
    assert high - low >= 2 * 3.960 * error


def test_a_verdict_on_methods_counts_what_seeds_differ_by(tmp_path):
    steady = outcomes(tmp_path / "a", ("good", (1.0, 1.0, 1.0)), ("poor", (0.2, 0.2, 0.2)), seeds=3)
    (verdict,) = method_verdicts(steady)
    assert (verdict.after.method, verdict.decision.answer) == ("poor", "not better")
    unsteady = outcomes(
        tmp_path / "b", ("good", (1.0, 0.2, 1.0)), ("poor", (0.2, 0.5, 0.2)), seeds=3
    )
    (verdict,) = method_verdicts(unsteady)
    assert verdict.decision.answer == "undecided"
    assert verdict.decision.low < -0.9 < 0.5 < verdict.decision.high
    alone = outcomes(tmp_path / "c", ("good", (1.0,)), ("poor", (0.2,)), seeds=1)
    (verdict,) = method_verdicts(alone)
    assert verdict.decision.answer == "not better", "of these policies, by their prompts"


def test_a_figure_has_its_interval_over_seeds(tmp_path):
    (outcome,) = outcomes(tmp_path, ("a", (0.4, 0.5, 0.6)), seeds=3)
    found = outcome.figure("verified")
    assert found.value == pytest.approx(0.5)
    half = 4.302653 * 0.1 / 3**0.5
    assert (found.low, found.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    assert outcome.is_short, "100 of 40,000 tokens"
    assert outcome.figure("win_rate") is None


def test_a_run_is_as_long_as_the_tighter_budget_and_the_prompts_allow():
    budget = TokenBudget(policy_tokens=100_000, judge_tokens=10_000)
    cost = UnitCost(once=(0.0, 0.0), each=(100.0, 20.0), later=(50.0, 20.0))
    assert trial_size(cost, budget, "", 500) == RunSize(iterations=2, prompts=100)
    tried = RunSize(iterations=2, prompts=100)
    assert final_size(cost, budget, tried, 5_000) == RunSize(iterations=4, prompts=117)
    own = TokenBudget(policy_tokens=100_000)
    assert final_size(cost, own, tried, 5_000).prompts == 376, "100 + 3 * 50 a prompt"
    assert final_size(cost, own, tried, 200) == RunSize(iterations=8, prompts=200)
    steps = UnitCost(once=(1_000.0, 0.0), each=(100.0, 0.0), later=(200.0, 0.0))
    assert trial_size(steps, own, "ppo", 500) == RunSize(method="ppo", steps=390)
    longer = final_size(steps, own, RunSize(method="ppo", steps=390), 500)
    assert longer.steps == 390 + 270


def test_every_method_has_the_same_number_of_trials_and_they_differ():
    assert set(TRIALS) <= set(RECIPES)
    assert all(len(trials) == MOST for trials in TRIALS.values())
    for preset in ("tiny", "paper"):
        for recipe in TRIALS:
            base = load_config(preset, recipe, [], {})
            tried = [
                load_config(preset, recipe, trial_overrides(trial, base), {})
                for trial in trials_of(recipe, MOST)
            ]
            assert tried[0] == base, "the preset's own come first"
            assert len({each.model_dump_json() for each in tried}) == MOST, (preset, recipe)


def test_which_methods_make_steps_is_read_from_their_recipes():
    made = {name: stepped_method(load_config("tiny", name, [], {})) for name in TRIALS}
    assert (made["ppo"], made["quark"], made["rlrf"]) == ("ppo", "quark", "")
    assert compared_methods("all") == list(TRIALS)


@pytest.mark.slow
@pytest.mark.model
def test_two_methods_are_compared_in_the_tiny_world(tmp_path):
    small = ("prompts.evaluated=10", "prompts.deciding=10", "training.min_pairs=4")
    quick = ("policy.engine.kind=transformers", "critic.kind=verifier", "training.ppo.rollouts=32")
    settings = [word for value in (*small, *quick) for word in ("--set", value)]
    asked = ("--policy-tokens", "12000", "--trials", "1", "--seeds", "1", "--run", "eq")
    command = ("run", "--variants", "reward-only,ppo", *asked, *settings)
    code, stdout, stderr = call(tmp_path, *command)
    assert code == 0, stderr
    assert "reward-only" in stdout
    told = json.loads(call(tmp_path, "compare", "eq", "--equal-tokens", "--json")[1])
    rows = {row["method"]: row for row in told["methods"]}
    for method in ("reward-only", "ppo"):
        assert 0.7 < rows[method]["used"] <= 1, "a quarter may be lost where the last is too long"
        assert rows[method]["policy_tokens"] <= 12_000
        assert rows[method]["kl"] > 0
    assert "--plot eq.svg" in stdout + stderr
    with closing(open_run(tmp_path, "eq-ppo-0")) as opened:
        course = token_course(opened)
    spent = [point.cost.policy_tokens for point in course.points]
    assert spent == sorted(set(spent)), "each policy on the way cost more than the one before"
    before = call(tmp_path, "status", "eq-ppo-0", "--json")[1]
    assert call(tmp_path, *command)[0] == 0
    assert call(tmp_path, "status", "eq-ppo-0", "--json")[1] == before, "nothing is paid twice"
