"""Copies, in a run's bucket, of the checkpoints of a training that goes on.

The newest sealed checkpoint of a training is copied while it goes on, and with it what lies beside:
the rows of an online method's steps, and the policies that it saved on its way. A copy is a list of
files by their hashes, written after the last of them; the one before it goes only then. A machine
that adopted the run finds no work folder, fetches the newest whole copy, and trains on from there.
What the copy holds is verified byte for byte, and its checkpoint once more by its own manifest.
"""

import json
import logging
import re
import secrets
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...policies.trainers.checkpoints import checkpoint_step, is_sealed, newest_first
from ...policies.trainers.step_files import STEP_FOLDERS
from ...policies.trainers.step_policies import FOLDER as ON_THE_WAY
from ...stores.bucket import Bucket, BucketError, OutOfReachError
from ...stores.durable import TEMPORARY, make_folder, move, remove, sync_file
from ...stores.failpoints import reach
from ...stores.heads import Headship
from ...stores.lake import RunWriter
from ...stores.lock import FencedError
from ...stores.sealed import DamagedError, file_sha256, known_sha256
from .stop import StopSignal

CHECKPOINTS = "checkpoints"
COPIES = "trainings"
FILES, LISTS = "files", "copies"
POLL_S = 2.0
_LIST = re.compile(r"(\d{8})-(\d{8})\.json")

logger = logging.getLogger("lpfloop.trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCopies:
    """The copies of one training, below `trainings/WORK` of its run's bucket."""

    headship: Headship
    work: Path

    @property
    def bucket(self) -> Bucket:
        """The bucket of its run."""
        return self.headship.bucket

    def copy(self, checkpoint: Path) -> None:
        """Copy a sealed checkpoint and what lies beside it; then let go of older copies.

        Raises:
            AdoptedError: if another machine has taken the run over.
            DamagedError: if the trainer removed it meanwhile.
            OutOfReachError: if the bucket does not answer.
        """
        files = {name: known_sha256(path) for name, path in self._files(checkpoint)}
        there = set(self.bucket.sizes(self._at(FILES)))
        for name, sha256 in files.items():
            if self._at(FILES, sha256) not in there:
                self.bucket.put_file(self._at(FILES, sha256), self.work / name)
        self.headship.check()
        reach("training.copied")
        epoch, step = self.headship.head.epoch, checkpoint_step(checkpoint)
        name = self._at(LISTS, f"{epoch:08}-{step:08}.json")
        self.bucket.put(name, json.dumps({"files": files}).encode())
        self._let_go(name, files)

    def fetch(self) -> int | None:
        """Put the newest whole copy into the work folder; return its step, or None without one.

        Raises:
            OutOfReachError: if the bucket does not answer.
        """
        for name in sorted(self.bucket.sizes(self._at(LISTS)), reverse=True):
            match = _LIST.fullmatch(name.rpartition("/")[2])
            if match is None:
                continue
            try:
                self._fetch(json.loads(self.bucket.read(name))["files"])
            except DamagedError as error:
                logger.warning("a copy of the training in the bucket is not whole: %s", error)
            else:
                return int(match[2])
        return None

    def _fetch(self, files: Mapping[str, str]) -> None:
        """Download files beside the work folder, and move them there: checkpoints come last."""
        draft = make_folder(self.work / f"{TEMPORARY}{secrets.token_hex(8)}")
        try:
            for name, sha256 in files.items():
                path = draft / name
                make_folder(path.parent)
                self.bucket.download(self._at(FILES, sha256), path)
                if file_sha256(path) != sha256:
                    raise DamagedError(f"{self.bucket.at(self._at(FILES, sha256))} was altered")
                sync_file(path)
            for part in (ON_THE_WAY, STEP_FOLDERS, CHECKPOINTS):
                if (self.work / part).exists():
                    remove(self.work / part)
                if (draft / part).exists():
                    move(draft / part, self.work / part)
        finally:
            remove(draft)

    def _files(self, checkpoint: Path) -> Iterator[tuple[str, Path]]:
        """Yield name and path of each file that a copy holds: what is sealed by now."""
        for folder in (checkpoint, self.work / STEP_FOLDERS, self.work / ON_THE_WAY):
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(self.work)
                if path.is_file() and not any(part.startswith(TEMPORARY) for part in name.parts):
                    yield name.as_posix(), path

    def _let_go(self, kept: str, files: Mapping[str, str]) -> None:
        wanted = {kept, *(self._at(FILES, sha256) for sha256 in files.values())}
        lists, others = list[str](), list[str]()
        for name in self.bucket.sizes(self._at()):
            if name not in wanted:
                (lists if _LIST.fullmatch(name.rpartition("/")[2]) else others).append(name)
        self.headship.remove([*lists, *others])

    def _at(self, *names: str) -> str:
        return "/".join((COPIES, self.work.name, *names))


def copies_of(store: RunWriter, work: Path) -> TrainingCopies | None:
    """Return the copies of the training in a work folder; None for one that has none.

    A run in a folder has none, and neither has a step of the smoke test.
    """
    headship = store.journal.headship
    if headship is None or work.parent != store.folder / "work":
        return None
    return TrainingCopies(headship=headship, work=work)


@contextmanager
def copied(store: RunWriter, work: Path, stop: StopSignal) -> Generator[int | None]:
    """Copy what a training seals in the block; yield the step of a copy that it goes on from.

    After a stop was asked for, copying takes no longer than everything else that is in flight.
    """
    copies = copies_of(store, work)
    if copies is None:
        yield None
        return
    step = None
    if not (work / CHECKPOINTS).exists():
        step = store.when_there_is_room(copies.fetch)
    ending, hurried = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=_copy_newest,
        args=(copies, step or 0, ending, hurried),
        name="training copies",
        daemon=True,
    )
    thread.start()
    try:
        yield step
    finally:
        left_s = stop.left_s if stop.requested else None
        if left_s == 0:
            hurried.set()
        ending.set()
        # A copy that takes longer goes on until the process ends. Without its list, which comes
        # last, it does not count, and the one before it stays.
        thread.join(left_s)


def _copy_newest(
    copies: TrainingCopies, done: int, ending: threading.Event, hurried: threading.Event
) -> None:
    """Copy the newest sealed checkpoint whenever there is one after step `done`.

    When the training ends, its last checkpoint is copied, unless the process is `hurried`.
    """
    ended = failed = False
    while not ended:
        ended = ending.wait(POLL_S)
        if hurried.is_set():
            return
        newest = next(filter(is_sealed, newest_first(copies.work / CHECKPOINTS)), None)
        if newest is None or checkpoint_step(newest) <= done:
            continue
        try:
            copies.copy(newest)
        except (FileNotFoundError, DamagedError):
            continue  # The trainer has a newer one, and removed it.
        except FencedError:
            return  # The run's other threads notice that, too, and end it.
        except BucketError as error:
            if not failed:
                logger.warning("no copy of the training's checkpoint for now: %s", error)
            failed = True
        else:
            done, failed = checkpoint_step(newest), False


def discard_copies(store: RunWriter) -> None:
    """Remove the copies of a run's trainings, all of which are over; unless the bucket is away.

    Raises:
        AdoptedError: if another machine has taken the run over: a training may go on there.
    """
    headship = store.journal.headship
    if headship is not None:
        with suppress(OutOfReachError):
            headship.remove(list(headship.bucket.sizes(COPIES)))
