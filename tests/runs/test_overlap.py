"""Stages with models in separate places overlap; the rest of a run stays the same."""

import functools
import operator
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from clock import StageClock, begin_clock, forget_calls, released
from hypothesis import given, settings
from hypothesis import strategies as st
from world import RUN, handle_rows, quick_folder, small_config, stand_ins, turn, write_prompts
from world import Silent as Silence

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run import stage as stage_module
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.stage import WallTime
from lpfloop.loop.run.stop import Stopped, StopSignal
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
    "policy.engine.script=clock:clocked_policy",
    "critic.engine.script=clock:clocked_critic",
)
HELD = "policy.engine.script=clock:held_policy"
FAILING = "critic.engine.script=clock:failing_critic"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def job(lake: Path, *overrides: str, prompts: int = 8, name: str = RUN) -> Job:
    return Job(config=small_config(write_prompts(lake, prompts), *overrides), lake=lake, name=name)


def clocked(it: Iteration) -> StageClock:
    """Run models and stages on a virtual clock that the machine's load does not affect."""
    clock = begin_clock()
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
        assert len(handle_rows(it, feedback)) == CHUNKS
    return took


def test_equal_stages_take_the_time_of_one(lake):
    assert CHUNKS + 1 <= seconds_of(lake) <= 1.15 * CHUNKS


def test_stages_take_turns_on_one_gpu(lake):
    on_one_gpu = (f"{role}.engine.devices=[0]" for role in ("policy", "critic"))
    assert seconds_of(lake, *on_one_gpu) == 2 * CHUNKS


Cook = Callable[[Iteration], None]


def cooked(seed: int) -> Cook:
    """A random recipe of verbs, each of which works on the results of an earlier one."""

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
    """The digest of a run of some verbs, stopped after so many commits before it ends."""
    small = ("prompts.chunk=1", "prompts.per_iteration=6", "pairs.balance_length=true")
    wanted = job(lake, *small, *overrides, prompts=12, name=name)
    for after in stops:
        with suppress(Stopped), turn(wanted, after) as it:
            cooked(seed)(it)
    with turn(wanted) as it:
        cooked(seed)(it)
        pending = [state for state in it.run.store.journal.stages() if state.done < state.planned]
    assert pending == []
    return run_digest(run_folder(lake, name))


@given(st.integers(0, 10**6), st.lists(st.integers(1, 60), max_size=2))
@settings(max_examples=3, derandomize=True)
def test_overlap_and_stops_keep_rows(seed, stops):
    with quick_folder(Path(tempfile.gettempdir())) as lake:
        plain = digest_of(lake, "plain", seed, "overlap=false")
        assert digest_of(lake, "overlapped", seed, stops=stops) == plain


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    forget_calls()
    yield
    released.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Release a held policy once a run has recorded the error that ends it."""
    note = stage_module.StageScheduler._note

    def noted(self: stage_module.StageScheduler, error: BaseException) -> None:
        note(self, error)
        released.set()

    monkeypatch.setattr(stage_module.StageScheduler, "_note", noted)


def test_first_error_loses_nothing_paid(lake, held):
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
