"""Runs side by side: what stands for a run, what stands for a method, and who is ahead."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from commands import call

from examples import PROMPT, SCORE, STANDING
from lpfloop.loop.cli.compare_commands import write_comparison
from lpfloop.loop.evaluation.compare_runs import by_method, incomparable, results
from lpfloop.loop.evaluation.metrics import summarise
from lpfloop.loop.evaluation.ranking_agreement import ranking_agreement
from lpfloop.loop.lake.query.forms import FormError
from lpfloop.loop.lake.query.runs import NoSuchRunError
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Evaluation, PolicyStanding, Prompt, Score

PROMPTS = [replace(PROMPT, prompt_id=f"p{n}", task="math" if n % 2 else "facts") for n in range(8)]
BEGAN = [0, 0, 0, 1, 0.5, 0, 1, 0]
BETTER = [0, 1, 0, 1, 1, 0, 1, 1]


def scores(values, *, iteration=1, checkpoint="made", benchmark="held-out", metric="win_rate"):
    return [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=checkpoint,
            benchmark=benchmark,
            metric=metric,
            prompt_id=f"p{n}",
            value=float(value),
        )
        for n, value in enumerate(values)
    ]


def write(
    lake: Path,
    name: str,
    recipe: dict[str, object],
    made: list[Score],
    *,
    tokens=10,
    more=(),
    kept=(),
    fingerprint="{}",
    prompts=None,
) -> None:
    """Write a run whose M_0 did as BEGAN, and that has then made what `made` is about.

    `more` is what else the run measured of its M_0, `kept` its standings.
    """
    facts = {"config": json.dumps({"recipe": recipe}), "fingerprint": fingerprint}
    writer = RunWriter(Journal.create(run_folder(lake, name), facts))
    for number, rows in ((0, [*scores(BEGAN, iteration=0, checkpoint="m0"), *more]), (1, made)):
        unit = f"{name}-{number}"
        writer.journal.plan(number, "assess", unit, lambda unit=unit: [unit])
        tables = {Score: rows, Evaluation: summarise(rows)}
        if number == 0:
            tables[Prompt] = prompts or PROMPTS
        else:
            tables[PolicyStanding] = list(kept)
        writer.commit(unit, tables, {"tokens": tokens, "prompt_tokens": 0, "money": 0.0})
    writer.close()


def test_a_run_stands_for_its_last_policy_and_m_0_is_shown_once(tmp_path):
    for name in ("dpo", "ppo"):
        write(tmp_path, name, {"name": name}, scores(BETTER, checkpoint=name))
    found = results(tmp_path, ["dpo", "ppo", "dpo"])
    assert [(r.method, r.iteration, r.checkpoint) for r in found] == [
        ("M_0", 0, "m0"),
        ("dpo", 1, "dpo"),
        ("ppo", 1, "ppo"),
    ]
    assert found[1].numbers["win_rate"].value == 5 / 8
    assert found[0].tokens == 0
    assert found[1].tokens == 20


def test_a_policy_that_a_run_has_made_is_no_beginning_of_another(tmp_path):
    write(tmp_path, "sft", {"name": "sft"}, scores(BETTER, checkpoint="m0"))
    write(tmp_path, "dpo", {"name": "dpo"}, scores(BETTER, checkpoint="dpo"))
    assert [result.method for result in results(tmp_path, ["sft", "dpo"])] == ["sft", "dpo"]


def test_of_m_0_all_is_shown_that_some_run_has_measured(tmp_path):
    rewards = scores(BETTER, iteration=0, checkpoint="m0", metric="reward")
    write(tmp_path, "sft", {"name": "sft"}, scores(BETTER, checkpoint="m0"))
    write(tmp_path, "reward", {"name": "reward-model"}, [])
    write(tmp_path, "dpo", {"name": "dpo"}, scores(BETTER, checkpoint="dpo"), more=rewards)
    supervised, _ = results(tmp_path, ["sft", "reward", "dpo"])
    assert supervised.numbers["reward"].value == 5 / 8
    assert supervised.scores["reward"]["p1"] == 1
    began, _ = results(tmp_path, ["reward", "dpo"])
    assert set(began.numbers) == {"win_rate", "reward"}


def test_best_of_n_stands_for_its_best_answers(tmp_path):
    best = scores(BETTER, checkpoint="m0", benchmark="best-of-16")
    curve = scores(BEGAN, checkpoint="m0", benchmark="best-of-4", metric="reward")
    write(tmp_path, "a", {"name": "best-of-n", "most": 16}, [*best, *curve])
    began, reached = results(tmp_path, ["a"])
    assert (began.method, reached.method, reached.benchmark) == ("M_0", "best-of-16", "best-of-16")
    assert set(reached.numbers) == {"win_rate"}


def test_what_is_ahead_is_told_prompt_by_prompt(tmp_path):
    write(tmp_path, "dpo", {"name": "dpo"}, scores(BETTER))
    began, reached = results(tmp_path, ["dpo"])
    lead = reached.lead(began, "win_rate")
    apart = [after - before for before, after in zip(BEGAN, BETTER, strict=True)]
    assert math.isclose(lead.value, sum(apart) / 8)
    assert lead.interval[0] <= lead.value <= lead.interval[1]
    assert reached.lead(began, "true_score") is None


def test_runs_of_one_method_are_taken_together_with_an_error_of_both_kinds(tmp_path):
    write(tmp_path, "a", {"name": "ppo"}, scores(BETTER, checkpoint="a"), tokens=10)
    write(tmp_path, "b", {"name": "ppo"}, scores([1] * 7 + [0], checkpoint="b"), tokens=30)
    *_, both = by_method(results(tmp_path, ["a", "b"]))
    assert (both.method, both.runs, both.tokens) == ("ppo", ("a", "b"), 40)
    one, other = (r.numbers["win_rate"] for r in results(tmp_path, ["a", "b"])[1:])
    mean = both.numbers["win_rate"]
    assert mean.value == (one.value + other.value) / 2
    within = (one.stderr**2 + other.stderr**2) / 2
    between = (one.value - other.value) ** 2 / 2 / 2
    assert math.isclose(mean.stderr, math.sqrt(within + between))
    assert both.scores["win_rate"]["p0"] == 0.5


def test_a_method_is_compared_on_the_prompts_of_all_its_runs(tmp_path):
    """Which held-out prompts a run is measured on depends on its seed."""
    first = scores([1] * 4, checkpoint="a")
    second = [replace(s, checkpoint_id="b", prompt_id=f"p{n}") for n, s in enumerate(first, 2)]
    write(tmp_path, "a", {"name": "ppo"}, first)
    write(tmp_path, "b", {"name": "ppo"}, second)
    began, both = by_method(results(tmp_path, ["a", "b"]))
    assert both.scores["win_rate"] == {f"p{n}": 1.0 for n in range(6)}
    assert both.lead(began, "win_rate").n == 6


def test_the_numbers_of_one_task_are_those_of_its_prompts(tmp_path):
    write(tmp_path, "dpo", {"name": "dpo"}, scores(BETTER))
    _, reached = results(tmp_path, ["dpo"], task="math")
    assert set(reached.scores["win_rate"]) == {"p1", "p3", "p5", "p7"}
    expected, *_ = summarise(scores(BETTER[1::2]))
    measure = reached.numbers["win_rate"]
    assert (measure.value, measure.stderr) == pytest.approx((expected.value, expected.stderr))
    with pytest.raises(NoSuchRunError, match="no answers of task general"):
        results(tmp_path, ["dpo"], task="general")


def test_a_table_shows_all_runs_and_their_leads(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    write(tmp_path, "dpo-0", {"name": "dpo"}, scores(BETTER, checkpoint="a"))
    write(tmp_path, "dpo-1", {"name": "dpo"}, scores(BETTER, checkpoint="b"))
    write_comparison(tmp_path, ["dpo-0", "dpo-1"], together=True, against="M_0")
    shown = capsys.readouterr().out
    for text in ("M_0", "dpo", "31.2 ±16.2", "62.5 ±18.3", "+31.2 ["):
        assert text in shown


def test_errors_are_those_of_clusters_of_prompts_and_are_called_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    wordings = [replace(p, cluster=f"c{n // 2}") for n, p in enumerate(PROMPTS)]
    values = [1, 1, 0, 0, 1, 1, 0, 0]
    # What the evaluations themselves hold was measured as if no prompt had a cluster.
    write(tmp_path, "dpo", {"name": "dpo"}, scores(values), prompts=wordings)
    _, reached = results(tmp_path, ["dpo"])
    assert reached.numbers["win_rate"].stderr == pytest.approx(math.sqrt(1 / 3 / 4))
    write_comparison(tmp_path, ["dpo"], together=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "mean ± standard error over clusters of prompts Method" in shown
    write(tmp_path, "alone", {"name": "dpo"}, scores(values))
    write_comparison(tmp_path, ["alone"], together=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "mean ± standard error over prompts Method" in shown


def test_rows_of_a_comparison_go_to_programs(tmp_path):
    write(tmp_path, "dpo", {"name": "dpo"}, scores(BETTER))
    code, stdout, stderr = call(tmp_path, "compare", "dpo", "--against", "M_0", "--json")
    assert code == 0, stderr
    began, reached = json.loads(stdout)
    assert (began["method"], reached["method"]) == ("M_0", "dpo")
    assert reached["win_rate"] == 0.625
    assert reached["win_rate_lead"] == 0.3125
    assert len(reached["win_rate_lead_interval"]) == 2
    code, _, stderr = call(tmp_path, "compare", "dpo", "--against", "ppo")
    assert (code, "not in the comparison, which has M_0, dpo" in stderr) == (2, True)


def judged(lake: Path, name: str, **fingerprint: str) -> None:
    """Write a run that was judged by what its fingerprint says."""
    made = scores(BETTER, checkpoint=name, metric="reward")
    write(lake, name, {"name": name}, made, fingerprint=json.dumps(fingerprint))


def test_figures_of_different_judges_are_marked_and_no_lead_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    judged(tmp_path, "a", reward="one")
    judged(tmp_path, "b", reward="one")
    judged(tmp_path, "c", reward="another")
    _, a, b, c = results(tmp_path, ["a", "b", "c"])
    assert b.lead(a, "reward").value == 0
    assert c.lead(a, "reward") is None
    assert incomparable([a, b], "reward") is None
    assert incomparable([a, c], "reward") == "by different judges (reward model)"
    write_comparison(tmp_path, ["a", "b", "c"], together=False)
    shown = capsys.readouterr().out
    assert "Reward*" in shown
    told = "* not comparable as it stands: Reward, measured by different judges (reward model)"
    assert told in shown
    assert max(map(len, shown[: shown.index("* not")].splitlines())) <= 80
    write_comparison(tmp_path, ["a", "b"], together=False)
    assert "*" not in capsys.readouterr().out


def test_figures_on_other_prompts_are_marked(tmp_path):
    write(tmp_path, "a", {"name": "a"}, scores(BETTER, checkpoint="a"))
    write(tmp_path, "b", {"name": "b"}, scores(BETTER[:6], checkpoint="b"))
    _, a, b = results(tmp_path, ["a", "b"])
    assert incomparable([a, b], "win_rate") == "on different prompts"
    assert incomparable([a], "win_rate") is None


def test_a_run_stands_for_the_policy_that_it_keeps_as_the_best(tmp_path):
    kept = replace(STANDING, iteration=1, best_iteration=0)
    write(tmp_path, "dpo", {"name": "dpo"}, scores([0] * 8, checkpoint="dpo"), kept=[kept])
    began, reached = results(tmp_path, ["dpo"])
    assert (reached.method, reached.iteration, reached.checkpoint) == ("dpo", 0, "m0")
    assert reached.numbers["win_rate"] == began.numbers["win_rate"]
    assert reached.tokens > 0


def test_what_is_verified_and_approved_is_compared_under_one_name(tmp_path):
    ratings = [
        *scores(BETTER, metric="rating:Readability"),
        *scores([1] * 8, metric="rating:Factuality"),
        *scores(BEGAN, metric="sentence_match"),
    ]
    write(tmp_path, "dpo", {"name": "dpo"}, ratings)
    _, reached = results(tmp_path, ["dpo"])
    assert reached.numbers["approval"].value == 5 / 8
    assert reached.numbers["verified"].value == sum(BEGAN) / 8
    _, facts = results(tmp_path, ["dpo"], task="facts")
    assert facts.numbers["approval"].value == sum(BETTER[::2]) / 4


def test_a_run_without_numbers_is_refused(tmp_path):
    RunWriter(Journal.create(run_folder(tmp_path, "empty"), {"config": "{}"})).close()
    with pytest.raises(NoSuchRunError, match="has measured no answers yet"):
        results(tmp_path, ["empty"])


WON = {"dpo": 6, "ppo": 7, "feedme": 4, "quark": 5}
"""How many of the eight prompts each method wins."""


def ranked(lake: Path, group: str, won: dict[str, int]) -> list[str]:
    """Write a run of each method, with a policy that wins so many prompts; return their names."""
    for method, many in won.items():
        made = scores([1] * many + [0] * (8 - many), checkpoint=f"{group}-{method}")
        write(lake, f"{group}-{method}", {"name": method}, made)
    return [f"{group}-{method}" for method in won]


def test_two_rankings_of_the_same_methods_are_compared_by_spearman(tmp_path):
    simulated = ranked(tmp_path, "sim", WON)
    people = ranked(tmp_path, "human", {"dpo": 7, "ppo": 6, "feedme": 4, "sft": 5})
    found = ranking_agreement(tmp_path, simulated, people)
    rows = found.frame.select("method", "rank", "rank_beside").rows()
    assert rows == [("ppo", 1, 2), ("dpo", 2, 1), ("feedme", 3, 3), ("M_0", 4, 4)]
    assert found.rho == pytest.approx(0.8)
    tied = ranked(tmp_path, "tied", {"dpo": 6, "ppo": 6, "feedme": 4})
    assert ranking_agreement(tmp_path, simulated, tied).frame["rank_beside"].to_list() == [
        1.5,
        1.5,
        3,
        4,
    ]


def test_too_few_methods_to_rank_are_refused(tmp_path):
    simulated = ranked(tmp_path, "sim", WON)
    people = ranked(tmp_path, "human", {"dpo": 7, "sft": 5})
    with pytest.raises(FormError, match=r"for 2 methods \(M_0, dpo\); a ranking of fewer than 3"):
        ranking_agreement(tmp_path, simulated, people)
    with pytest.raises(FormError, match="true_score is measured in both groups for 0 methods"):
        ranking_agreement(tmp_path, simulated, simulated, metric="true_score")


def test_the_command_prints_both_rankings_and_how_alike_they_are(tmp_path):
    simulated = ranked(tmp_path, "sim", WON)
    people = ",".join(ranked(tmp_path, "human", WON))
    place = ["compare", *simulated, "--rank-with", people]
    code, told, _ = call(tmp_path, *place)
    assert code == 0
    assert "ppo" in told
    code, told, _ = call(tmp_path, *place, "--json")
    (row, *_) = json.loads(told)
    assert (row["method"], row["rank"], row["rank_beside"]) == ("ppo", 1, 1)
    assert row["spearman"] == pytest.approx(1)
    code, _, told = call(tmp_path, *place, "--against", "dpo")
    assert code == 2
    assert "--against says nothing of rankings" in told
