"""Capability probes: read strictly, measured once a policy, and an alarm where one falls."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.critics.verify import Verdict
from lpfloop.loop.cli.result_tables import print_probes
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import iteration, run_loop
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts, tiny_prompts
from lpfloop.loop.evaluation.probe import passed, probe
from lpfloop.loop.evaluation.probe_sets import load_probes, read_probes, require_probes
from lpfloop.loop.lake.query.forgetting import (
    FALL,
    FALL_OVERALL,
    PASSED,
    alarming,
    falls,
)
from lpfloop.loop.lake.query.runs import evaluations, open_run, status
from lpfloop.loop.lake.statistics.share_interval import wilson
from lpfloop.loop.run.models import Served
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Checkpoint, Evaluation, Score

SCRIPTED = (
    "iterations=0",
    "policy.engine.kind=scripted",
    "policy.engine.script=probed:able",
    "critic.kind=verifier",
    "prompts.evaluated=3",
    "prompts.deciding=3",
    "prompts.chunk=4",
    "reward.model=none",
)
WORDS = ("apple", "bell", "cat", "drum", "egg")


class Notes:
    """A reporter that keeps what it is told."""

    def __init__(self):
        self.told = []

    def begin(self, iteration, stage, *, planned, done):
        pass

    def advance(self, iteration, stage, advance):
        pass

    def end(self, iteration, stage):
        pass

    def note(self, text):
        self.told.append(text)


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def probes_file(folder: Path) -> Path:
    words = [
        {"prompt": f"Say {w}", "checks": [{"kind": "equals", "argument": w}], "probe": "word"}
        for w in WORDS
    ]
    names = [
        {
            "prompt": f"I am {w}. Who are you?",
            "checks": [{"kind": "self_identifies", "argument": "Loopy"}],
            "probe": "name",
        }
        for w in WORDS
    ]
    return written(folder / "probes.jsonl", [*words, *names])


def job(lake: Path, *overrides: str) -> Job:
    config = load_config("tiny", "rlrf", (*SCRIPTED, *overrides), {})
    return Job(config=config, lake=lake, name="a")


def rows(lake: Path, table: str) -> pl.DataFrame:
    run = open_run(lake, "a")
    frame = run.scan(table).collect()
    run.close()
    return frame


def probe_with(wanted: Job, number: int, script: str, reporter: Notes) -> None:
    """Probe another policy in the same run, as a later iteration would."""
    engine = EngineConfig(kind="scripted", script=script)
    policy = Served(name="policy", identity=f"policy-{number}", location="tiny", engine=engine)
    first = Checkpoint(
        checkpoint_id="policy-0",
        parent_id=None,
        reference_id=None,
        iteration=0,
        recipe="initial",
        path="tiny",
        steps=0,
        metrics="{}",
    )
    prompts = load_prompts(wanted.config.prompts, seed=0)
    with opened(wanted, prompts, reporter, StopSignal()) as run:
        probe(replace(iteration(run, number, first), policy=policy))


# measuring


def share(value):
    """Return what the status says of a probe that all, or none, of five prompts pass."""
    low, high = wilson(value, 5)
    return {"value": value, "stderr": 0, "n": 5, "low": low, "high": high}


def test_a_fall_is_an_alarm_in_rows_notes_the_journal_and_the_status(tmp_path):
    wanted = job(tmp_path, f"assessment.probes={probes_file(tmp_path)}")
    run_loop(wanted, Notes(), StopSignal())
    notes = Notes()
    probe_with(wanted, 1, "probed:forgetful", notes)

    reader = open_run(tmp_path, "a")
    before, after = (turn["probes"] for turn in status(reader)["iterations"])
    written = io.StringIO()
    print_probes(Console(file=written, width=120), evaluations(reader))
    events = reader.journal.events("alarm")
    reader.close()
    assert before["name"] == {"passed": share(1.0), "alarm": False}
    assert before["word"]["passed"]["value"] == 1
    assert after["name"] == {
        "passed": share(0.0),
        "fall": {"value": 1, "stderr": 0, "n": 5},
        "alarm": True,
    }
    assert not after["word"]["alarm"]
    assert [event["benchmark"] for event in events] == ["probe:name"]
    told = "alarm: the probe name falls by 100.0 ± 0.0 points since the policy before"
    assert [note for note in notes.told if note.startswith(told)]
    assert "100.0 [56.6, 100.0]" in written.getvalue()
    assert "0.0 [0.0, 43.4], fell 100.0 ±0.0" in written.getvalue()


def test_each_policy_is_measured_once_and_compared_with_the_last_and_the_first(tmp_path):
    wanted = job(tmp_path, f"assessment.probes={probes_file(tmp_path)}")
    run_loop(wanted, Notes(), StopSignal())
    probe_with(wanted, 1, "probed:forgetful", Notes())
    probe_with(wanted, 2, "probed:forgetful", Notes())
    before = rows(tmp_path, "scores")
    run_loop(wanted, Notes(), StopSignal())
    probe_with(wanted, 2, "probed:forgetful", Notes())
    assert rows(tmp_path, "scores").equals(before)
    assert before.filter(pl.col("metric") == "passed").height == 3 * 10
    numbers = rows(tmp_path, "evaluations").filter(
        (pl.col("benchmark") == "probe:name") & (pl.col("iteration") == 2)
    )
    found = dict(numbers.select("metric", "value").iter_rows())
    assert found == {"passed": 0, "fall": 0, "fall_overall": 1}


def test_probes_change_nothing_else_and_explain_themselves_in_the_lake(tmp_path):
    def run(lake, *overrides):
        run_loop(job(lake, *overrides), Notes(), StopSignal())
        reader = open_run(lake, "a")
        found = {part.unit: part.sha256 for part in reader.journal.parts()}
        reader.close()
        return found

    plain = run(tmp_path / "plain")
    assert plain.items() <= run(tmp_path / "b", "assessment.probes=tiny").items()
    prompts = rows(tmp_path / "b", "prompts")["prompt_id"]
    assert prompts.is_unique().all()
    probed = rows(tmp_path / "b", "scores").filter(pl.col("benchmark").str.starts_with("probe:"))
    assert set(probed["prompt_id"]) <= set(prompts)
    assert set(probed["benchmark"]) == {
        f"probe:{n}" for n in ("facts", "format", "identity", "json")
    }


def test_a_changed_file_is_another_configuration(tmp_path):
    path = probes_file(tmp_path)
    wanted = job(tmp_path, f"assessment.probes={path}")
    run_loop(wanted, Notes(), StopSignal())
    path.write_text(path.read_text().replace("drum", "dram"))
    with pytest.raises(ConfigError, match="probes: "):
        run_loop(wanted, Notes(), StopSignal())


# falls


def scores(values, *, number=0, benchmark="probe:x"):
    return [
        Score(
            iteration=number,
            checkpoint_id=f"m{number}",
            benchmark=benchmark,
            metric=PASSED,
            prompt_id=f"p{place}",
            candidate_id=f"c{place}",
            value=float(value),
        )
        for place, value in enumerate(values)
    ]


PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30)


@given(PAIRS, st.randoms())
def test_a_fall_is_the_mean_paired_difference_with_its_error(pairs, shuffler):
    before, after = scores(b for b, _ in pairs), scores((a for _, a in pairs), number=1)
    shuffler.shuffle(before)
    (fall,) = falls(FALL, before, after)
    lost = [float(b) - float(a) for b, a in pairs]
    mean = sum(lost) / len(lost)
    spread = math.sqrt(sum((x - mean) ** 2 for x in lost) / (len(lost) - 1) / len(lost))
    assert math.isclose(fall.value, mean, abs_tol=1e-12)
    assert math.isclose(fall.stderr, spread, abs_tol=1e-12)
    assert (fall.n, fall.iteration, fall.checkpoint_id) == (len(pairs), 1, "m1")
    assert alarming(fall) == (fall.value > fall.stderr)


def test_a_fall_is_told_of_the_prompts_that_both_have_answered():
    (fall,) = falls(FALL, scores([1, 1, 1]), scores([0, 1], number=1))
    assert (fall.value, fall.n) == (0.5, 2)
    assert falls(FALL, scores([1], benchmark="probe:y"), scores([1], number=1)) == []


@pytest.mark.parametrize(
    ("metric", "value", "stderr", "benchmark", "alarm"),
    [
        (FALL, 0.2, 0.1, "probe:x", True),
        (FALL_OVERALL, 0.2, 0.1, "probe:x", True),
        (FALL, 0.1, 0.1, "probe:x", False),
        (FALL, 0.2, None, "probe:x", False),
        (PASSED, 0.2, 0.1, "probe:x", False),
        (FALL, 0.2, 0.1, "held-out", False),
    ],
)
def test_an_alarm_is_a_fall_by_more_than_its_error(metric, value, stderr, benchmark, alarm):
    number = Evaluation(
        iteration=1,
        checkpoint_id="m1",
        benchmark=benchmark,
        metric=metric,
        value=value,
        stderr=stderr,
        n=9,
    )
    assert alarming(number) == alarm


def test_an_answer_passes_if_it_is_right_and_meets_every_check():
    assert passed(Verdict((), 1, "right"))
    assert passed(Verdict((("general_fulfilled", 1.0),), 1, "fulfilled"))
    assert not passed(Verdict((("math_accuracy", 1.0), ("general_fulfilled", 0.0)), 1, "right"))
    assert not passed(Verdict((("general_fulfilled", 0.0),), 0, "partly_fulfilled"))
    assert not passed(Verdict((), None, "no_check"))


# the prompts of probes


def test_the_tiny_world_s_probes_are_no_prompts_to_train_on():
    found = load_probes("tiny")
    require_probes("tiny", tiny_prompts())
    counts = pl.Series(list(found.probe_of.values())).value_counts()
    assert counts["count"].to_list() == [60] * 4
    assert load_probes("tiny") == found


CHECK = {"checks": [{"kind": "json_valid", "argument": ""}]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "a", **CHECK}, "'probe' must be a text"),
        ({"prompt": "a", "probe": "x"}, "nothing decides whether an answer passes"),
        ({"prompt": "a", "probe": "x", "checks": [{"kind": "odd"}]}, "unknown check 'odd'"),
        ({"prompt": "b", "probe": "y", **CHECK}, "appears a second time"),
        ({"probe": "x", **CHECK}, "no prompt"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_with_its_line(tmp_path, row, reason):
    path = written(tmp_path / "p.jsonl", [{"prompt": "b", "probe": "x", **CHECK}, row])
    with pytest.raises(InputError, match=f"p.jsonl, line 2: .*{reason}"):
        read_probes(path)


def test_a_probe_of_one_prompt_has_no_error_and_is_refused(tmp_path):
    path = written(tmp_path / "p.jsonl", [{"prompt": "b", "probe": "x", **CHECK}])
    with pytest.raises(InputError, match="the probe 'x' has one prompt"):
        read_probes(path)
    path.write_text("")
    with pytest.raises(InputError, match="holds no probes"):
        read_probes(path)


def test_a_reference_decides_where_the_task_can_be_verified(tmp_path):
    sums = [{"problem": f"{n} + 1?", "solution": str(n + 1), "probe": "sums"} for n in range(2)]
    assert set(read_probes(written(tmp_path / "p.jsonl", sums)).probe_of.values()) == {"sums"}


def test_a_probe_that_is_trained_on_is_refused_before_anything_is_written(tmp_path):
    trained = next(p for p in tiny_prompts() if p.split == "train")
    known = [{"prompt": text, "probe": "x", **CHECK} for text in (trained.instruction, "new")]
    path = written(tmp_path / "p.jsonl", known)
    with pytest.raises(InputError, match="is also a prompt to train on"):
        run_loop(job(tmp_path / "lake", f"assessment.probes={path}"), Notes(), StopSignal())
    assert not (tmp_path / "lake").exists()
