"""Runs side by side: the result of a run, the result of a method, and the ranking."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rows import PROMPT, SCORE, STANDING

from lpfloop.loop.cli.compare_commands import write_comparison
from lpfloop.loop.evaluation.compare_runs import by_method, incomparable, results
from lpfloop.loop.evaluation.comparison import compared_runs
from lpfloop.loop.evaluation.metrics import summarise
from lpfloop.loop.evaluation.ranking_agreement import ranking_agreement
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Evaluation, PolicyStanding, Prompt, Score

PROMPTS = [replace(PROMPT, prompt_id=f"p{n}", task="math" if n % 2 else "facts") for n in range(8)]
BEGAN = [0, 0, 0, 1, 0.5, 0, 1, 0]
BETTER = [0, 1, 0, 1, 1, 0, 1, 1]


def scores(values, *, iteration=1, checkpoint="made", metric="win_rate"):
    about = {"iteration": iteration, "checkpoint_id": checkpoint, "metric": metric}
    about |= {"benchmark": "held-out"}
    return [
        replace(SCORE, prompt_id=f"p{n}", value=float(value), **about)
        for n, value in enumerate(values)
    ]


def write(
    lake: Path,
    name: str,
    method: str,
    made: list[Score],
    *,
    tokens=10,
    kept=(),
    fingerprint="{}",
    prompts=None,
) -> None:
    """Write a run whose M_0 scored BEGAN, and that then made `made`."""
    facts = {"config": json.dumps({"recipe": {"name": method}}), "fingerprint": fingerprint}
    writer = RunWriter(Journal.create(run_folder(lake, name), facts))
    for number, rows in ((0, scores(BEGAN, iteration=0, checkpoint="m0")), (1, made)):
        unit = f"{name}-{number}"
        writer.journal.plan(number, "assess", unit, lambda unit=unit: [unit])
        tables = {Score: rows, Evaluation: summarise(rows)}
        if number == 0:
            tables[Prompt] = prompts or PROMPTS
        else:
            tables[PolicyStanding] = list(kept)
        writer.commit(unit, tables, {"tokens": tokens, "prompt_tokens": 0, "money": 0.0})
    writer.close()


def test_run_name_resolves_to_last(tmp_path):
    for name in ("dpo", "ppo"):
        write(tmp_path, name, name, scores(BETTER, checkpoint=name))
    found = results(tmp_path, ["dpo", "ppo", "dpo"])
    names = [(r.method, r.iteration, r.checkpoint) for r in found]
    assert names == [("M_0", 0, "m0"), ("dpo", 1, "dpo"), ("ppo", 1, "ppo")]
    assert found[1].numbers["win_rate"].value == 5 / 8
    assert found[0].tokens == 0
    assert found[1].tokens == 20


def test_lead_prompt_by_prompt(tmp_path):
    write(tmp_path, "dpo", "dpo", scores(BETTER))
    began, reached = results(tmp_path, ["dpo"])
    lead = reached.lead(began, "win_rate")
    apart = [after - before for before, after in zip(BEGAN, BETTER, strict=True)]
    assert math.isclose(lead.value, sum(apart) / 8)
    assert lead.low <= lead.value <= lead.high
    assert reached.lead(began, "true_score") is None


def test_rival_is_a_run_not_its_first_policy(tmp_path):
    write(tmp_path, "a", "dpo", scores(BETTER, checkpoint="a"))
    write(tmp_path, "b", "ppo", scores([1] * 8, checkpoint="b"))
    rivals = [compared_runs(tmp_path, ["a", "b"], against=name).rival for name in ("a", "M_0")]
    assert [rival.checkpoint for rival in rivals] == ["a", "m0"]


def test_runs_of_one_method_together(tmp_path):
    write(tmp_path, "a", "ppo", scores(BETTER, checkpoint="a"), tokens=10)
    write(tmp_path, "b", "ppo", scores([1] * 7 + [0], checkpoint="b"), tokens=30)
    *_, both = by_method(results(tmp_path, ["a", "b"]))
    assert (both.method, both.runs, both.tokens) == ("ppo", ("a", "b"), 40)
    one, other = (r.numbers["win_rate"] for r in results(tmp_path, ["a", "b"])[1:])
    mean = both.numbers["win_rate"]
    assert mean.value == (one.value + other.value) / 2
    within = (one.stderr**2 + other.stderr**2) / 2
    between = (one.value - other.value) ** 2 / 2 / 2
    assert math.isclose(mean.stderr, math.sqrt(within + between))
    assert both.scores["win_rate"]["p0"] == 0.5


def test_errors_are_over_clusters_of_prompts(tmp_path):
    wordings = [replace(p, cluster=f"c{n // 2}") for n, p in enumerate(PROMPTS)]
    values = [1, 1, 0, 0, 1, 1, 0, 0]
    # The stored evaluations treat every prompt as a separate cluster.
    write(tmp_path, "dpo", "dpo", scores(values), prompts=wordings)
    _, reached = results(tmp_path, ["dpo"])
    assert reached.numbers["win_rate"].stderr == pytest.approx(math.sqrt(1 / 3 / 4))


def test_no_lead_over_different_judges(tmp_path, capsys):
    for name, judge in (("a", "one"), ("b", "one"), ("c", "another")):
        made = scores(BETTER, checkpoint=name, metric="reward")
        write(tmp_path, name, name, made, fingerprint=json.dumps({"reward": judge}))
    _, a, b, c = results(tmp_path, ["a", "b", "c"])
    assert b.lead(a, "reward").value == 0
    assert c.lead(a, "reward") is None
    assert incomparable([a, b], "reward") is None
    assert incomparable([a, c], "reward")
    write_comparison(tmp_path, ["a", "b", "c"], together=False)
    assert "reward*" in capsys.readouterr().out


def test_run_name_resolves_to_best(tmp_path):
    kept = replace(STANDING, iteration=1, best_iteration=0)
    write(tmp_path, "dpo", "dpo", scores([0] * 8, checkpoint="dpo"), kept=[kept])
    began, reached = results(tmp_path, ["dpo"])
    assert (reached.method, reached.iteration, reached.checkpoint) == ("dpo", 0, "m0")
    assert reached.numbers["win_rate"] == began.numbers["win_rate"]
    assert reached.tokens > 0


def ranked(lake: Path, group: str, won: dict[str, int]) -> list[str]:
    """Write a run of each method, with so many wins of its policy; return their names."""
    for method, many in won.items():
        made = scores([1] * many + [0] * (8 - many), checkpoint=f"{group}-{method}")
        write(lake, f"{group}-{method}", method, made)
    return [f"{group}-{method}" for method in won]


def test_rankings_by_spearman(tmp_path):
    simulated = ranked(tmp_path, "sim", {"dpo": 6, "ppo": 7, "feedme": 4, "quark": 5})
    people = ranked(tmp_path, "human", {"dpo": 7, "ppo": 6, "feedme": 4, "sft": 5})
    found = ranking_agreement(tmp_path, simulated, people)
    rows = found.frame.select("method", "rank", "rank_other").rows()
    assert rows == [("ppo", 1, 2), ("dpo", 2, 1), ("feedme", 3, 3), ("M_0", 4, 4)]
    assert found.rho == pytest.approx(0.8)
