"""Weights travel by identity: what a worker elsewhere is told of its model, and how it finds it.

On the head `travelling(opening)` puts `weights` into the opening frame of a worker that is not on
this machine, and a reload has them too: the model's identity, its path here, and its address if the
lake is in a bucket: that of the checkpoint, or of the copy that the head puts there of a model that
no run made. A function of the user's own and a template travel as text, being small.
Keys of a bucket never travel: each machine has its own in its environment (AWS_...).

Where the worker is, its agent (what holds the PipeChannel of the child and relays its frames) makes
one `NodeWeights` for each child and passes every frame for it through `at_hand`:

    weights = NodeWeights()
    opening = weights.at_hand(opening)                  # before the child is started
    channel = PipeChannel(log=..., environment=opened_environment(opening, devices))
    channel.send(opening, ...)
    channel.send(weights.at_hand(frame), ...)           # each later frame from the head
    weights.close()                                     # when the child has ended

It returns any other frame as it is. One with `weights` comes back without them and with a `model`
that is a path of this machine, where the bytes have the identity; or with `refused`, a sentence,
which the child reports to the head: the agent need not know of it. `at_hand` raises nothing, must
run in the agent's own process (the child's environment has no keys), and may take minutes: not in
the thread that answers for the agent's life. Any thread may `close`, whatever is being fetched.

It looks for the model at the head's path (a shared disk), in this machine's hub cache, and in a
folder below `node_cache()` that somebody named by the identity; then it is fetched from the bucket.
A folder with other bytes, or with a part of them, is passed over.
"""

import hashlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...configs.own_function import file_of
from ...stores.address import lake_in_bucket, state_folder
from ...stores.bucket import OutOfReachError
from ...stores.durable import make_folder, write_file
from ...stores.hub_cache import cache_folder
from ...stores.node_copies import HeldCopy, held_copy, remembered_hashes
from ...stores.sealed import MANIFEST
from ...stores.shared_models import shared_model
from ..engines.chat_template import SHIPPED, template_text
from ..engines.engine import EngineError
from .identity import folder_digest, model_files
from .wire import Frame

CACHE = "LPFLOOP_WEIGHTS"
"""The variable that names a folder on a fast disk of this machine."""

PATIENCE_S = 600.0
"""Seconds for which a bucket may be out of reach before a worker is refused."""

PAUSE_S = 5.0
SHOWN = 16
"""Characters of an identity in messages."""

SNAPSHOT = re.compile(r".*/(models--[^/]+/snapshots/[0-9a-f]{40})/?")


def node_cache() -> Path:
    """Return the folder in which this machine keeps copies of weights."""
    chosen = os.environ.get(CACHE)
    return Path(chosen).absolute() if chosen else state_folder() / "weights"


def travelling(opening: Frame, bucket: str | None = None) -> Frame:
    """Return an opening frame with what another machine needs to find the model.

    Raises:
        BucketError: if it cannot be put into the lake's `bucket`.
        EngineError: for a folder that holds no model.
    """
    texts = dict[str, str]()
    config: dict[str, Any] = opening["config"]
    template = config.get("template")
    if template is not None and template not in SHIPPED:
        texts["template"] = template_text(template) or ""
    if opening["kind"] == "scripted":
        return opening
    if opening["kind"] != "function":
        return opening | {"weights": sent_weights(Path(opening["model"]), bucket), "texts": texts}
    if opening["model"].rpartition(":")[0].endswith(".py"):
        texts["function"] = file_of(opening["model"])[1].decode("utf-8", "surrogateescape")
    return opening | {"texts": texts}


def sent_weights(folder: Path, bucket: str | None = None) -> Frame:
    """Return what another machine needs to find a model.

    One that no run made is put into the `bucket` of the lake, if that is in one.

    Raises:
        BucketError: if it cannot be put there.
        EngineError: for a folder that holds no model.
    """
    return {
        "host": socket.gethostname(),
        "path": str(folder.absolute()),
        "identity": folder_digest(folder),
        "bucket": _address(folder, bucket),
    }


def _address(folder: Path, bucket: str | None) -> str | None:
    """Return where a model can be fetched."""
    inside = lake_in_bucket(folder)
    if inside is None:
        return None if bucket is None else shared_model(bucket, model_files(folder))
    lake, url = inside
    # What a training still changes is not fetched.
    is_published = (folder / MANIFEST).is_file()
    return f"{url}/{folder.absolute().relative_to(lake).as_posix()}" if is_published else None


class NodeWeights:
    """The weights of one worker on the machine where it runs."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._closed = False
        self._held: HeldCopy | None = None

    def at_hand(self, frame: Frame) -> Frame:
        """Return the frame for the worker, once the model that it names is on this machine."""
        sent: Frame | None = frame.get("weights")
        texts: dict[str, str] = frame.get("texts") or {}
        kept = {name: value for name, value in frame.items() if name not in ("weights", "texts")}
        try:
            if sent is not None:
                kept["model"] = str(self._found(sent))
            return _with_texts(kept, texts)
        except (EngineError, OSError) as error:
            return kept | {"refused": f"on {socket.gethostname()}: {error}"}

    def close(self) -> None:
        """Let copies of weights be removed when others need the room, those to come included."""
        with self._changing:
            self._closed = True
            held, self._held = self._held, None
        if held is not None:
            held.release()

    def _hold(self, held: HeldCopy) -> None:
        """Hold a copy in place of the one before; none for a worker that has ended meanwhile."""
        with self._changing:
            unheld, self._held = (held, None) if self._closed else (self._held, held)
        if unheld is not None:
            unheld.release()

    def _found(self, sent: Frame) -> Path:
        """Return a folder of this machine with the weights' identity."""
        faults: list[str] = []
        for folder in self._places(sent):
            fault = _fault_of(folder, sent["identity"])
            if fault is None:
                return folder
            faults.append(fault)
        raise EngineError(_nowhere(sent, faults))

    def _places(self, sent: Frame) -> Iterator[Path]:
        """Yield where the weights may lie already; then fetch them, if they are in a bucket."""
        yield Path(sent["path"])
        snapshot = SNAPSHOT.fullmatch(sent["path"])
        if snapshot is not None:
            yield cache_folder() / snapshot[1]
        yield node_cache() / sent["identity"]
        if sent["bucket"] is not None:
            held = _fetched(sent["bucket"])
            self._hold(held)
            yield held.folder


def _fault_of(folder: Path, identity: str) -> str | None:
    """Return why a folder is not the model of an identity; None if it is."""
    try:
        if not folder.is_dir():
            return f"{folder} is not there"
        with remembered_hashes(node_cache()):
            found = folder_digest(folder)
    except (EngineError, OSError, ValueError) as error:
        # Most likely a part of a model that is being copied or removed, or another user's folder.
        return f"{folder} cannot be used ({error})"
    return None if found == identity else f"{folder} holds other weights (identity {found[:SHOWN]})"


def _fetched(address: str) -> HeldCopy:
    """Return a copy of weights in a bucket, which may be out of reach for a while."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return held_copy(address, node_cache())
        except OutOfReachError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def _nowhere(sent: Frame, faults: Sequence[str]) -> str:
    return (
        f"the weights {sent['identity'][:SHOWN]}, on {sent['host']} at {sent['path']}, are not "
        "here: put them on a disk that both machines see under this path, or keep the lake in a "
        f"bucket (--lake s3://...), or copy the folder to {node_cache() / sent['identity']} "
        f"({'; '.join(faults)})"
    )


def _with_texts(frame: Frame, texts: dict[str, str]) -> Frame:
    """Write down what travelled as text, and let the frame name those files."""
    if "template" in texts:
        path = _written(texts["template"], ".jinja")
        frame = frame | {"config": frame["config"] | {"template": str(path)}}
    if "function" in texts:
        name = str(frame["model"]).rpartition(":")[2]
        frame = frame | {"model": f"{_written(texts['function'], '.py')}:{name}"}
    return frame


def _written(text: str, suffix: str) -> Path:
    data = text.encode("utf-8", "surrogateescape")
    path = node_cache() / f"text-{hashlib.sha256(data).hexdigest()}{suffix}"
    make_folder(path.parent)
    write_file(path, data)
    return path
