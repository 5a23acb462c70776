"""A model of a run: its folder, its training data, its figures next to M_0's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ....configs.load import stored_config
from ....configs.schema import RunConfig
from ....policies.trainers.training_fit import ADAPTER
from ....policies.workers.identity import TOKENIZER_FILES
from ....policies.workers.identity import check_folder as check_model
from ....stores.address import run_argument
from ....stores.lake import CHECKPOINTS, RunReader, removed_checkpoints, require_canaries
from ....stores.objects import objects_of
from ....stores.outputs import folder_target, output_copy
from ....stores.records import Checkpoint
from ....stores.schemas import plain
from ....stores.sealed import MANIFEST, files_below, size_of
from ...data.training_rows import in_use
from ...run.iteration import control_of
from ...run.models import is_endpoint, locate_model
from ..query.model_figures import RunResults, model_results
from ..query.model_names import checkpoints
from ..query.runs import NoSuchRunError

State = Literal["here", "bucket", "missing", "removed", "served"]
"""The places of a model's files; `served`: only an endpoint has them."""


TRAINED_ON = ("pairs", "demonstrations", "unpaired_answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model of a run: `place` is its folder, or the URL of its endpoint.

    `path` is the folder if it is there; `adapter` is the folder of the adapters that were merged
    into the weights, if adapters were trained. `control` is put before the user's message when the
    model is sampled; `metrics` are from its training; `results` are its figures and those of the
    run's first model. `bytes` is the size of its weights, if they are here or in a bucket, and
    `trained_on` the number of rows that it was trained on, by table and rule.
    """

    run: str
    name: str
    id: str
    iteration: int
    parent: str | None
    reference: str | None
    recipe: str
    steps: int
    place: str
    state: State
    bytes: int | None
    adapter: str | None
    control: str
    trained_on: Mapping[str, Mapping[str, int]]
    metrics: Mapping[str, float]
    results: RunResults

    @property
    def path(self) -> Path | None:
        """The folder that vLLM and transformers load, if it is on this machine."""
        return Path(self.place) if self.state == "here" else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields, for a JSON document."""
        fields = {**plain(self), "results": self.results.document}
        return {**fields, "path": self.place if self.state == "here" else None}


def published_model(run: RunReader, checkpoint: Checkpoint) -> PublishedModel:
    """Return the details of a checkpoint of a run; its files are looked at, not verified."""
    place, state = _place_of(run, checkpoint)
    names = {c.checkpoint_id: c.name for c in reversed(checkpoints(run))}
    return PublishedModel(
        run=run.folder.name,
        name=checkpoint.name,
        id=checkpoint.checkpoint_id,
        iteration=checkpoint.iteration,
        parent=_checkpoint_name(checkpoint.parent_id, names),
        reference=_checkpoint_name(checkpoint.reference_id, names),
        recipe=checkpoint.recipe,
        steps=checkpoint.steps,
        place=place,
        state=state,
        bytes=_size(run, checkpoint, place, state),
        adapter=_adapter(Path(place), state),
        control=control_of(configuration(run), checkpoint),
        trained_on=_trained_on(run, checkpoint),
        metrics=json.loads(checkpoint.metrics),
        results=model_results(run, checkpoint.iteration, checkpoint.at_step),
    )


def _trained_on(run: RunReader, checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Count the rows of its iteration that a model was trained on; empty for M_0."""
    found = dict[str, dict[str, int]]()
    for table in TRAINED_ON if checkpoint.parent_id is not None else ():
        rows = in_use(run.scan(table, iteration=checkpoint.iteration))
        counts = rows.group_by("rule").len().sort("rule").collect()
        if counts.height:
            found[table] = dict(counts.iter_rows())
    return found


def configuration(run: RunReader) -> RunConfig:
    """Return the configuration that is stored with a run, without secrets."""
    stored = json.loads(run.journal.meta("config") or "{}")
    return stored_config(stored, (), {}, to_run=False)


def verified_model(run: RunReader, checkpoint: Checkpoint) -> Path:
    """Return the folder of a model on this machine; every byte of a published one is verified.

    A model in a bucket is downloaded.

    Raises:
        DamagedError: if it is damaged.
        NoSuchRunError: if its weights were removed, are served elsewhere, or are not there.
    """
    place, state = _place_of(run, checkpoint)
    absent = {
        "served": f"it is served at {place}, so its weights are not here",
        "removed": (
            "its weights were removed by `lpfloop lake gc --keep`; `lpfloop model "
            f"{run_argument(run.folder)} --all` lists those that are left"
        ),
        "missing": (
            f"the run found it at {place}, and there is no such folder from here: put it back, or "
            "go to the folder in which the run was begun"
        ),
    }
    if state in absent:
        raise NoSuchRunError(f"{checkpoint.name} of run {run.folder.name}: {absent[state]}")
    if not _is_own(checkpoint):
        return Path(place)
    folder = objects_of(run.folder).local_folder(run.folder / checkpoint.path)
    require_canaries(run.journal, checkpoint.checkpoint_id)
    return folder


def _place_of(run: RunReader, checkpoint: Checkpoint) -> tuple[str, State]:
    """Return the folder of a model, or its address elsewhere, and whether it is there."""
    if not _is_own(checkpoint):
        place = locate_model(checkpoint.path)
        if is_endpoint(place):
            return place, "served"
        folder = Path(place).absolute()
        return str(folder), "here" if folder.is_dir() else "missing"
    folder = run.folder.absolute() / checkpoint.path
    if checkpoint.path in removed_checkpoints(run.journal):
        return str(folder), "removed"
    objects = objects_of(run.folder)
    if not objects.local:
        return objects.at(run.folder / checkpoint.path), "bucket"
    return str(folder), "here"


def _is_own(checkpoint: Checkpoint) -> bool:
    """Whether the files are in the run, not in a folder outside it."""
    return checkpoint.path == f"{CHECKPOINTS}/{checkpoint.checkpoint_id}"


def _checkpoint_name(identity: str | None, names: dict[str, str]) -> str | None:
    """Return a checkpoint's name in the run, if it has one there, and its id."""
    return f"{names[identity]} {identity}" if identity in names else identity


def _size(run: RunReader, checkpoint: Checkpoint, place: str, state: State) -> int | None:
    if state == "bucket":
        return sum(objects_of(run.folder).sizes(run.folder / checkpoint.path).values())
    files = [*Path(place).glob("*.safetensors")] if state == "here" else []
    return sum(map(size_of, files)) if files else None


def _adapter(folder: Path, state: State) -> str | None:
    found = folder / ADAPTER
    return str(found) if state == "here" and found.is_dir() else None


def _copied_names(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Return the names of the files that make up a model's folder, without code and pickles."""
    if _is_own(checkpoint):
        return [MANIFEST, *(name for name, _ in files_below(folder))]
    weights = check_model(folder)
    known = ("config.json", "generation_config.json", *TOKENIZER_FILES)
    others = [*(folder / name for name in known), *folder.glob("*.safetensors.index.json")]
    return [path.name for path in (*weights, *others) if path.is_file()]


def copy_model(run: RunReader, checkpoint: Checkpoint, target: Path, *, force: bool) -> None:
    """Copy a model's folder into a new one: whole, proved and private, or not at all.

    Raises:
        DamagedError: if the model, or the copy, is damaged.
        EngineError: if the folder that the run began with holds no model by now.
        NoSuchRunError: as `verified_model`.
        TargetError: if the target may not be written.
    """
    folder_target(target, force=force)
    folder = verified_model(run, checkpoint)
    names = _copied_names(checkpoint, folder)
    identity = checkpoint.checkpoint_id if _is_own(checkpoint) else None
    output_copy(folder, names, target, force=force, identity=identity)
