"""Stages whose models are on separate places overlap, and nothing else about a run changes."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import overlapping
import pytest
import stage_clock
from crashing import RUN, quick_folder, small_config, stand_ins, whole, write_prompts
from crashing import Silent as Silence
from turns import rows, turn
from waiting import wait_until

from lpfloop.configs.schema import BudgetConfig, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run import flow
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.run.unread_replies import UnreadRepliesError
from lpfloop.loop.run.wall_time import WallTime
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.pair import pair
from lpfloop.loop.stages.reward import reward
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import EngineError
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

CHUNKS = 20
ONE_BY_ONE = ("prompts.chunk=1", f"prompts.per_iteration={CHUNKS}", "smoke.prompts=0")
CLOCKED = (
    "policy.engine.script=stage_clock:policy",
    "critic.engine.script=stage_clock:critic",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def job(lake: Path, *overrides: str, prompts: int = 8, name: str = RUN) -> Job:
    return Job(config=small_config(write_prompts(lake, prompts), *overrides), lake=lake, name=name)


def seconds_of(lake: Path, *overrides: str) -> float:
    """The virtual seconds of sampling and critiquing, each a second for each chunk."""
    wanted = job(lake, *ONE_BY_ONE, *CLOCKED, *overrides, prompts=2 * CHUNKS)
    with turn(wanted) as it:
        clock = stage_clock.begin()
        clock.watch(it.run)
        feedback = critique(it, sample(it, it.prompts(), n=1))
        it.run.flow.settle()
        took = clock.now
        assert len(rows(it, feedback)) == CHUNKS
    return took


def test_two_equal_stages_take_the_time_of_one(lake):
    assert CHUNKS + 1 <= seconds_of(lake) <= 1.15 * CHUNKS


@pytest.mark.parametrize(
    "override",
    [
        "overlap=false",
        # Both on one GPU.
        "policy.engine.devices=[0]",
    ],
)
def test_stages_take_turns_where_they_share_a_place_or_are_told_to(lake, override):
    shared = ("critic.engine.devices=[0]",) if "devices" in override else ()
    assert seconds_of(lake, override, *shared) == 2 * CHUNKS


def test_a_chunk_is_paired_while_the_next_ones_are_sampled(lake):
    wanted = job(lake, *ONE_BY_ONE, *CLOCKED, "recipe.n=2", prompts=2 * CHUNKS)
    with turn(wanted) as it:
        clock = stage_clock.begin()
        clock.watch(it.run)
        drafts = sample(it, it.prompts(), n=1)
        judged = JudgedRows(
            candidates=drafts, critiques=critique(it, drafts), rewards=reward(it, drafts)
        )
        pairs = pair(it, judged, rule="success_vs_failure", top_k=1)
        # What is computed here is whole on return, and the run has not waited longer for it.
        assert clock.now <= 1.15 * CHUNKS
        assert rows(it, pairs) == []
    assert clock.now <= 1.15 * CHUNKS


def test_rows_that_a_recipe_looks_at_are_there(lake):
    """A recipe may read rows between two verbs, as `it.chunk` gives them."""
    wanted = job(lake, *ONE_BY_ONE, "policy.engine.script=scripts:slow_policy", prompts=2 * CHUNKS)
    with turn(wanted) as it:
        drafts = sample(it, it.prompts(), n=1)
        read = [it.chunk(drafts, chunk) for chunk in range(drafts.chunks)]
        assert [len(chunk) for chunk in read] == [1] * CHUNKS


# failures


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    overlapping.forget()
    yield
    overlapping.released.set()


SLOW = "policy.engine.script=overlapping:slow_policy"
FAILING = "critic.engine.script=overlapping:failing_critic"


def test_the_first_error_ends_the_run_and_loses_nothing_that_was_paid(lake):
    straight = lake / "straight"
    straight.mkdir()
    settings = ("smoke.prompts=0", "prompts.chunk=1", "prompts.per_iteration=32")
    fine = job(lake, *settings, prompts=64)
    run_loop(Job(config=fine.config, lake=straight, name=RUN), Silence(), StopSignal())
    broken = job(lake, *settings, SLOW, FAILING, prompts=64)
    scripted = fine.config.policy.engine.script, fine.config.critic.engine.script
    assert scripted == ("crashing:policy", "crashing:critic")
    with pytest.raises(EngineError, match="the critic is gone"):
        run_loop(broken, Silence(), StopSignal())
    reader = Reader(run_folder(lake, RUN))
    (state,) = (s for s in reader.stages() if (s.iteration, s.stage) == (1, "sample"))
    assert 0 < state.done < state.planned, "the policy went on, or had not begun"
    assert state.totals["calls"] == calls_for(state.done)
    assert reader.events("end")[-1] == "EngineError: the critic is gone"
    reader.close()


def calls_for(units: int) -> int:
    return 2 * units


def test_replies_that_cannot_be_read_end_a_run_that_is_still_sampling(lake):
    settings = ("smoke.prompts=0", "prompts.chunk=4", "prompts.per_iteration=400")
    wanted = job(lake, *settings, SLOW, "critic.engine.script=scripts:mumbling_critic", prompts=600)
    with pytest.raises(UnreadRepliesError, match="critique:sample"):
        run_loop(wanted, Silence(), StopSignal())
    assert overlapping.calls.count("policy") < 2 * 400


def test_a_stop_waits_for_its_deadline_and_no_longer_for_a_stage_in_a_thread(lake, monkeypatch):
    monkeypatch.setattr(flow, "CLOSE_S", 0.1)
    wanted = job(lake, "drain_s=0.2", "policy.engine.script=overlapping:stuck_policy")
    stop, asked = StopSignal(), time.monotonic()

    def ask() -> None:
        overlapping.begun.wait(60)
        signal.raise_signal(signal.SIGTERM)

    friend = threading.Thread(target=ask)
    with stop.on_signals():
        friend.start()
        with pytest.raises(Stopped):
            run_loop(wanted, Silence(), stop)
    friend.join()
    assert time.monotonic() - asked < 30
    overlapping.released.set()
    run_loop(job(lake), Silence(), StopSignal())
    assert whole(lake).owed == []


def test_a_recipe_that_fails_lets_what_is_in_flight_end(lake):
    wanted = job(lake, *ONE_BY_ONE, SLOW, prompts=2 * CHUNKS)

    def recipe() -> None:
        with turn(wanted) as it:
            sample(it, it.prompts(), n=1)
            wait_until(lambda: bool(overlapping.calls))
            raise LookupError("a recipe of somebody's own")

    with pytest.raises(LookupError):
        recipe()
    reader = Reader(run_folder(lake, RUN))
    (state,) = (s for s in reader.stages() if s.stage == "sample")
    assert 0 < state.done < CHUNKS
    assert state.totals["calls"] == state.done == overlapping.calls.count("policy")
    reader.close()


# time and money


def test_time_side_by_side_counts_once():
    now = iter((0.0, 1.0, 5.0, 7.0, 8.0, 9.0))
    time_ = WallTime(lambda: next(now))
    first, second = time_.begin(), time_.begin()
    assert time_.end(second) == (4.0, 4.0)
    third = time_.begin()
    assert time_.end(first) == (8.0, 1.0)
    assert time_.end(third) == (2.0, 0.0)


def test_the_hours_of_a_run_are_those_on_the_wall(lake):
    wanted = job(
        lake, *ONE_BY_ONE, SLOW, "critic.engine.script=overlapping:slow_critic", prompts=2 * CHUNKS
    )
    with turn(wanted) as it:
        began = time.monotonic()
        critique(it, sample(it, it.prompts(), n=1))
        it.run.flow.settle()
        took = time.monotonic() - began
        journal = it.run.store.journal
        each = [state.seconds for state in journal.stages()]
        assert max(each) <= journal.seconds() <= took < sum(each)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_two_stages_never_spend_more_together_than_a_budget_allows(lake, share):
    settings = ("smoke.prompts=0", "prompts.chunk=4", "prompts.per_iteration=64")
    free = job(lake, *settings, prompts=128, name="free")
    run_loop(free, Silence(), StopSignal())
    reader = Reader(run_folder(lake, "free"))
    most = int(share * reader.spent().tokens)
    reader.close()
    limited: RunConfig = free.config.model_copy(update={"budget": BudgetConfig(tokens=most)})
    with pytest.raises(Stopped, match=r"budget\.tokens"):
        run_loop(Job(config=limited, lake=lake, name=RUN), Silence(), StopSignal())
    reader = Reader(run_folder(lake, RUN))
    assert 0.5 * most <= reader.spent().tokens <= most
    reader.close()
