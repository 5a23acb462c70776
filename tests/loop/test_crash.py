"""Killed anywhere and resumed, a run ends as if nothing had happened.

SIGKILL at every declared failpoint of the store and the loop, also while it recovers, and then at
random: no row lost, none twice, the digest of an uninterrupted run, no question asked again whose
answer was committed.
"""

import random
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from crash_scenarios import Scenario, done_and_looked_at, scenarios
from crashing import (
    AT_ONCE,
    KILLED,
    RUN,
    Attempt,
    Whole,
    calls,
    census,
    committed_ids,
    copied,
    quick_folder,
    reached,
    seen,
    small_config,
    times,
    write_prompts,
)

from lpfloop.stores.failpoints import FAILPOINTS
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.crash

SEED = 20_261_121
SHARDS, KILLS = 8, 125
CHAIN = 5
ELSEWHERE = ("trainer.", "control.", "journal.migrate.", "journal.amend.", "object.")
"""Failpoints that tests of their own kill at: those of other processes, of commands, of buckets."""

NAMES = [name for name in FAILPOINTS if not name.startswith(ELSEWHERE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A scenario, the lake it begins with, and how often its work meets each failpoint."""

    scenario: Scenario
    lake: Path
    met: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All scenarios, what an uninterrupted run gives, and the most calls that one stage makes."""

    folder: Path
    prepared: dict[str, Prepared]
    straight: Whole
    stage_calls: int

    def lake(self, prepared: Prepared) -> Path:
        """Return a fresh copy of the lake that a scenario begins with."""
        return copied(prepared.lake, self.folder / uuid.uuid4().hex)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        config = small_config(write_prompts(folder), "budget.judge_calls=100000")
        prepared = {name: prepare(folder, name, s) for name, s in scenarios(config).items()}
        straight = folder / "straight"
        straight.mkdir()
        run = partial(done_and_looked_at, scenario=prepared["run"].scenario)
        Attempt(lake=straight, work=run).finish()
        reader = Reader(run_folder(straight, RUN))
        most = max(stage.totals.get("calls", 0) for stage in reader.stages())
        reader.close()
        yield World(
            folder=folder, prepared=prepared, straight=seen(straight), stage_calls=int(most)
        )


def prepare(folder: Path, name: str, scenario: Scenario) -> Prepared:
    lake, copy = folder / f"{name}-begin", folder / f"{name}-census"
    lake.mkdir()
    scenario.prepare(lake)
    copied(lake, copy)
    Attempt(lake=copy, work=partial(census, work=scenario.work)).finish()
    return Prepared(scenario=scenario, lake=lake, met=reached(copy))


def places(world: World, name: str) -> list[tuple[Prepared, int]]:
    """Return where to kill at a failpoint: in which scenarios, at which meetings."""
    run = world.prepared["run"]
    found = [(run, nth) for nth in times(run.met[name])] if run.met[name] else []
    if run.met[name]:
        recovering = (world.prepared["recovery"], world.prepared["publication"])
        return found + [(prepared, 1) for prepared in recovering if prepared.met[name]]
    others = [prepared for prepared in world.prepared.values() if prepared.met[name]]
    return [(prepared, nth) for prepared in others for nth in times(prepared.met[name])]


def kill_and_go_on(world: World, name: str, prepared: Prepared, nth: int) -> None:
    scenario, where = prepared.scenario, f"{name}#{nth}"
    lake = world.lake(prepared)
    code = Attempt(lake=lake, work=scenario.work, points={where: "kill"}).start()
    if code == 0 and nth > 1:
        # How many units share a commit is a matter of time: this attempt met it fewer times.
        shutil.rmtree(lake)
        return kill_and_go_on(world, name, prepared, nth - 1)
    assert code == KILLED, f"{where}: exit code {code}"
    durable = set() if scenario.forgets else committed_ids(lake, scenario.name)
    before = calls(lake)
    Attempt(lake=lake, work=partial(done_and_looked_at, scenario=scenario)).finish()
    assert seen(lake) == world.straight, where
    again = calls(lake) - before
    assert not {line.split()[0] for line in again} & durable, f"{where}: asked for again"
    wasted = [line for line in again if before[line]]
    assert scenario.forgets or len(wasted) <= world.stage_calls, where
    shutil.rmtree(lake)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_a_kill_at_a_failpoint_changes_nothing(world, name):
    chosen = places(world, name)
    assert chosen, f"no scenario reaches {name}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda place: kill_and_go_on(world, name, *place), chosen))


def chain(world: World, seed: int, number: int) -> int:
    """Kill one run up to five times at random, finish it, compare it; return the kills."""
    generator = random.Random(f"{seed}-{number}")
    run = world.prepared["run"]
    met = run.met | world.prepared["recovery"].met
    lake = world.lake(run)
    plan = list[str]()
    for _ in range(generator.randint(1, CHAIN)):
        name = generator.choice(sorted(met))
        plan.append(f"{name}#{generator.randint(1, met[name])}")
        code = Attempt(lake=lake, work=run.scenario.work, points={plan[-1]: "kill"}).start()
        assert code in (KILLED, 0), f"seed {seed}, chain {number}: {plan}: exit code {code}"
        if code == 0:
            plan.pop()
    Attempt(lake=lake, work=partial(done_and_looked_at, scenario=run.scenario)).finish()
    assert seen(lake) == world.straight, f"seed {seed}, chain {number}: {plan}"
    shutil.rmtree(lake)
    return len(plan)


def kill_at_random(world: World, seed: int, kills: int) -> None:
    """Run chains of random kills until there were enough."""
    numbers, done = count(), 0
    print(f"random kills: seed {seed}")  # noqa: T201 -- shown if the test fails
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while done < kills:
            done += sum(
                pool.map(lambda n: chain(world, seed, n), [next(numbers) for _ in range(8)])
            )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_thousand_random_kills_change_nothing(world, shard):
    kill_at_random(world, SEED + shard, KILLS)


@pytest.mark.slow
def test_ten_thousand_random_kills_change_nothing(world):
    kill_at_random(world, random.SystemRandom().randrange(2**32), 10_000)
