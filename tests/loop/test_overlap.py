"""Stages whose models are on separate places overlap, and nothing else about a run changes."""

import functools
import operator
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import overlapping
import pytest
import stage_clock
from crashing import RUN, quick_folder, small_config, stand_ins, whole, write_prompts
from crashing import Silent as Silence
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import rows, turn
from waiting import wait_until

from lpfloop.configs.schema import BudgetConfig, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run import flow
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.run.unread_replies import UnreadRepliesError
from lpfloop.loop.run.wall_time import StageTime, WallTime
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.pair import pair
from lpfloop.loop.stages.refine import best, refine
from lpfloop.loop.stages.reward import reward
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import EngineError
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

CHUNKS = 20
ONE_BY_ONE = ("prompts.chunk=1", f"prompts.per_iteration={CHUNKS}", "smoke.prompts=0")
CLOCKED = (
    "policy.engine.script=stage_clock:policy",
    "critic.engine.script=stage_clock:critic",
)
SLOW = "policy.engine.script=overlapping:slow_policy"
HELD = "policy.engine.script=overlapping:held_policy"
LONG_HELD = "policy.engine.script=overlapping:long_held_policy"
FAILING = "critic.engine.script=overlapping:failing_critic"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def job(lake: Path, *overrides: str, prompts: int = 8, name: str = RUN) -> Job:
    return Job(config=small_config(write_prompts(lake, prompts), *overrides), lake=lake, name=name)


def clocked(it: Iteration) -> stage_clock.StageClock:
    """Let models and stages of a run go by a clock that the machine's load does not move."""
    clock = stage_clock.begin()
    clock.watch(it.run)
    it.run.wall_time = WallTime(lambda: clock.now)
    return clock


def seconds_of(lake: Path, *overrides: str) -> float:
    """The virtual seconds of sampling and critiquing, each a second for each chunk."""
    wanted = job(lake, *ONE_BY_ONE, *CLOCKED, *overrides, prompts=2 * CHUNKS)
    with turn(wanted) as it:
        clock = clocked(it)
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
        clock = clocked(it)
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


def test_a_verifier_of_the_users_own_runs_in_the_main_thread(lake):
    own = ("critic.kind=both", "critic.verifier=overlapping:verifier")
    with turn(job(lake, *ONE_BY_ONE, *own, prompts=2 * CHUNKS)) as it:
        critique(it, sample(it, it.prompts(), n=1))
        it.run.flow.settle()
    assert overlapping.calls == [threading.main_thread().name] * CHUNKS


Cook = Callable[[Iteration], None]


def cooked(seed: int) -> Cook:
    """A recipe of some verbs, each of which works on what one before it has made."""

    def recipe(it: Iteration) -> None:
        drawn = random.Random(seed)
        answers = [sample(it, it.prompts(), n=2)]
        said = [critique(it, answers[0])]
        for number in range(drawn.randint(1, 4)):
            match drawn.choice(("sample", "refine")):
                case "sample":
                    label = f"sample:{number}"
                    made = sample(it, it.prompts(), n=1, label=label, purpose=label)
                case "refine" if len(answers) == 1:
                    promising = best(answers[0], by=reward(it, answers[0]))
                    made = refine(it, promising, said[0], m=1)
                case _:
                    continue
            answers.append(made)
            said.append(critique(it, made))
        candidates, critiques = (functools.reduce(operator.add, part) for part in (answers, said))
        judged = JudgedRows(
            candidates=candidates, critiques=critiques, rewards=reward(it, candidates)
        )
        pair(it, judged, rule="success_vs_failure", top_k=1)
        it.run.flow.settle()

    return recipe


def digest_of(lake: Path, name: str, seed: int, *overrides: str, stops: Sequence[int] = ()) -> str:
    """The digest of a run of some verbs, which is stopped after so many commits before it ends."""
    small = ("prompts.chunk=1", "prompts.per_iteration=6", "pairs.balance_length=true")
    wanted = job(lake, *small, SLOW, *overrides, prompts=12, name=name)
    for after in stops:
        with suppress(Stopped), turn(wanted, after) as it:
            cooked(seed)(it)
    with turn(wanted) as it:
        cooked(seed)(it)
        owed = [state for state in it.run.store.journal.stages() if state.done < state.planned]
    assert owed == []
    return run_digest(run_folder(lake, name))


@given(st.integers(0, 10**6), st.lists(st.integers(1, 60), max_size=2))
@settings(max_examples=5, derandomize=True)
def test_overlap_and_stops_change_no_row(seed, stops):
    with quick_folder(Path(tempfile.gettempdir())) as lake:
        plain = digest_of(lake, "plain", seed, "overlap=false")
        assert digest_of(lake, "overlapped", seed, stops=stops) == plain


# failures


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    overlapping.forget()
    yield
    overlapping.released.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Release a policy that is held as soon as a run knows of what ends it."""
    note = flow.Flow._note

    def noted(self: flow.Flow, error: BaseException) -> None:
        note(self, error)
        overlapping.released.set()

    monkeypatch.setattr(flow.Flow, "_note", noted)


def test_the_first_error_ends_the_run_and_loses_nothing_that_was_paid(lake, held):
    small = ("smoke.prompts=0", "prompts.chunk=1", "prompts.per_iteration=32")
    broken = job(lake, *small, HELD, FAILING, prompts=64)
    with pytest.raises(EngineError, match="the critic is gone"):
        run_loop(broken, Silence(), StopSignal())
    reader = Reader(run_folder(lake, RUN))
    (state,) = (s for s in reader.stages() if (s.iteration, s.stage) == (1, "sample"))
    assert 0 < state.done < state.planned, "the policy went on, or had not begun"
    assert state.totals["calls"] == 2 * state.done
    assert reader.events("end")[-1] == "EngineError: the critic is gone"
    reader.close()


def test_replies_that_cannot_be_read_end_a_run_that_is_still_sampling(lake, held):
    small = ("smoke.prompts=0", "prompts.chunk=4", "prompts.per_iteration=400")
    wanted = job(
        lake, *small, LONG_HELD, "critic.engine.script=scripts:mumbling_critic", prompts=600
    )
    with pytest.raises(UnreadRepliesError, match="critique:sample"):
        run_loop(wanted, Silence(), StopSignal())
    assert overlapping.calls.count("policy") < 2 * 400


def test_a_stop_waits_for_its_deadline_and_no_longer_for_a_stage_in_a_thread(lake, monkeypatch):
    monkeypatch.setattr(flow, "CLOSE_S", 0.1)
    wanted = job(lake, "drain_s=0.2", "policy.engine.script=overlapping:stuck_policy")
    stop = StopSignal()

    def ask() -> None:
        overlapping.begun.wait(overlapping.LONG_S)
        signal.raise_signal(signal.SIGTERM)

    friend = threading.Thread(target=ask)
    with stop.on_signals():
        friend.start()
        with pytest.raises(Stopped):
            run_loop(wanted, Silence(), stop)
    friend.join()
    assert overlapping.calls == [], "the stop waited for the policy"
    overlapping.released.set()
    run_loop(wanted, Silence(), StopSignal())
    assert whole(lake).owed == []


def test_a_recipe_that_fails_lets_what_is_in_flight_end(lake, held):
    wanted = job(lake, *ONE_BY_ONE, HELD, prompts=2 * CHUNKS)

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
    wall = WallTime(lambda: next(now))
    first, second, third = (StageTime(wall) for _ in range(3))
    first.begin()
    second.begin()
    assert second.end() == (4.0, 4.0)
    third.begin()
    assert first.end() == (8.0, 1.0)
    assert third.end() == (2.0, 0.0)


def test_the_time_in_which_a_stage_waits_for_another_is_the_others():
    now = iter((0.0, 1.0, 2.0, 6.0, 8.0, 9.0))
    wall = WallTime(lambda: next(now))
    first, second = StageTime(wall), StageTime(wall)
    first.begin()
    second.begin()
    with second.rest():
        pass  # From 2 to 6.
    assert first.end() == (8.0, 3.0)
    assert second.end() == (4.0, 0.0)


def test_a_stage_that_waits_for_a_slow_one_is_not_busy(lake):
    with turn(job(lake, *ONE_BY_ONE, CLOCKED[0], prompts=2 * CHUNKS)) as it:
        clocked(it)
        critique(it, sample(it, it.prompts(), n=1))
        it.run.flow.settle()
        sampled, judged = (state.seconds for state in it.run.store.journal.stages())
    assert sampled == CHUNKS
    assert judged < 0.5 * sampled


def test_the_hours_of_a_run_are_those_on_the_wall(lake):
    with turn(job(lake, *ONE_BY_ONE, *CLOCKED, prompts=2 * CHUNKS)) as it:
        clock = clocked(it)
        critique(it, sample(it, it.prompts(), n=1))
        it.run.flow.settle()
        journal = it.run.store.journal
        each = [state.seconds for state in journal.stages()]
        assert max(each) <= journal.seconds() <= clock.now < sum(each)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_two_stages_never_spend_more_together_than_a_budget_allows(lake, share):
    small = ("smoke.prompts=0", "prompts.chunk=4", "prompts.per_iteration=64")
    free = job(lake, *small, prompts=128, name="free")
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
