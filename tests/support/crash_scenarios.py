"""What is interrupted by the crash tests: a run, its recovery, repair, redo, fork and collection.

A scenario starts from a lake that `prepare` left, and does `work`, which may be killed anywhere and
done again; in the end the run `name` is that of an uninterrupted run.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crashing import KILLED, RUN, Attempt, look, loop

from lpfloop.configs.schema import RunConfig
from lpfloop.stores import journal_backups, packing
from lpfloop.stores.garbage import collect, garbage, published
from lpfloop.stores.inspection import repair
from lpfloop.stores.journal import Journal, migrated
from lpfloop.stores.journal_held import BACKUPS
from lpfloop.stores.journal_reader import JOURNAL, Reader
from lpfloop.stores.lake import CHECKPOINTS, RunWriter, run_folder
from lpfloop.stores.packing import pack_all
from lpfloop.stores.packs import path_of

FORKED = "b"
SCENARIOS = (
    *("run", "recovery", "publication", "repair", "redo", "fork", "packing", "compaction"),
    *("collection", "mending", "restoring"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is killed: `prepare` makes the lake that `work` begins with.

    `forgets` says that the work gives up answers that were committed, and asks for them again, or
    that it begins with a journal that cannot be read.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    name: str = RUN
    forgets: bool = False


def scenarios(config: RunConfig) -> dict[str, Scenario]:
    """Return all scenarios; each ends with what `loop` alone gives on an empty lake."""
    turned = partial(loop, config=config)
    finished = partial(_finished, config=config)
    return {
        "run": Scenario(prepare=_nothing, work=turned),
        "recovery": Scenario(
            prepare=partial(_killed, config=config, at="part.rename.before#7"), work=turned
        ),
        "publication": Scenario(
            prepare=partial(_killed, config=config, at="checkpoint.published"), work=turned
        ),
        "repair": Scenario(
            prepare=partial(_damaged, config=config),
            work=partial(mend, config=config),
            forgets=True,
        ),
        "redo": Scenario(
            prepare=partial(_damaged, config=config),
            work=partial(mend, config=config, redo=True),
            forgets=True,
        ),
        "fork": Scenario(prepare=finished, work=partial(fork, config=config), name=FORKED),
        "packing": Scenario(prepare=_nothing, work=partial(packed, config=config)),
        "compaction": Scenario(prepare=finished, work=partial(compact, config=config)),
        "collection": Scenario(
            prepare=partial(_littered, config=config), work=partial(tidy, config=config)
        ),
        "mending": Scenario(
            prepare=partial(_with_damaged_journal, config=config),
            work=partial(mend_journal, config=config),
            forgets=True,
        ),
        "restoring": Scenario(
            prepare=partial(_with_lost_page, config=config),
            work=partial(mend_journal, config=config),
            forgets=True,
        ),
    }


def mend(lake: Path, *, config: RunConfig, redo: bool = False) -> None:
    """Repair the run and make what is owed again."""
    journal = Journal(run_folder(lake, RUN))
    repair(journal)
    if redo:
        journal.redo()
    journal.close()
    loop(lake, config=config)


def mend_journal(lake: Path, *, config: RunConfig) -> None:
    """Make the run's journal whole, and turn the loop to its end."""
    journal_backups.mend(run_folder(lake, RUN))
    loop(lake, config=config)


def fork(lake: Path, *, config: RunConfig) -> None:
    """Fork the run, or go on with the fork that is there."""
    there = (run_folder(lake, FORKED) / JOURNAL).exists()
    loop(lake, config=config, name=FORKED, fork=None if there else RUN)


def packed(lake: Path, *, config: RunConfig, name: str = RUN, fork: str | None = None) -> None:
    """Turn the loop while all that can be packed is packed."""
    packing.FEWEST = 2
    loop(lake, config=config, name=name, fork=fork)


def compact(lake: Path, *, config: RunConfig) -> None:
    """Pack the whole run at once, then see that it is done."""
    packing.FEWEST = 2
    writer = RunWriter(Journal(run_folder(lake, RUN)))
    pack_all(writer.journal)
    left = [piece for piece in garbage(writer.journal) if "packs" not in piece.path.parts]
    writer.close()
    if left:
        raise RuntimeError(f"garbage was left: {left}")
    loop(lake, config=config)


def migrate(lake: Path) -> None:
    """Bring the run's journal up to date."""
    migrated(run_folder(lake, RUN))


def tidy(lake: Path, *, config: RunConfig) -> None:
    """Collect all garbage and all but the newest weights, then see that the run is done."""
    journal = Journal(run_folder(lake, RUN))
    collect(journal, garbage(journal, keep=1))
    left = garbage(journal, keep=1)
    journal.close()
    if left:
        raise RuntimeError(f"garbage was left: {left}")
    loop(lake, config=config)


def done_and_looked_at(lake: Path, *, scenario: Scenario) -> None:
    """Do the scenario's work to its end, and look through the run."""
    scenario.work(lake)
    look(lake, name=scenario.name)


def _nothing(lake: Path) -> None:
    """Begin with an empty lake."""


def _finished(lake: Path, *, config: RunConfig) -> None:
    Attempt(lake=lake, work=partial(loop, config=config)).finish()


def _killed(lake: Path, *, config: RunConfig, at: str) -> None:
    code = Attempt(lake=lake, work=partial(loop, config=config), points={at: "kill"}).start()
    if code != KILLED:
        raise RuntimeError(f"{at} was not reached (exit code {code})")


def _damaged(lake: Path, *, config: RunConfig) -> None:
    """Alter a part, delete another one, and cut a file of a checkpoint short."""
    _finished(lake, config=config)
    folder = run_folder(lake, RUN)
    reader = Reader(folder)
    altered, deleted = (
        path_of(folder, reader.parts(table=table, iteration=1)[0])
        for table in ("critiques", "pairs")
    )
    checkpoint = folder / CHECKPOINTS / published(reader)[0]
    reader.close()
    flip(altered)
    deleted.unlink()
    truncate(checkpoint / "extra" / "weights")


def _littered(lake: Path, *, config: RunConfig) -> None:
    """Leave files that no unit refers to."""
    _finished(lake, config=config)
    folder = run_folder(lake, RUN)
    part = next((folder / "parts" / "candidates").iterdir())
    shutil.copy(part, part.with_stem("0" * 64))
    checkpoint = next((folder / CHECKPOINTS).iterdir())
    shutil.copytree(checkpoint, checkpoint.with_name("0" * 64))


def _with_damaged_journal(lake: Path, *, config: RunConfig) -> None:
    """Alter the journal of a finished run."""
    _finished(lake, config=config)
    flip(run_folder(lake, RUN) / JOURNAL)


def _with_lost_page(lake: Path, *, config: RunConfig) -> None:
    """Alter what the journal of a run has that its backups have not: iteration 2, half done."""
    _killed(lake, config=config, at="checkpoint.trained#2")
    folder = run_folder(lake, RUN)
    Journal(folder).close()
    backup = max((folder / BACKUPS).iterdir()).read_bytes()
    pairs = zip((folder / JOURNAL).read_bytes(), backup, strict=False)
    flip(folder / JOURNAL, [n for n, (now, then) in enumerate(pairs) if now != then][-1])


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit of a file, in its middle if no place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Take the last byte of a file away."""
    path.write_bytes(path.read_bytes()[:-1])
