"""Copies, in a run's bucket, of the checkpoints of a training in progress.

The newest sealed checkpoint is copied during the training, together with the rows of an
online method's steps and the policies saved in between. A copy is a list of files by their hashes,
written after the last file; the previous list is removed only then. After a takeover a machine
does not have the work folder: it fetches the newest complete copy and goes on from there. It
verifies the copy byte by byte, and the checkpoint also by the checkpoint's own manifest.
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
from ...stores.address import BucketError, OutOfReachError
from ...stores.bucket import Bucket
from ...stores.durable import TEMPORARY, make_folder, move, remove, sync_file
from ...stores.failpoints import reach
from ...stores.lake import RunWriter
from ...stores.lock import FencedError
from ...stores.run_lease import RunLease
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

    lease: RunLease
    work: Path

    @property
    def bucket(self) -> Bucket:
        """The bucket of its run."""
        return self.lease.bucket

    def copy(self, checkpoint: Path) -> None:
        """Copy a sealed checkpoint and the files next to it; then remove older copies.

        Raises:
            TakenOverError: if another machine has taken over the run.
            DamagedError: if the trainer removed the checkpoint meanwhile.
            OutOfReachError: if the bucket does not answer.
        """
        files = {name: known_sha256(path) for name, path in self._files(checkpoint)}
        there = set(self.bucket.sizes(self._at(FILES)))
        for name, sha256 in files.items():
            if self._at(FILES, sha256) not in there:
                self.bucket.put_file(self._at(FILES, sha256), self.work / name)
        self.lease.check()
        reach("training.copied")
        epoch, step = self.lease.head.epoch, checkpoint_step(checkpoint)
        name = self._at(LISTS, f"{epoch:08}-{step:08}.json")
        self.bucket.put(name, json.dumps({"files": files}).encode())
        self._let_go(name, files)

    def fetch(self) -> int | None:
        """Fetch the newest complete copy into the work folder; return its step, if there is one.

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
        """Download files into a draft folder, then move them to their places, checkpoints last."""
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
        """Yield name and path of each file of a copy: the sealed ones."""
        for folder in (checkpoint, self.work / STEP_FOLDERS, self.work / ON_THE_WAY):
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(self.work)
                if path.is_file() and not any(part.startswith(TEMPORARY) for part in name.parts):
                    yield name.as_posix(), path

    def _let_go(self, kept: str, files: Mapping[str, str]) -> None:
        kept_files = {kept, *(self._at(FILES, sha256) for sha256 in files.values())}
        lists, others = list[str](), list[str]()
        for name in self.bucket.sizes(self._at()):
            if name not in kept_files:
                (lists if _LIST.fullmatch(name.rpartition("/")[2]) else others).append(name)
        self.lease.remove([*lists, *others])

    def _at(self, *names: str) -> str:
        return "/".join((COPIES, self.work.name, *names))


def copies_of(store: RunWriter, work: Path) -> TrainingCopies | None:
    """Return the copies of the training in a work folder, or None.

    A run that is not in a bucket makes no copies, and neither does a step of the smoke test.
    """
    keeper = store.journal.keeper
    if keeper is None or work.parent != store.folder / "work":
        return None
    return TrainingCopies(lease=keeper.lease, work=work)


@contextmanager
def copy_checkpoints(store: RunWriter, work: Path, stop: StopSignal) -> Generator[int | None]:
    """Copy the training's checkpoints in the block; yield the step of a fetched copy, or None.

    After a request to stop, copying may take as long as the other work in flight.
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
        # A slower copy continues until the process ends. Its list is written last, so an incomplete
        # copy does not count, and the previous one stays.
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
            continue  # The trainer made a newer one, and removed it.
        except FencedError:
            return  # The run's other threads get this error, too, and end it.
        except BucketError as error:
            if not failed:
                logger.warning("no copy of the training's checkpoint for now: %s", error)
            failed = True
        else:
            done, failed = checkpoint_step(newest), False


def discard_copies(store: RunWriter) -> None:
    """Remove the copies of all trainings of a run after they have ended, if the bucket answers.

    Raises:
        TakenOverError: if another machine has taken the run over: a training may go on there.
    """
    keeper = store.journal.keeper
    if keeper is not None:
        with suppress(OutOfReachError):
            keeper.lease.remove(list(keeper.lease.bucket.sizes(COPIES)))
