"""Far beyond one machine, simulated on one: 1,000 members of a pool, 10 million units, failures.

    python benchmarks/members.py pool --units 10000000     # the pool alone, without files
    python benchmarks/members.py journal --units 10000000  # the journal alone: no rows, no members
    python benchmarks/members.py run --at 0 1000000 5000000 10000000 --units 20000
    python benchmarks/members.py same --units 2000         # failures change no row

Members are scripted and live in this process; everything else is real: the pool and its shared
stream, admission, the dispatcher, the journal in SQLite, Parquet files. A unit is one prompt with
one answer, the smallest possible. Members die at random and lose their requests, and are replaced;
some die of every slice, and the pool drops them. A stage has 100,000 units, an iteration one
stage.

`run` fills the journal up to each size with its `plan`, `commit` and `seal`, without files on the
disk, and then runs a whole stage: units a second, the share of time spent writing the journal,
memory and threads. Afterwards it closes the journal, which makes a backup, and opens it again.
`same` runs equal stages with failing members and with one sound member.
"""

import argparse
import hashlib
import logging
import resource
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

from scripted_members import MemberModels, Troupe, member_engine
from synthetic import configuration

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig, RunConfig
from lpfloop.critics.feedback import FeedbackCritic
from lpfloop.critics.verify import Verifier
from lpfloop.loop.run.handles import Prompts, chunk_prompts
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.run import Run
from lpfloop.loop.run.served import Served
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Done, Journal, KeptSlice
from lpfloop.stores.journal_reader import JOURNAL, StageId
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Checkpoint, Message, Prompt
from lpfloop.stores.verified import EncodedRows

FOR_MANY = ("policy.engine.kind=scripted", "critic.engine.kind=scripted", "reward.model=none")
TELEMETRY = {**UnitStats(rows=1, tokens=6, prompt_tokens=8, calls=1).numbers, "judge_calls": 0}
LOOKS = 10
"""Number of printed lines in a long measurement."""
MIB = 2**20


class TimedJournal(Journal):
    """A journal that measures the time of its commits."""

    committing = keeping = 0.0

    def commit(self, results: Sequence[Done]) -> dict[StageId, tuple[int, int]]:
        """Commit, and count the seconds."""
        started = time.perf_counter()
        stages = super().commit(results)
        self.committing += time.perf_counter() - started
        return stages

    def keep(self, slices: Sequence[KeptSlice]) -> None:
        """Keep replies, and count the seconds."""
        started = time.perf_counter()
        super().keep(slices)
        self.keeping += time.perf_counter() - started


class Silent:
    """A reporter without output."""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Report nothing."""

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Report nothing."""

    def end(self, iteration: int, stage: str) -> None:
        """Report nothing."""

    def note(self, text: str, event: str = "note", **_: object) -> None:
        """Report nothing."""


def resident_mib() -> float:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


def journal_bytes(journal: Journal) -> int:
    """Return the bytes of the journal's file and its log."""
    return sum(path.stat().st_size for path in journal.folder.glob("journal.sqlite*"))


def troupe_of(options: argparse.Namespace, **changes: Any) -> Troupe:
    """Return the behaviour of members."""
    names = ("window", "answer_s", "deaths", "broken", "letters")
    given = {name: getattr(options, name) for name in names}
    return Troupe(**{**given, **changes})


def slices() -> Iterator[Batch]:
    """Yield slices of one request endlessly."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=8)
    said = (Message(role="user", content="Why?"),)
    for number in count():
        request = Request(request_id=str(number), messages=said, seed=number)
        yield Batch(key=str(number), requests=(request,), sampling=sampling)


def pool_alone(options: argparse.Namespace) -> None:
    """Distribute and collect units with a shared stream; print the rate repeatedly."""
    troupe = troupe_of(options)
    engine = member_engine(options.members, troupe)
    seen, sums, started = 0, 0, time.perf_counter()
    look = max(1, options.units // LOOKS)
    print(f"{'units':>12}{'units/s':>10}{'MiB':>8}{'threads':>9}")
    since = started
    for result in engine.generate(islice(slices(), options.units)):
        seen += 1
        sums += int(result.key)
        if seen % look == 0:
            now = time.perf_counter()
            print(
                f"{seen:>12,}{look / (now - since):>10,.0f}{resident_mib():>8,.0f}"
                f"{threading.active_count():>9,}",
                flush=True,
            )
            since = now
    engine.close()
    if (seen, sums) != (options.units, options.units * (options.units - 1) // 2):
        raise SystemExit(f"{seen} units came of {options.units}: something is lost or doubled")
    print(f"every unit came once; members {told(troupe, engine)}")


def told(troupe: Troupe, engine: HostedModel[EngineConfig]) -> str:
    """Return the counts of members' fates."""
    return ", ".join(f"{fate} {number:,}" for fate, number in sorted(troupe.fates.items()))


def opened(lake: Path) -> TimedJournal:
    """Return the journal of the run in a lake, or of a new one."""
    folder = run_folder(lake, "members")
    if (folder / JOURNAL).exists():
        journal = TimedJournal(folder)
    else:
        journal = TimedJournal.create(folder, {"fingerprint": "{}", "config": configuration()})
    return journal


def filled(journal: Journal, iteration: int, units: int, group: int) -> None:
    """Plan, commit and seal a stage, like a run, but without files of rows."""

    def keys() -> list[str]:
        return [named(iteration, number) for number in range(units)]

    journal.plan(iteration, "sample", named(iteration, -1), keys)
    pending = [unit.key for unit in journal.pending(iteration, "sample")]
    for first in range(0, units, group):
        journal.commit(
            [
                Done(
                    unit=key,
                    parts={
                        "candidates": EncodedRows(
                            sha256=named("part", key), rows=1, data=bytes(4096)
                        )
                    },
                    telemetry=TELEMETRY,
                )
                for key in pending[first : first + group]
            ]
        )
    journal.seal(
        EncodedRows(sha256=named("file", iteration), rows=units, data=b""),
        journal.unsealed_parts(iteration, "sample"),
    )


def named(*parts: object) -> str:
    """Return a hash as used in the names of keys and parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def journal_alone(options: argparse.Namespace) -> None:
    """Plan and commit stage after stage; print rate and size as the journal grows."""
    print(f"{'units':>12}{'units/s':>10}{'MiB':>8}{'bytes/unit':>12}")
    with place(options) as lake, closing(opened(lake)) as journal:
        each = min(options.stage, options.units)
        look = max(each, options.units // LOOKS)
        since = time.perf_counter()
        for iteration in range(1, options.units // each + 1):
            filled(journal, iteration, each, options.group)
            done = iteration * each
            if done % look == 0:
                now = time.perf_counter()
                print(
                    f"{done:>12,}{look / (now - since):>10,.0f}"
                    f"{resident_mib():>8,.0f}"
                    f"{journal_bytes(journal) / done:>12,.0f}",
                    flush=True,
                )
                since = time.perf_counter()


@contextmanager
def place(options: argparse.Namespace) -> Generator[Path]:
    """Yield a folder for the lake: the given one, or a temporary one."""
    if options.folder is not None:
        yield options.folder
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def prompts_of(iteration: int, units: int) -> Prompts:
    """Return prompts of which each is a unit."""
    return chunk_prompts(
        [
            Prompt(
                prompt_id=f"prompt-{iteration}-{number}",
                task="general",
                split="train",
                messages=(Message(role="user", content=f"Why {number}?"),),
                reference=None,
                checks=(),
                source="simulated",
            )
            for number in range(units)
        ],
        1,
    )


def simulated(journal: Journal, engine: HostedModel[EngineConfig]) -> Run:
    """Return a run whose policy is a pool of members."""
    config: RunConfig = load_config("tiny", "rlrf", FOR_MANY, {})
    initial = Served(
        name="members", identity="0" * 64, location="members", engine=config.policy.engine
    )
    models = MemberModels(
        config=config,
        logs=journal.folder / "logs",
        initial=initial,
        reward_id=None,
        members=engine,
    )
    return Run(
        name="members",
        config=config,
        store=RunWriter(journal),
        models=models,
        critic=FeedbackCritic.from_config(config.critic),
        verifier=Verifier(),
        reporter=Silent(),
        stop=StopSignal(),
        prompts={},
    )


def sampled(run: Run, iteration: int, units: int, answers: int = 1) -> None:
    """Sample so many answers to each of so many prompts, each in a separate unit."""
    prompts = prompts_of(iteration, units)
    parent = Checkpoint(
        checkpoint_id="0" * 64,
        parent_id=None,
        reference_id=None,
        iteration=iteration - 1,
        recipe="rlrf",
        path="none",
        steps=0,
        metrics="{}",
    )
    it = Iteration(
        run=run,
        number=iteration,
        parent=parent,
        policy=run.models.initial,
        train_prompts=prompts,
        held_out=chunk_prompts([], 1),
    )
    with run.flow:
        sample(it, prompts, n=answers)


def whole(options: argparse.Namespace) -> None:
    """Run stages of units on journals of several sizes; print a unit's share of time, memory and
    bytes."""
    print(
        f"{'units before':>12}{'units/s':>9}{'journal':>9}{'keeping':>9}"
        f"{'MiB':>7}{'threads':>9}{'bytes/unit':>12}{'of rows':>12}"
    )
    troupe = troupe_of(options)
    with place(options) as lake:
        journal, engine = opened(lake), member_engine(options.members, troupe)
        run, before = simulated(journal, engine), journal.stages()
        done = sum(stage.done for stage in before)
        numbers = count(1 + max((stage.iteration for stage in before), default=0))
        for size in options.at:
            while done < size:
                units = min(options.stage, size - done)
                filled(journal, next(numbers), units, options.fill_group)
                done += units
            tell_stage(run, journal, next(numbers), options, done)
            done += options.units
        engine.close()
        tell_ends(run, journal.folder)
    print(f"members {told(troupe, engine)}")


def tell_ends(run: Run, folder: Path) -> None:
    """Close a run, open its journal again, and print the time of both."""
    started = time.perf_counter()
    run.store.close()
    closed = time.perf_counter()
    Journal(folder).close()
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"backed up and closed in {closed - started:.1f} s, opened again in {ended - closed:.1f} s;"
        f" at most {peak:,.0f} MiB"
    )


def tell_stage(
    run: Run, journal: TimedJournal, iteration: int, options: argparse.Namespace, before: int
) -> None:
    """Run a stage, and print its line."""
    units = options.units
    then = (journal.committing, journal.keeping)
    started = time.perf_counter()
    sampled(run, iteration, units, options.answers)
    seconds = time.perf_counter() - started
    done = journal.count(iteration, "sample", "candidates")
    if done != units * options.answers:
        raise SystemExit(f"{done} rows of {units} units: something is lost or doubled")
    now = (journal.committing, journal.keeping)
    committing, keeping = (b - a for a, b in zip(then, now, strict=True))
    rows = sum(part.size for part in journal.parts(table="candidates", iteration=iteration))
    print(
        f"{before:>12,}{units / seconds:>9,.0f}"
        f"{committing / seconds:>9.0%}{keeping / seconds:>9.0%}"
        f"{resident_mib():>7,.0f}{threading.active_count():>9,}"
        f"{journal_bytes(journal) / (before + units):>12,.0f}{rows / units:>12,.0f}",
        flush=True,
    )


def same(options: argparse.Namespace) -> None:
    """Run the same stages with many failing members and with one sound one; compare the rows."""
    found = dict[str, str]()
    sides = {
        "many, failing": (options.members, troupe_of(options)),
        "one": (1, troupe_of(options, deaths=0.0, broken=0, answer_s=0.0)),
    }
    for side, (members, troupe) in sides.items():
        with tempfile.TemporaryDirectory() as folder:
            journal, engine = opened(Path(folder)), member_engine(members, troupe)
            run = simulated(journal, engine)
            for iteration in (1, 2):
                sampled(run, iteration, options.units)
            rows = sum(journal.count(n, "sample", "candidates") for n in (1, 2))
            engine.close()
            run.store.close()
            found[side] = run_digest(journal.folder)
        print(f"{side}: {rows:,} rows, digest {found[side][:16]}, members {told(troupe, engine)}")
        if rows != 2 * options.units:
            raise SystemExit(f"{rows} rows of {2 * options.units} units")
    if len({*found.values()}) != 1:
        raise SystemExit("the rows differ")
    print("the rows are the same")


COMMANDS = {"pool": pool_alone, "journal": journal_alone, "run": whole, "same": same}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--window", type=int, default=4, help="requests that a member takes ahead")
    parser.add_argument("--answer-s", type=float, default=0.0, help="mean time of an answer")
    parser.add_argument("--deaths", type=float, default=0.001, help="of a slice, by chance")
    parser.add_argument("--broken", type=int, default=5, help="members that die of every slice")
    parser.add_argument("--stage", type=int, default=100_000, help="units of a stage")
    parser.add_argument("--group", type=int, default=64, help="units of a transaction (journal)")
    parser.add_argument("--fill-group", type=int, default=5000, help="the same, to fill (run)")
    parser.add_argument("--answers", type=int, default=1, help="answers of a unit (run)")
    parser.add_argument("--letters", type=int, default=16, help="letters of an answer")
    parser.add_argument("--at", type=int, nargs="+", default=[0], help="sizes of the journal (run)")
    parser.add_argument("--folder", type=Path, help="the lake: a new folder, or to go on with")
    options = parser.parse_args()
    logging.getLogger("lpfloop.worker").setLevel(logging.ERROR)
    COMMANDS[options.what](options)


if __name__ == "__main__":
    main()
