"""What durability costs: against a loop without a store, in a real run, and on resuming.

    python benchmarks/durability.py units    # 100 units a second, against a loop that drops rows
    python benchmarks/durability.py run      # a tiny-world iteration: where its wall time went
    python benchmarks/durability.py resume   # a million finished units: time to the first new one

`units` alternates the two sides in one process; a unit takes 10 ms of sleep plus the store's time.
`run` measures, in one real iteration, how long the loop waited for the store and how much
processor time the committing thread took. `resume` writes a run whose units are all done, and
measures a fresh process from its start to the first unit it begins.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from sampling import MADE_HERE, Silent

SIDES = ("dropped", "durable")
UNIT_S = 0.01
GOALS = {"units": 0.01, "run": 0.02, "resume": 3.0}
RESUMING = "DURABILITY_BENCHMARK_RESUMING"
BIG = {"prompts": 10_000, "iterations": 15}
READ = ("train", "initial", "prompts")
"""Stages of the big run whose rows a run reads at its start, in addition to verdicts' rows."""


def answer(request: object, sampling: object) -> str:
    """Answer after a unit's time; if a resume is measured, print the time and exit."""
    del request, sampling
    if RESUMING in os.environ:
        print(f"{time.time() - float(os.environ[RESUMING]):.3f}", flush=True)
        os._exit(0)
    time.sleep(UNIT_S)
    return "Okay. The answer is 4."


def scripted(*overrides: str) -> Any:
    """A configuration without models."""
    from lpfloop.configs.load import load_config

    return load_config(
        "tiny",
        "rlrf",
        (
            "policy.engine.kind=scripted",
            "policy.engine.script=durability:answer",
            "critic.engine.kind=scripted",
            "reward.model=none",
            *overrides,
        ),
        {},
    )


def measure_units(side: str, count: int) -> float:
    """Return the seconds of sampling `count` units."""
    from lpfloop.loop.daemon.iterations import iteration, order_prompts
    from lpfloop.loop.daemon.loop import Job
    from lpfloop.loop.daemon.opening import open_job
    from lpfloop.loop.data.prompts import load_prompts
    from lpfloop.loop.run.handles import chunk_prompts
    from lpfloop.loop.run.stop import StopSignal
    from lpfloop.loop.stages.sample import sample

    config = scripted("prompts.chunk=1")
    prompts = load_prompts(config.prompts, seed=config.seed)
    wanted = order_prompts(prompts, "train", config.seed)[:count]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        job = Job(config=config, lake=Path(folder), name="benchmark")
        with open_job(job, prompts, Silent(), StopSignal()) as run:
            if side == "dropped":
                run.store.commit = lambda *_: None
            it = iteration(run, 1, MADE_HERE, ())
            started = time.perf_counter()
            sample(it, chunk_prompts(wanted, 1), n=1)
            return time.perf_counter() - started


def units(rounds: int, count: int) -> None:
    """Print the overhead at 100 units a second."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 else SIDES[::-1]:
            seconds[side].append(measure_units(side, count))
    ratios = [d / b - 1 for d, b in zip(seconds["durable"], seconds["dropped"], strict=True)]
    for side in SIDES:
        rate = count / median(seconds[side])
        print(f"{side:<10}{median(seconds[side]):>9.2f} s {rate:>8.1f} units/s")
    verdict("units", median(ratios), f"{min(ratios):.2%} to {max(ratios):.2%}")


class Clock:
    """Sums the wall time of calls in this thread, and the processor time of another."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.thread_cpu = 0.0
        self.depth = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `function` so that its outermost calls in the main thread are timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() or self.depth:
                return function(*arguments, **named)
            self.depth += 1
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.depth -= 1
                self.waited += time.perf_counter() - started

        return timed


@contextmanager
def accounted() -> Iterator[Clock]:
    """Measure the store's time: every call that writes, and its thread."""
    from lpfloop.loop.stages import publish
    from lpfloop.stores.committer import Committer
    from lpfloop.stores.journal import Journal
    from lpfloop.stores.lake import RunWriter

    clock = Clock()
    for owner, names in (
        (RunWriter, ("commit", "flush", "close", "__init__", "verified_path")),
        (Journal, ("plan", "record", "add_seconds", "set_meta", "reserve", "keep", "create")),
    ):
        for name in names:
            setattr(owner, name, clock.around(getattr(owner, name)))
    publish.publish_folder = clock.around(publish.publish_folder)
    work = Committer._work

    def counted(self: Committer) -> None:
        started = time.thread_time()
        work(self)
        clock.thread_cpu += time.thread_time() - started

    Committer._work = counted
    yield clock


def run(settings: Sequence[str]) -> None:
    """Print durability's share of a real iteration."""
    from lpfloop.configs.load import load_config
    from lpfloop.loop.daemon.loop import Job, run_loop
    from lpfloop.loop.run.stop import StopSignal

    with tempfile.TemporaryDirectory(dir=".") as folder, accounted() as clock:
        job = Job(
            config=load_config("tiny", "rlrf", ["iterations=1", *settings], {}),
            lake=Path(folder),
            name="a",
        )
        started = time.perf_counter()
        run_loop(job, Silent(), StopSignal())
        wall = time.perf_counter() - started
    print(f"wall time                 {wall:>8.1f} s")
    print(f"the loop waited           {clock.waited:>8.2f} s {clock.waited / wall:>8.2%}")
    print(f"the committer's processor {clock.thread_cpu:>8.2f} s {clock.thread_cpu / wall:>8.2%}")
    verdict("run", (clock.waited + clock.thread_cpu) / wall, "both together")


def write_prompts(path: Path, count: int) -> None:
    """Write `count` prompts without checks."""
    import json

    with path.open("w") as file:
        for number in range(count):
            split = "held-out" if number < 10 else "train"
            row = {"prompt": f"Say {number}.", "task": "general", "split": split}
            file.write(json.dumps(row) + "\n")


def big_job(folder: Path, iterations: int) -> Any:
    """A run of many small units."""
    from lpfloop.loop.daemon.loop import Job

    config = scripted(
        f"prompts.source={folder / 'prompts.jsonl'}",
        f"prompts.per_iteration={BIG['prompts']}",
        "prompts.chunk=1",
        f"iterations={iterations}",
    )
    return Job(config=config, lake=folder / "lake", name="big")


def build(folder: Path) -> int:
    """Write a run with stages that the loop plans and this script marks done; count its units."""
    from lpfloop.loop.daemon.loop import run_loop
    from lpfloop.loop.run.stop import StopSignal
    from lpfloop.loop.stages import train as training
    from lpfloop.stores.journal import Journal
    from lpfloop.stores.journal_reader import Unit
    from lpfloop.stores.records import Checkpoint

    pending = Journal.pending

    def settled(self: Journal, iteration: int, stage: str) -> Sequence[Unit]:
        found = pending(self, iteration, stage)
        if stage in READ or stage.startswith("verdict"):
            return found
        with self._transaction("commit"):
            where = (iteration, stage)
            self._db.execute("UPDATE units SET done = 1 WHERE iteration = ? AND stage = ?", where)
            self._db.execute(
                "UPDATE stages SET done = planned WHERE iteration = ? AND stage = ?", where
            )
        return []

    def publish(self: Any, stage: Any, unit: Unit, rows: object) -> None:
        del rows
        name = f"checkpoint-{self.iteration}"
        row = {**{f: getattr(MADE_HERE, f) for f in MADE_HERE.__dataclass_fields__}}
        row |= {"checkpoint_id": name, "iteration": self.iteration, "path": f"checkpoints/{name}"}
        stage.commit(unit, {Checkpoint: [Checkpoint(**row)]}, training.UnitStats(rows=1))

    with (
        unscored(),
        patched(Journal, {"pending": settled}),
        patched(training.Training, {"pay": publish, "require_enough": lambda *_: None}),
    ):
        run_loop(big_job(folder, BIG["iterations"]), Silent(), StopSignal())
    journal = Journal(folder / "lake" / "runs" / "big")
    done = sum(stage.done for stage in journal.stages())
    journal.close()
    return done


@contextmanager
def patched(owner: Any, members: Mapping[str, object]) -> Iterator[None]:
    """Replace members of a class or a module for a while."""
    before = {name: getattr(owner, name) for name in members}
    for name, value in members.items():
        setattr(owner, name, value)
    yield
    for name, value in before.items():
        setattr(owner, name, value)


def unscored() -> AbstractContextManager[None]:
    """Make verdicts read no scores for a while: the big run has none."""
    from lpfloop.loop.evaluation import policy_verdicts

    return patched(policy_verdicts, {"_measured": lambda *_: iter(())})


def continue_run(folder: Path) -> None:
    """Continue the big run; the first request ends this process."""
    from lpfloop.loop.daemon.loop import run_loop
    from lpfloop.loop.run.stop import StopSignal

    with unscored():
        run_loop(big_job(folder, BIG["iterations"] + 1), Silent(), StopSignal())


def resume(rounds: int) -> None:
    """Print the time from the start of a process to its first new unit."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        write_prompts(folder / "prompts.jsonl", BIG["prompts"])
        print(f"{build(folder):,} finished units")
        command = [sys.executable, __file__, "continue", "--folder", str(folder)]
        command += ["--prompts", str(BIG["prompts"])]
        seconds = list[float]()
        for _ in range(rounds):
            done = subprocess.run(
                command,
                env={**os.environ, RESUMING: str(time.time())},
                capture_output=True,
                text=True,
                check=False,
            )
            if not done.stdout:
                sys.exit(done.stderr[-3000:])
            seconds.append(float(done.stdout))
    value = median(seconds)
    met = "met" if value < GOALS["resume"] else "MISSED"
    print(f"first new unit after {value:.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    print(f"goal: under {GOALS['resume']:.0f} s: {met}")


def verdict(what: str, overhead: float, remark: str) -> None:
    """Print an overhead and its goal."""
    met = "met" if overhead < GOALS[what] else "MISSED"
    print(f"overhead {overhead:.2%} ({remark}); goal: below {GOALS[what]:.0%}: {met}")


def main() -> None:
    """Run the measurement named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("units", "run", "resume", "continue"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--prompts", type=int, default=BIG["prompts"], help="of the resumed run")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, for run")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    BIG["prompts"] = options.prompts
    match options.what:
        case "units":
            units(options.rounds, options.units)
        case "run":
            run(options.set)
        case "resume":
            resume(options.rounds)
        case _:
            continue_run(options.folder)


if __name__ == "__main__":
    main()
