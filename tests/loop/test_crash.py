"""Killed anywhere and resumed, a run ends as if nothing had happened.

SIGKILL at every declared failpoint of the store and the loop, also while it recovers, and then at
random: no row lost, none twice, the digest of an uninterrupted run, no question asked again whose
answer was committed.
"""

import random
import shutil
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from crash_scenarios import SCENARIOS, Scenario, done_and_looked_at, scenarios
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
    write_prompts,
)
from kill_chains import LONGEST, Place, chains, earlier, meeting, places

from lpfloop.stores.failpoints import FAILPOINTS
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.crash

SEED = 20_261_121
SHARDS, KILLS = 8, 125
OWN = ("journal.migrate.", "journal.amend.", "journal.forget.")
BUCKET = ("object.", "head.", "snapshot.", "adopt.", "training.copied")
ELSEWHERE = ("trainer.", "control.", *OWN, *BUCKET)
"""Failpoints that tests of their own kill at: those of other processes, of commands, of buckets."""

NAMES = [name for name in FAILPOINTS if not name.startswith(ELSEWHERE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A scenario, the lake it begins with, and the failpoints that its work meets, in order."""

    scenario: Scenario
    lake: Path
    course: list[str]


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

    def wanted(self) -> dict[str, list[Place]]:
        """Return where to kill each scenario: others than the run where the run does not come."""
        run = self.prepared["run"].course
        elsewhere = [name for name in NAMES if name not in run]
        found = {name: places(p.course, elsewhere) for name, p in self.prepared.items()}
        found["run"] = places(run, NAMES)
        for name in ("recovery", "publication"):
            again = [name for name in NAMES if name in run]
            found[name] += places(self.prepared[name].course, again, first_only=True)
        return found


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
    return Prepared(scenario=scenario, lake=lake, course=reached(copy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A lake whose scenario is killed again and again; `plan` says where it was killed so far."""

    world: World
    prepared: Prepared
    lake: Path
    plan: list[str]

    def attempt(self, where: str) -> int:
        """Let the work be killed at a failpoint; return the exit code."""
        work = self.prepared.scenario.work
        with self._asking_nothing_again():
            return Attempt(lake=self.lake, work=work, points={where: "kill"}).start()

    def finish(self) -> None:
        """Do the work to its end; the run is that of the world which was never interrupted."""
        work = partial(done_and_looked_at, scenario=self.prepared.scenario)
        with self._asking_nothing_again():
            Attempt(lake=self.lake, work=work).finish()
        assert seen(self.lake) == self.world.straight, self.plan
        shutil.rmtree(self.lake)

    @contextmanager
    def _asking_nothing_again(self) -> Generator[None]:
        """See that an attempt asks for nothing committed, and for one stage's answers at most."""
        scenario = self.prepared.scenario
        if scenario.forgets:
            yield
            return
        durable, before = committed_ids(self.lake, scenario.name), calls(self.lake)
        yield
        again = calls(self.lake) - before
        assert not {line.split()[0] for line in again} & durable, self.plan
        wasted = [line for line in again if before[line]]
        assert len(wasted) <= self.world.stage_calls, self.plan


def victim(world: World, prepared: Prepared) -> Victim:
    return Victim(world=world, prepared=prepared, lake=world.lake(prepared), plan=[])


def kill_one_after_another(world: World, prepared: Prepared, chain: list[Place]) -> int:
    """Kill a run at each place, and finish it; return the kills.

    Where it came to its end before a place, another run is killed there, and at those that follow.
    """
    run, after, left = victim(world, prepared), 0, list(chain)
    while left:
        where = f"{left[0].name}#{meeting(prepared.course, left[0], after=after)}"
        run.plan.append(where)
        code = run.attempt(where)
        if code == 0:
            break
        assert code == KILLED, f"{run.plan}: exit code {code}"
        after = left.pop(0).position
    run.finish()
    if len(left) == len(chain):
        # How many units share a commit is a matter of time: this attempt met it fewer times.
        before = earlier(prepared.course, left[0])
        assert before is not None, f"{run.plan}: not reached"
        left[0] = before
    killed = len(chain) - len(left)
    return killed + (kill_one_after_another(world, prepared, left) if left else 0)


def test_a_scenario_reaches_each_failpoint(world):
    assert {place.name for found in world.wanted().values() for place in found} == set(NAMES)


@pytest.mark.parametrize("name", SCENARIOS)
def test_kills_at_the_failpoints_of_a_scenario_change_nothing(world, name):
    wanted = world.wanted()[name]
    kill = partial(kill_one_after_another, world, world.prepared[name])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(kill, chains(wanted))) == len(wanted)


def kill_by_chance(world: World, seed: int, number: int) -> int:
    """Kill one run up to five times at random, finish it, compare it; return the kills."""
    generator = random.Random(f"{seed}-{number}")
    run = victim(world, world.prepared["run"])
    met = Counter(run.prepared.course) | Counter(world.prepared["recovery"].course)
    run.plan.append(f"seed {seed}, chain {number}")
    kills = 0
    for _ in range(generator.randint(1, LONGEST)):
        name = generator.choice(sorted(met))
        run.plan.append(f"{name}#{generator.randint(1, met[name])}")
        code = run.attempt(run.plan[-1])
        assert code in (KILLED, 0), f"{run.plan}: exit code {code}"
        kills += code == KILLED
    run.finish()
    return kills


def kill_at_random(world: World, seed: int, kills: int) -> None:
    """Run chains of random kills until there were enough."""
    numbers, done = count(), 0
    print(f"random kills: seed {seed}")  # noqa: T201 -- shown if the test fails
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while done < kills:
            several = [next(numbers) for _ in range(8)]
            done += sum(pool.map(partial(kill_by_chance, world, seed), several))


def test_random_kills_change_nothing(world):
    kill_at_random(world, SEED, KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_thousand_random_kills_change_nothing(world, shard):
    kill_at_random(world, SEED + shard, KILLS)


@pytest.mark.slow
def test_ten_thousand_random_kills_change_nothing(world):
    kill_at_random(world, random.SystemRandom().randrange(2**32), 10_000)
