# pyright: basic
"""Every durable write of lpfloop: a file is either whole under its final name, or absent.

Order of each publication: write to a temporary name, fsync the file, rename, fsync the folder; only
then may the journal refer to it. Published names are content hashes, so publishing can be repeated.
After an error it starts over with a new file: once an fsync has failed, a second one may report
success although the data never reached the disk. Files are readable by their owner alone. Ruff
forbids durable writes elsewhere.

Each step is an `operation` with a failpoint before and after it, `PURPOSE.KIND.before` and
`.after`. It is reported to `observers` once it succeeded: the power-loss test replays these to
every state that a crash may leave.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .failpoints import reach
from .sealed import MANIFEST, check_folder, files_below, manifest_of, same_bytes


@dataclass(frozen=True, slots=True)
class Operation:
    """One step on `path`, which was moved to `target` or got `data`."""

    purpose: str
    kind: str
    path: Path
    target: Path | None = None
    data: bytes = b""


observers: list[Callable[[Operation], None]] = []


@contextmanager
def operation(
    purpose: str,
    kind: str,
    path: Path,
    *,
    target: Path | None = None,
    data: bytes | memoryview = b"",
) -> Generator[None]:
    """Wrap the body, which does one step, in its failpoints, and report it."""
    reach(f"{purpose}.{kind}.before")
    yield
    for observer in observers:
        observer(Operation(purpose, kind, path, target, bytes(data)))
    reach(f"{purpose}.{kind}.after")


TEMPORARY = ".tmp-"

Data = bytes | memoryview | Iterator[bytes]
"""A file's bytes, or an iterator of blocks, of which one at a time is in memory."""


def write_file(path: Path, data: Data, purpose: str = "file") -> None:
    """Publish `data` as `path` atomically; an existing file is replaced."""
    put(path, data, purpose)
    sync_folder(path.parent, purpose)


def put(path: Path, data: Data, purpose: str) -> None:
    """Write `data` whole to a temporary file and rename it; the new name is not durable yet."""
    temporary = temporary_name(path)
    with _removed_on_error(temporary), ExitStack() as stack:
        with operation(purpose, "create", temporary):
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
        for block in [data] if isinstance(data, bytes | memoryview) else data:
            with operation(purpose, "write", temporary, data=block):
                left = memoryview(block)
                while left:
                    left = left[os.write(handle, left) :]
        with operation(purpose, "sync", temporary):
            os.fsync(handle)
        _rename(temporary, path, purpose)


def publish_file(draft: Path, path: Path) -> None:
    """Move a file that another library wrote to its final name, durably, or remove it."""
    with _removed_on_error(draft):
        sync_file(draft, "draft")
        _rename(draft, path, "draft")
    sync_folder(path.parent, "draft")


def move(draft: Path, path: Path) -> None:
    """Rename a folder whose files are durable to its final name, durably."""
    _rename(draft, path, "draft")
    sync_folder(path.parent, "draft")


def publish_folder(source: Path, parent: Path, name: str | None = None) -> str:
    """Move the folder `source` to `parent/name` and return the hash of its manifest.

    `name` defaults to that hash.

    Raises:
        OSError: if it cannot be made durable; after a failed fsync of a file `source` is gone.
        DamagedError: if an equal folder was published before and has been damaged since.
    """
    sweep(source)
    manifest = manifest_of(source)
    identity = hashlib.sha256(manifest).hexdigest()
    with _removed_on_error(source):
        for _, path in files_below(source):
            with same_bytes(path):
                sync_file(path, "published")
    put(source / MANIFEST, manifest, "manifest")
    for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
        folder.chmod(0o700)
        # Equal content was published before: keep the old copy, after a check that it is whole.
        sync_folder(folder, "published")
    target = parent / (name or identity)
    if target.exists():
        check_folder(target, identity)
        remove(source)
    else:
        _rename(source, target, "published")
    sync_folder(parent, "published")
    return identity


def link(source: Path, target: Path) -> None:
    """Hard-link a published file or folder at a second path on the same disk, durably."""
    if source.is_dir():
        check_folder(source)
        temporary = temporary_name(target)
        with operation("link", "copytree", source, target=temporary):
            shutil.copytree(source, temporary, copy_function=os.link)
        publish_folder(temporary, target.parent)
    else:
        with operation("link", "link", source, target=target), suppress(FileExistsError):
            target.hardlink_to(source)
        sync_folder(target.parent, "link")


def make_folder(folder: Path) -> Path:
    """Create `folder` and its parents durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with operation("folder", "mkdir", folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent, "folder")
    elif os.access(folder.parent, os.R_OK) and _is_empty(folder):
        # A process may have been killed right after mkdir, before the folder's name was durable.
        sync_folder(folder.parent, "folder")
    return folder


def _is_empty(folder: Path) -> bool:
    """Read only the first entry: a folder of parts may have a million."""
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def quarantine(path: Path, folder: Path) -> Path:
    """Move a damaged file or folder into `folder`, durably; return its new path."""
    target = make_folder(folder) / f"{secrets.token_hex(4)}-{path.name}"
    _rename(path, target, "quarantine")
    sync_folder(folder, "quarantine")
    sync_folder(path.parent, "quarantine")
    return target


def remove(path: Path) -> None:
    """Remove a file or folder durably; no partly removed folder keeps its name."""
    temporary = temporary_name(path)
    _rename(path, temporary, "retired")
    sync_folder(path.parent, "retired")
    _delete(temporary)


def discard(path: Path) -> None:
    """Remove a file that is not needed; if a power loss restores it, it is garbage."""
    with operation("superseded", "unlink", path):
        path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders that interrupted writes left below `folder`."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if name.startswith(TEMPORARY):
                _delete(Path(parent, name))
        folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]


def sync_file(path: Path, purpose: str = "draft") -> None:
    """Make the bytes of a file that another library wrote survive a power loss."""
    path.chmod(0o600)
    _sync(path, purpose, "sync")


def sync_folder(folder: Path, purpose: str = "draft") -> None:
    """Make the names in `folder` survive a power loss."""
    _sync(folder, purpose, "sync_folder")


def _sync(path: Path, purpose: str, kind: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with operation(purpose, kind, path):
            os.fsync(handle)
    finally:
        os.close(handle)


def temporary_name(path: Path) -> Path:
    """Return a name in the folder of `path` that no other thread or process uses."""
    return path.parent / f"{TEMPORARY}{secrets.token_hex(8)}-{path.name}"


def _rename(path: Path, target: Path, purpose: str) -> None:
    with operation(purpose, "rename", path, target=target):
        path.rename(target)


@contextmanager
def _removed_on_error(path: Path) -> Generator[None]:
    """Remove a file whose write failed, because it is incomplete and takes up room."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            remove(path)
        raise


def _delete(path: Path) -> None:
    kind = "rmtree" if path.is_dir() and not path.is_symlink() else "unlink"
    with operation("temporary", kind, path):
        shutil.rmtree(path) if kind == "rmtree" else path.unlink()
