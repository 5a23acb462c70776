"""The model of a process on another machine: found at the path on the head, or in the bucket.

The head describes the required model as `ModelSource`. On the other machine `at_hand` checks the
model against it before it is loaded.
"""

import socket
from dataclasses import replace
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from ...configs.own_function import names_function
from ...configs.schema import EngineConfig
from ...stores.address import OutOfReachError, lake_in_bucket, state_folder
from ...stores.bucket_objects import BroughtFolder, bring_folder
from ...stores.keys import digest
from ...stores.sealed import MANIFEST
from ..engines.chat_template import SHIPPED, template_digest
from ..engines.engine import EngineError
from .identity import folder_digest
from .model_process import LOAD_S, ModelSource, Opening

SHOWN = 16
"""Characters of an identity in messages."""


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
    config, template = opening.config, None
    if isinstance(config, EngineConfig) and (template := config.template) is not None:
        template = template if template in SHIPPED else str(Path(template).absolute())
        config = config.model_copy(update={"template": template})
    folder = Path(opening.model).absolute()
    source = model_source(folder, template)
    return replace(opening, model=str(folder), config=config, source=source)


def model_source(folder: Path, template: str | None) -> ModelSource:
    """Return the description of the model in a folder, used with a chat template.

    Raises:
        EngineError: for a folder that holds no model.
    """
    address, inside = None, lake_in_bucket(folder)
    # Only published models are in the bucket.
    if inside is not None and (folder / MANIFEST).is_file():
        lake, url = inside
        address = f"{url}/{folder.relative_to(lake).as_posix()}"
    return ModelSource(identity=_identity(folder, template), template=template, address=address)


def at_hand(model: str, source: ModelSource) -> tuple[str, BroughtFolder | None]:
    """Return the folder of the sought model on this machine; it may be downloaded first.

    A downloaded copy may be removed once it is released.

    Raises:
        EngineError: if the model is not here, is another one, or cannot be downloaded.
    """
    try:
        fault = _fault_of(Path(model), source)
        if fault is None:
            return model, None
        if source.address is not None:
            brought = _bring(source.address)
            fault = _fault_of(brought.folder, source)
            if fault is None:
                return str(brought.folder), brought
    except (EngineError, OSError) as error:
        fault = str(error)
    raise EngineError(
        f"on {socket.gethostname()}: {fault}; put the model that the head has on a disk that all "
        "machines see under the same path, or copy it there"
    )


def _identity(folder: Path, template: str | None) -> str:
    return digest({"model": folder_digest(folder), "template": template_digest(template)})


def _fault_of(folder: Path, source: ModelSource) -> str | None:
    """Return the reason why a folder is not the sought model; None if it is."""
    if not folder.is_dir():
        return f"{folder} is not there"
    try:
        found = _identity(folder, source.template)
    except (EngineError, OSError, ValueError) as error:
        return f"{folder} cannot be used ({error})"
    if found == source.identity:
        return None
    return (
        f"{folder} holds other weights, or another tokenizer or template, than the head's "
        f"(identity {found[:SHOWN]}, and not {source.identity[:SHOWN]})"
    )


@retry(
    retry=retry_if_exception_type(OutOfReachError),
    stop=stop_after_delay(LOAD_S / 2),
    wait=wait_exponential(max=30),
    reraise=True,
)
def _bring(address: str) -> BroughtFolder:
    return bring_folder(address, state_folder() / "weights")
