"""Facts: answers are broken into statements, each judged by the critic against the reference."""

import json
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from crashing import Silent
from fact_judges import REFERENCE
from typer.testing import CliRunner

from lpfloop.configs.load import load_config, stored_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.plan import plan_of
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.run.unread_replies import UnreadRepliesError

SETTINGS = (
    "iterations=0",
    "guard=true",
    "policy.engine.kind=scripted",
    "policy.engine.script=fact_judges:biographer",
    "critic.model=none",
    "critic.engine.kind=scripted",
    "critic.engine.script=fact_judges:fact_judge",
    "critic.kind=verifier",
    "prompts.chunk=3",
    "reward.model=none",
)


def prompts(folder: Path, *more: dict) -> Path:
    """Write prompts of facts: four to train on, four held out, and others."""
    rows = [
        {
            "prompt": f"Tell me about Mia Berg, version {number}",
            "task": "facts",
            "reference": REFERENCE,
            "split": "train" if number < 4 else "held-out",
        }
        for number in range(8)
    ]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, *more)))
    return path


def config(folder: Path, *overrides: str, source: Path | str | None = None):
    place = source or prompts(folder)
    return load_config("tiny", "rlrf", (*SETTINGS, f"prompts.source={place}", *overrides), {})


def measured(folder: Path, *overrides: str, source: Path | None = None, name: str = "a") -> Path:
    job = Job(config=config(folder, *overrides, source=source), lake=folder / "lake", name=name)
    run_loop(job, Silent(), StopSignal())
    return job.lake


def rows(lake: Path, table: str, name: str = "a") -> pl.DataFrame:
    with closing(open_run(lake, name)) as run:
        return run.scan(table).collect()


def numbers(lake: Path, name: str = "a") -> dict[str, tuple[float, int]]:
    found = rows(lake, "evaluations", name).filter(pl.col("benchmark") == "held-out")
    return {metric: (value, n) for metric, value, n in found[["metric", "value", "n"]].iter_rows()}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("facts"))


def test_the_score_is_the_mean_over_answers_that_state_something(lake):
    found = numbers(lake)
    # One of three statements is supported, then two of two: a repeated one counts once.
    assert found["fact_score"] == (pytest.approx((1 / 3 + 1) / 2), 2)
    assert found["facts_supported"] == (1.5, 2)
    assert found["facts_not_supported"] == (0.5, 2)
    assert found["facts_irrelevant"] == (0.5, 2)
    assert found["abstained"] == (0.5, 4)
    assert found["facts_unread"] == (0.0, 4)
    assert "sentence_match" not in found


def test_every_statement_is_a_row_with_its_verdict_and_reason(lake):
    claims = rows(lake, "claims").sort("candidate_id", "place")
    assert claims.height == 5
    assert set(claims["verdict"]) == {"supported", "not_supported", "irrelevant"}
    assert set(claims["reason"]) == {"By its words."}
    assert set(claims["status"]) == {"scored"}
    broken = rows(lake, "breakdowns")
    assert set(broken["status"]) == {"scored"}
    assert set(broken.filter(pl.col("passage") == "")["attempts"]) == {0}
    assert set(broken.filter(pl.col("passage") != "")["attempts"]) == {1}


def test_showing_an_answer_lists_its_statements(lake):
    (claim, *_) = rows(lake, "claims").filter(pl.col("verdict") == "not_supported").to_dicts()
    told = CliRunner().invoke(app, ["show", claim["claim_id"], "--lake", str(lake)])
    assert told.exit_code == 0, told.stderr
    assert "- Mia Berg was born in 1951. not supported (By its words.)" in told.stdout
    assert "o Oslo is a port. irrelevant" in told.stdout


def test_statements_beyond_the_most_are_kept_without_a_verdict(tmp_path):
    lake = measured(tmp_path, "facts.most=1")
    claims = rows(lake, "claims")
    assert claims["status"].value_counts().sort("status").rows() == [
        ("beyond_most", 3),
        ("scored", 2),
    ]
    assert numbers(lake)["fact_score"] == (1.0, 2)
    assert numbers(lake)["facts_unread"] == (0.0, 4)


def test_several_statements_in_a_question_give_the_same_verdicts_in_fewer_calls(lake, tmp_path):
    together = measured(tmp_path, "facts.together=10")
    assert numbers(together)["fact_score"] == numbers(lake)["fact_score"]
    assert rows(together, "claims")["text"].n_unique() == 2


def test_replies_that_cannot_be_read_are_counted_and_never_zeros(tmp_path):
    lake = measured(
        tmp_path, "critic.engine.script=fact_judges:unsure_judge", "smoke.most_unread=1"
    )
    claims = rows(lake, "claims")
    assert set(claims["status"]) == {"missing"}
    assert set(claims["verdict"]) == {None}
    assert set(claims["attempts"]) == {2}
    found = numbers(lake)
    assert "fact_score" not in found
    assert found["facts_unread"] == (1.25, 4)


def test_without_a_reference_there_is_no_number_but_a_reason(tmp_path):
    bare = {"prompt": "Who is Bo? 0", "task": "facts", "split": "held-out"}
    lake = measured(tmp_path, source=prompts(tmp_path, bare))
    (row,) = rows(lake, "breakdowns").filter(pl.col("status") == "no_reference").to_dicts()
    assert row["attempts"] == 0
    scored = rows(lake, "scores").filter(pl.col("candidate_id") == row["candidate_id"])
    assert set(scored["metric"]) == {"mean_length"}


@pytest.mark.parametrize("override", ["facts.judge=none", "critic.engine.kind=auto"])
def test_without_a_judge_there_is_no_number(tmp_path, override):
    lake = measured(tmp_path, override)
    assert set(numbers(lake)) == {"mean_length"}
    assert rows(lake, "claims").is_empty()


def test_the_verifier_leaves_such_answers_without_a_rating(lake):
    critiques = rows(lake, "critiques")
    assert set(critiques["status"]) == {"no_judge"}
    assert "critic_agreement" not in numbers(lake)


def test_sentence_match_is_refused_for_other_prompts_than_the_tiny_worlds(tmp_path):
    source = prompts(tmp_path)
    told = CliRunner().invoke(
        app,
        [
            *("run", "--run", "a", "--lake", str(tmp_path / "lake")),
            *(f"--set={item}" for item in (*SETTINGS, f"prompts.source={source}")),
            "--set=facts.judge=sentence_match",
        ],
    )
    assert told.exit_code == Exit.BAD_INPUT
    assert "facts.judge=sentence_match compares sentences with the tiny world's" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "lake" / "runs" / "a").exists()


def test_the_tiny_world_matches_sentences_and_others_have_a_judge_by_default(tmp_path):
    assert load_config("tiny", "rlrf", (), {}).facts.judge == "sentence_match"
    assert config(tmp_path).facts.judge == "critic"
    assert load_config("own", "rlrf", (), {}).facts.judge == "critic"


@pytest.mark.parametrize(("source", "judge"), [("tiny", "sentence_match"), ("x.jsonl", "none")])
def test_a_run_from_before_is_judged_as_it_was_or_not_at_all(source, judge):
    assert stored_config({"prompts": {"source": source}}, (), {}).facts.judge == judge


def test_a_judge_by_inference_needs_its_model():
    with pytest.raises(ConfigError, match=r"nli needs a model: name its folder with facts\.nli"):
        load_config("own", "rlrf", ("facts.judge=nli",), {})


@pytest.mark.parametrize("judge", ["critic", "nli"])
def test_a_plan_counts_what_judging_facts_asks(tmp_path, judge):
    settings = config(tmp_path, f"facts.judge={judge}", "facts.nli.model=nli", "policy.model=tiny")
    asked = load_prompts(settings.prompts, seed=0)
    plan = plan_of(rehearse(settings, asked), asked)
    stages = {stage.stage: stage for stage in plan.stages if stage.iteration == 0}
    broken = stages["break_up:evaluate:held-out"]
    judged = stages["judge_claims:evaluate:held-out"]
    assert broken.judge_calls >= 4
    # Answers are as long as they may be: each passage has as many statements as its words allow.
    calls = judged.judge_calls if judge == "critic" else judged.scored
    assert calls > broken.judge_calls
    assert (judged.judge_calls > 0) == (judge == "critic")
    assert stages["facts:held-out"].units == 1


def test_a_run_that_is_stopped_by_its_budget_goes_on_with_what_it_has(lake, tmp_path):
    with pytest.raises(Stopped):
        measured(tmp_path, "budget.judge_calls=4")
    assert "fact_score" not in numbers(tmp_path / "lake")
    measured(tmp_path)
    assert numbers(tmp_path / "lake") == numbers(lake)
    with closing(open_run(tmp_path / "lake", "a")) as run, closing(open_run(lake, "a")) as whole:
        spent = [sum(s.totals.get("calls", 0) for s in r.journal.stages()) for r in (run, whole)]
    assert spent[0] == spent[1]


def test_statements_that_were_not_read_are_asked_for_again(tmp_path):
    unsure = ("critic.engine.script=fact_judges:unsure_judge", "smoke.most_unread=1")
    lake = measured(tmp_path, *unsure)
    told = CliRunner().invoke(app, ["resume", "a", "--lake", str(lake), "--retry-unscored"])
    assert told.exit_code == 0, told.stderr
    held_out = rows(lake, "claims").filter(pl.col("attempts") == 4)
    assert held_out.height == 5
    assert "facts_unread" in numbers(lake)


def test_the_smoke_test_tries_the_judge_of_facts(tmp_path):
    with pytest.raises(UnreadRepliesError, match="judge_claims:smoke"):
        measured(
            tmp_path,
            "iterations=1",
            "smoke.prompts=4",
            "smoke.train=false",
            "critic.engine.script=fact_judges:unsure_judge",
        )
