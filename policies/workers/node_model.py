"""How a worker on another machine finds its model: at the path of the head, or in the bucket.

The head adds `sought` to the frame that opens a worker or reloads its weights. On the worker's
machine `NodeModel.at_hand` checks the model by that, and removes it from the frame.
"""

import socket
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from ...configs.own_function import names_function
from ...stores.address import lake_in_bucket, state_folder
from ...stores.brought_folder import BroughtFolder, bring_folder
from ...stores.bucket import OutOfReachError
from ...stores.keys import digest
from ...stores.sealed import MANIFEST
from ..engines.chat_template import SHIPPED, template_digest
from ..engines.engine import EngineError
from .identity import folder_digest
from .wire import Frame

PATIENCE_S = 600.0
"""Seconds for which a bucket may be out of reach before a worker is refused."""

PAUSE_S = 5.0
SHOWN = 16
"""Characters of an identity in messages."""


def opened_elsewhere(opening: Frame) -> Frame:
    """Return an opening frame for another machine: with whole paths, and what its model must be.

    Raises:
        EngineError: for a folder that holds no model.
    """
    if opening["kind"] == "scripted":
        return opening
    model, config = str(opening["model"]), dict[str, Any](opening["config"])
    if names_function(model):
        # The worker itself compares the function with its identity.
        file, _, name = model.rpartition(":")
        is_file = file.endswith(".py")
        return opening | {"model": f"{Path(file).absolute()}:{name}" if is_file else model}
    template: str | None = config.get("template")
    if template is not None and template not in SHIPPED:
        config["template"] = template = str(Path(template).absolute())
    return opening | {"config": config} | sought_model(Path(model), template)


def sought_model(folder: Path, template: str | None = None) -> Frame:
    """Return the fields of a frame that name a model for another machine.

    Raises:
        EngineError: for a folder that holds no model.
    """
    folder = folder.absolute()
    sought = {
        "identity": _identity(folder, template),
        "template": template,
        "address": _address(folder),
    }
    return {"model": str(folder), "sought": sought}


class NodeModel:
    """The model of one worker on the machine where the worker runs."""

    def __init__(self) -> None:
        self._brought: BroughtFolder | None = None

    def at_hand(self, frame: Frame) -> Frame:
        """Return the frame for the worker, once the model that it names is on this machine.

        If it is not, the frame has `refused`, which the worker reports. It may take minutes.
        """
        if "sought" not in frame:
            return frame
        kept = {name: value for name, value in frame.items() if name != "sought"}
        try:
            return kept | {"model": str(self._found(Path(frame["model"]), frame["sought"]))}
        except (EngineError, OSError) as error:
            return kept | {"refused": f"on {socket.gethostname()}: {error}"}

    def close(self) -> None:
        """Allow the copy of the model to be removed, if it was downloaded."""
        if self._brought is not None:
            self._brought.release()

    def _found(self, folder: Path, sought: Frame) -> Path:
        fault = _fault_of(folder, sought)
        if fault is not None and sought["address"] is not None:
            brought = _brought(sought["address"])
            self.close()
            self._brought, folder = brought, brought.folder
            fault = _fault_of(folder, sought)
        if fault is not None:
            raise EngineError(
                f"{fault}; put the model that the head has on a disk that all machines see under "
                "the same path, or copy it there"
            )
        return folder


def _identity(folder: Path, template: str | None) -> str:
    return digest({"model": folder_digest(folder), "template": template_digest(template)})


def _address(folder: Path) -> str | None:
    """Return where in a bucket a model can be fetched: one that was published there."""
    inside = lake_in_bucket(folder)
    if inside is None or not (folder / MANIFEST).is_file():
        return None
    lake, url = inside
    return f"{url}/{folder.relative_to(lake).as_posix()}"


def _fault_of(folder: Path, sought: Frame) -> str | None:
    """Return why a folder is not the model that is sought; None if it is."""
    if not folder.is_dir():
        return f"{folder} is not there"
    try:
        found = _identity(folder, sought["template"])
    except (EngineError, OSError, ValueError) as error:
        return f"{folder} cannot be used ({error})"
    if found == sought["identity"]:
        return None
    return (
        f"{folder} holds other weights, or another tokenizer or template, than the head's "
        f"(identity {found[:SHOWN]}, and not {sought['identity'][:SHOWN]})"
    )


@retry(
    retry=retry_if_exception_type(OutOfReachError),
    stop=stop_after_delay(PATIENCE_S),
    wait=wait_fixed(PAUSE_S),
    reraise=True,
)
def _brought(address: str) -> BroughtFolder:
    return bring_folder(address, state_folder() / "weights")
