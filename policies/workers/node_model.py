"""The model of a process on another machine: found at the path on the head, or in the bucket.

The head describes the required model in `sought`. On the other machine `NodeModel.at_hand` checks
the model against it before it is loaded.
"""

import socket
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from ...configs.own_function import names_function
from ...configs.schema import EngineConfig
from ...stores.address import lake_in_bucket, state_folder
from ...stores.brought_folder import BroughtFolder, bring_folder
from ...stores.bucket import OutOfReachError
from ...stores.keys import digest
from ...stores.sealed import MANIFEST
from ..engines.chat_template import SHIPPED, template_digest
from ..engines.engine import EngineError
from .identity import folder_digest
from .work import LOAD_S, Opening, Order, SoughtModel

SHOWN = 16
"""Characters of an identity in messages."""

Loading = TypeVar("Loading", bound=Opening | Order)


def opened_elsewhere(opening: Opening) -> Opening:
    """Return an opening for another machine: with absolute paths, and the model's identity.

    Raises:
        EngineError: for a folder that holds no model.
    """
    if opening.kind == "scripted":
        return opening
    if names_function(opening.model):
        # The process itself compares the function with its identity.
        file, _, name = opening.model.rpartition(":")
        whole = f"{Path(file).absolute()}:{name}" if file.endswith(".py") else opening.model
        return replace(opening, model=whole)
    config = opening.config
    if isinstance(config, EngineConfig) and config.template not in (None, *SHIPPED):
        whole = str(Path(config.template).absolute())
        opening = replace(opening, config=config.model_copy(update={"template": whole}))
    return _seeking(opening, Path(opening.model))


def moved(opening: Opening, folder: Path) -> Opening:
    """Return the opening for the same model in another folder.

    Raises:
        EngineError: if the process is on another machine, and the folder holds no model.
    """
    if opening.sought is None:
        return replace(opening, model=str(folder))
    return _seeking(opening, folder)


def _seeking(opening: Opening, folder: Path) -> Opening:
    folder, config = folder.absolute(), opening.config
    template = config.template if isinstance(config, EngineConfig) else None
    sought = SoughtModel(
        identity=_identity(folder, template), template=template, address=_address(folder)
    )
    return replace(opening, model=str(folder), sought=sought)


class NodeModel:
    """The model of one process, on the machine of that process."""

    def __init__(self) -> None:
        self._brought: BroughtFolder | None = None

    def at_hand(self, frame: Loading) -> Loading:
        """Return the frame with the folder of its model on this machine; it may take minutes.

        Raises:
            EngineError: if the model is not here, is another one, or cannot be downloaded.
        """
        if frame.sought is None:
            return frame
        try:
            folder = self._found(Path(frame.model), frame.sought)
        except (EngineError, OSError) as error:
            raise EngineError(f"on {socket.gethostname()}: {error}") from error
        return replace(frame, model=str(folder))

    def close(self) -> None:
        """Allow the copy of the model to be removed, if it was downloaded."""
        if self._brought is not None:
            self._brought.release()

    def _found(self, folder: Path, sought: SoughtModel) -> Path:
        fault = _fault_of(folder, sought)
        if fault is not None and sought.address is not None:
            brought = _brought(sought.address)
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
    """Return the address in a bucket from which a model can be downloaded, if it was published."""
    inside = lake_in_bucket(folder)
    if inside is None or not (folder / MANIFEST).is_file():
        return None
    lake, url = inside
    return f"{url}/{folder.relative_to(lake).as_posix()}"


def _fault_of(folder: Path, sought: SoughtModel) -> str | None:
    """Return the reason why a folder is not the sought model; None if it is."""
    if not folder.is_dir():
        return f"{folder} is not there"
    try:
        found = _identity(folder, sought.template)
    except (EngineError, OSError, ValueError) as error:
        return f"{folder} cannot be used ({error})"
    if found == sought.identity:
        return None
    return (
        f"{folder} holds other weights, or another tokenizer or template, than the head's "
        f"(identity {found[:SHOWN]}, and not {sought.identity[:SHOWN]})"
    )


@retry(
    retry=retry_if_exception_type(OutOfReachError),
    stop=stop_after_delay(LOAD_S / 2),
    wait=wait_exponential(max=30),
    reraise=True,
)
def _brought(address: str) -> BroughtFolder:
    return bring_folder(address, state_folder() / "weights")
