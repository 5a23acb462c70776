"""Killed anywhere and resumed, a run ends like an uninterrupted one.

SIGKILL at every declared failpoint of the store and the loop, also during recovery, and then at
random: no row lost, none twice, the digest of an uninterrupted run, no committed question asked
again. Under `-m stress`: more random kills.
"""

import random
import shutil
import uuid
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest
from crashes import SCENARIOS, done_and_looked_at, scenarios
from failpoint_names import FAILPOINTS
from world import (
    AT_ONCE,
    KILLED,
    RUN,
    Attempt,
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

from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

SEED = 20_261_121
LONGEST = 5
"""Maximum of kills of one run before the test finishes and compares it."""
OWN = ("journal.amend.", "journal.forget.")
BUCKET = ("object.", "head.", "snapshot.", "takeover.", "training.copied")
ELSEWHERE = ("trainer.", "control.", *OWN, *BUCKET)
"""Failpoints that other tests kill at: those in other processes, commands and buckets."""

ORDINARY = tuple(name for name in SCENARIOS if name != "repair")
"""Scenarios that reach all failpoints together."""

NAMES = [name for name in FAILPOINTS if not name.startswith(ELSEWHERE)]


class World:
    """Scenarios, the results of an uninterrupted run, and the maximum of calls in one stage."""

    def __init__(self, folder: Path) -> None:
        config = small_config(write_prompts(folder), "budget.judge_calls=100000")
        self.folder, self.scenarios = folder, scenarios(config)
        self.prepared = cache(self._prepared)
        lake = folder / "straight"
        lake.mkdir()
        run = partial(done_and_looked_at, scenario=self.scenarios["run"])
        Attempt(lake=lake, work=run).finish()
        with closing(Reader(run_folder(lake, RUN))) as reader:
            self.stage_calls = max(s.totals.get("calls", 0) for s in reader.stages())
        self.straight = seen(lake)

    def _prepared(self, name: str) -> tuple[Path, list[str]]:
        """Return the lake that a scenario starts with, and the failpoints that its work reaches."""
        lake, copy = self.folder / f"{name}-begin", self.folder / f"{name}-census"
        lake.mkdir()
        self.scenarios[name].prepare(lake)
        copied(lake, copy)
        Attempt(lake=copy, work=partial(census, work=self.scenarios[name].work)).finish()
        return lake, reached(copy)

    def wanted(self, name: str) -> list[str]:
        """Return where to kill a scenario: except for `run`, at failpoints that `run` lacks."""
        run = set() if name == "run" else set(self.prepared("run")[1])
        course = dict.fromkeys(self.prepared(name)[1])
        own = [point for point in course if point in NAMES and point not in run]
        return own or [list(course)[-1]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        yield World(folder)


class Victim:
    """A lake on which a scenario is killed repeatedly; `plan` lists its failpoints so far."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.scenario = world, world.scenarios[name]
        self.plan: list[str] = []
        self.lake = copied(world.prepared(name)[0], world.folder / uuid.uuid4().hex)

    def attempt(self, where: str) -> int:
        """Do the work until a failpoint kills it; return the exit code."""
        work = self.scenario.work
        with self._asking_nothing_again():
            return Attempt(lake=self.lake, work=work, points={where: "kill"}).start()

    def finish(self) -> None:
        """Finish the work; the run equals the uninterrupted run of the world."""
        work = partial(done_and_looked_at, scenario=self.scenario)
        with self._asking_nothing_again():
            Attempt(lake=self.lake, work=work).finish()
        assert seen(self.lake) == self.world.straight, self.plan
        shutil.rmtree(self.lake)

    @contextmanager
    def _asking_nothing_again(self) -> Generator[None]:
        """Check that an attempt repeats no committed question, and at most one stage's others."""
        if self.scenario.forgets:
            yield
            return
        durable, before = committed_ids(self.lake, self.scenario.name), calls(self.lake)
        yield
        again = calls(self.lake) - before
        assert not {line.split()[0] for line in again} & durable, self.plan
        wasted = [line for line in again if before[line]]
        assert len(wasted) <= self.world.stage_calls, self.plan


def kill_one_after_another(world: World, name: str, chain: Sequence[str]) -> None:
    """Kill a run at each failpoint, and finish it.

    If the run ends before it reaches one, kill another run there, and at the failpoints after it.
    """
    run, left = Victim(world, name), list(chain)
    while left:
        run.plan.append(left[0])
        code = run.attempt(left[0])
        if code == 0:
            break
        assert code == KILLED, f"{run.plan}: exit code {code}"
        del left[0]
    run.finish()
    assert len(left) < len(chain), f"{run.plan}: not reached"
    if left:
        kill_one_after_another(world, name, left)


@pytest.mark.parametrize("name", ORDINARY)
def test_killed_at_each_failpoint(world, name):
    """Kill a scenario at the first occurrence of each failpoint."""
    wanted = world.wanted(name)
    number = -(-len(wanted) // LONGEST)
    # Each chain of failpoints covers the whole work.
    chains = [wanted[first::number] for first in range(number)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(kill_one_after_another, world, name), chains))


def test_scenarios_meet_all_failpoints(world):
    assert {point for name in ORDINARY for point in world.wanted(name)} >= set(NAMES)


def kill_by_chance(world: World, seed: int, number: int) -> int:
    """Kill one run up to five times at random, finish it, compare it; return the kills."""
    generator = random.Random(f"{seed}-{number}")
    run = Victim(world, "run")
    met = Counter(world.prepared("run")[1]) | Counter(world.prepared("recovery")[1])
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
    for name in ("run", "recovery"):  # before several threads ask for them
        world.prepared(name)
    print(f"random kills: seed {seed}")  # noqa: T201 -- shown if the test fails
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while done < kills:
            several = [next(numbers) for _ in range(AT_ONCE)]
            done += sum(pool.map(partial(kill_by_chance, world, seed), several))


def test_random_kills(world):
    kill_at_random(world, SEED, 12)


@pytest.mark.stress
def test_thousand_random_kills(world):
    kill_at_random(world, random.SystemRandom().randrange(2**32), 1000)
