"""Progress and spending of a run, from its journal."""

import pytest

from lpfloop.configs.schema import BudgetConfig
from lpfloop.loop.daemon.progress import Progress, busy, progress, spend
from lpfloop.policies.trainers.work_folder import TrainingPace, append_row, training_pace
from lpfloop.stores.journal import Done, Journal

UNIT = {"rows": 2, "tokens": 30, "prompt_tokens": 10, "calls": 3, "retries": 1, "unscored": 1}


@pytest.fixture
def journal(tmp_path):
    """A run with one finished stage, one half done, one pending."""
    opened = Journal.create(tmp_path / "a", {})
    for iteration, stage, done in ((0, "initial", 1), (1, "sample", 2), (1, "critique", 0)):
        keys = [f"{stage}-{n}" for n in range(1 if stage == "initial" else 5)]
        opened.plan(iteration, stage, stage, lambda keys=keys: keys)
        opened.commit([Done(unit=key, parts={}, telemetry=UNIT) for key in keys[:done]])
    opened.add_seconds(1, "sample", 4.0)
    yield opened
    opened.close()


def stage(journal, name, *, running=False) -> Progress:
    return next(s for s in progress(journal, running=running) if s.stage == name)


def test_stage(journal):
    assert stage(journal, "sample") == Progress(
        iteration=1,
        stage="sample",
        planned=5,
        done=2,
        pending=3,
        rows=4,
        unscored=2,
        retries=2,
        failed=0,
        calls=6,
        prompt_tokens=20,
        tokens=60,
        seconds=4.0,
        rate=15.0,
        eta_s=6.0,
    )


def test_training_under_way(journal):
    """Only a training in progress reports its step."""
    journal.plan(1, "train", "train", lambda: ["train-0"])
    work = journal.folder / "work" / "train-0"
    work.mkdir(parents=True)
    append_row(work, {"event": "start", "resumed_from": 0})
    assert stage(journal, "train", running=True).training is None
    for step in (1, 2, 3):
        metrics = {"loss": 1.0 / step, "num_tokens": 100.0 * step}
        row = {"event": "step", "at": 10.0 * step, "step": step, "max_steps": 5, "metrics": metrics}
        append_row(work, row)
    found = stage(journal, "train", running=True)
    assert found.training == TrainingPace(
        step=3, max_steps=5, loss=1 / 3, tokens_per_s=10.0, eta_s=20.0
    )
    assert found.eta_s == 20.0
    assert str(found.training) == "step 3 of 5, loss 0.333, 10 tokens/s"
    assert stage(journal, "train").training is None
    assert stage(journal, "critique", running=True).training is None


def test_pace_after_a_resume(tmp_path):
    """Steps from before a resume do not count: another process timed them."""
    for at, event in ((0.0, "step"), (5000.0, "start"), (5010.0, "step")):
        step = {"step": 1, "max_steps": 2, "metrics": {}, "resumed_from": 0}
        append_row(tmp_path, {"event": event, "at": at, **step})
    assert training_pace(tmp_path) == TrainingPace(
        step=1, max_steps=2, loss=None, tokens_per_s=None, eta_s=None
    )


def test_stage_that_has_not_begun(journal):
    waiting = stage(journal, "critique")
    assert (waiting.pending, waiting.rate, waiting.eta_s) == (5, None, None)
    assert stage(journal, "initial").eta_s == 0


def test_spend_against_budget(journal):
    found = spend(journal, BudgetConfig(tokens=500, hours=2))
    assert found["tokens"] == {"used": 120, "limit": 500}
    assert found["hours"] == {"used": round(4 / 3600, 4), "limit": 2}
    assert found["disk_gib"]["used"] > 0
    assert found["money"] == {"used": 0, "limit": None}


def test_shares_and_speeds_of_roles(tmp_path):
    opened = Journal.create(tmp_path / "b", {})
    seconds = {"sample": 100, "refine": 100, "critique:sample": 600, "pair": 0.5}
    for name, taken in seconds.items():
        opened.plan(1, name, name, lambda name=name: [name])
        telemetry = {} if name == "pair" else {"calls": 200, "tokens": 5000}
        opened.commit([Done(unit=name, parts={}, telemetry=telemetry)])
        opened.add_seconds(1, name, taken)
    critic, policy, rest = busy(progress(opened, running=False), 800.5)["roles"]
    opened.close()
    assert (critic["role"], critic["share"], critic["calls"]) == ("critic", 0.75, 200)
    assert (policy["role"], policy["share"], policy["tokens_per_s"]) == ("policy", 0.25, 50.0)
    assert policy["calls_per_s"] == 2.0
    assert (rest["role"], rest["calls"]) == ("lpfloop itself", 0)
