"""How far a run is and what it has spent, as its journal says it."""

import time

import pytest

from lpfloop.configs.schema import BudgetConfig
from lpfloop.loop.daemon.progress import Progress, progress, spend, wall_seconds
from lpfloop.stores.journal import Done, Journal

UNIT = {"rows": 2, "tokens": 30, "prompt_tokens": 10, "calls": 3, "retries": 1, "unscored": 1}


@pytest.fixture
def journal(tmp_path):
    """A run with one whole stage, one half done, one not begun."""
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


def test_a_stage_says_what_is_planned_done_owed_and_what_it_took(journal):
    assert stage(journal, "sample") == Progress(
        iteration=1,
        stage="sample",
        planned=5,
        done=2,
        owed=3,
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


def test_what_stages_took_side_by_side_is_in_the_runs_time_once(journal):
    journal.add_seconds(1, "critique", 5.0, twice=4.0)
    stages = progress(journal, running=False)
    assert sum(each.seconds for each in stages) == 9.0
    assert wall_seconds(journal, stages) == 5.0


def test_nothing_is_foretold_of_a_stage_that_has_not_begun(journal):
    waiting = stage(journal, "critique")
    assert (waiting.owed, waiting.rate, waiting.eta_s) == (5, None, None)


def test_a_whole_stage_owes_no_time(journal):
    assert stage(journal, "initial").eta_s == 0


def test_the_time_of_the_running_stage_counts_before_it_is_over(journal):
    journal.record("stage", {"iteration": 1, "stage": "sample", "at": time.time() - 1000})
    running = stage(journal, "sample", running=True)
    assert running.seconds >= 1004
    assert running.eta_s == pytest.approx(running.seconds * 3 / 2, rel=0.01)
    assert stage(journal, "sample", running=False).seconds == 4
    assert stage(journal, "critique", running=True).seconds == 0


def test_stages_that_go_on_at_one_time_each_have_their_time(journal):
    now = time.time()
    journal.record("stage", {"iteration": 1, "stage": "sample", "at": now - 1000})
    journal.record("stage", {"iteration": 1, "stage": "critique", "at": now - 500})
    assert stage(journal, "sample", running=True).seconds >= 1004
    assert stage(journal, "critique", running=True).seconds >= 500


def test_what_a_process_began_that_is_gone_does_not_go_on(journal):
    journal.record("stage", {"iteration": 1, "stage": "sample", "at": time.time() - 1000})
    journal.record("start", {"pid": 1})
    assert stage(journal, "sample", running=True).seconds == 4


def test_hours_of_stages_side_by_side_count_once(journal):
    journal.add_seconds(1, "critique", 6.0, twice=3.0)
    assert spend(journal, BudgetConfig())["hours"]["used"] == round(7 / 3600, 4)
    assert stage(journal, "critique").seconds == 6


def test_a_clock_that_was_set_back_takes_no_time_away(journal):
    journal.record("stage", {"iteration": 1, "stage": "sample", "at": time.time() + 1000})
    assert stage(journal, "sample", running=True).seconds == 4


def test_spend_stands_beside_the_budget(journal):
    found = spend(journal, BudgetConfig(tokens=500, hours=2))
    assert found["tokens"] == {"used": 120, "limit": 500}
    assert found["hours"] == {"used": round(4 / 3600, 4), "limit": 2}
    assert found["disk_gib"]["used"] > 0
    assert found["money"] == {"used": 0, "limit": None}
