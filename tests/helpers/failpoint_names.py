"""Names of lpfloop's failpoints (arguments of `stores.failpoints.reach`), and their locations."""

from collections.abc import Mapping
from types import MappingProxyType

_STORE = {
    "create": "creating the temporary file of {}",
    "write": "writing the bytes of {}",
    "sync": "fsync of {}",
    "rename": "moving {} to its place",
    "sync_folder": "fsync of the folder that holds {}",
}
# Operations of durable.py for each published thing; each has `.before` and `.after`.
_DURABLE = {
    "part": ("a part", _STORE),
    "stage_file": ("a file with rows of a stage", _STORE),
    "superseded": ("a file with rows that no unit refers to", {"unlink": "removing {}"}),
    "file": ("a small file", _STORE),
    "mended": ("a journal's file in the place of a damaged one", _STORE),
    "manifest": (
        "the manifest of a published folder",
        {name: _STORE[name] for name in ("create", "write", "sync", "rename")},
    ),
    "published": (
        "a published folder",
        {
            "sync": "fsync of a file of {}",
            "sync_folder": "fsync of a folder of {}, or of the one it is moved to",
            "rename": _STORE["rename"],
        },
    ),
    "link": (
        "a file or folder of another run",
        {
            "link": "giving {} a second name",
            "copytree": "giving the files of {} a second name each",
            "sync_folder": _STORE["sync_folder"],
        },
    ),
    "draft": (
        "a file that another library wrote",
        {name: _STORE[name] for name in ("sync", "rename", "sync_folder")},
    ),
    "folder": (
        "a new folder",
        {"mkdir": "making {}", "sync_folder": _STORE["sync_folder"]},
    ),
    "temporary": (
        "a temporary file or folder, left over or moved out of its place",
        {"unlink": "removing {} (a file)", "rmtree": "removing {} (a folder)"},
    ),
    "quarantine": (
        "a damaged file or folder",
        {"rename": "moving {} aside", "sync_folder": "fsync of a folder that held or holds {}"},
    ),
    "retired": (
        "a file or folder to be removed",
        {
            "rename": "taking {} out of its place",
            "sync_folder": _STORE["sync_folder"],
        },
    ),
}
_STEPS = {
    "journal.create": "making the journal of a new run",
    "journal.epoch": "the SQLite COMMIT that makes this process the run's holder",
    "journal.plan": "the SQLite COMMIT of a stage's plan",
    "journal.commit": "the SQLite COMMIT of a group of units",
    "journal.amend": "the SQLite COMMIT that replaces a unit's rows by those of another key",
    "journal.seal": "the SQLite COMMIT that lets a stage file take the place of blobs",
    "journal.lose": "the SQLite COMMIT that makes a damaged unit pending again",
    "journal.redo": "the SQLite COMMIT that forgets what was made from damaged units",
    "journal.forget": "the SQLite COMMIT that forgets what was made before people rated it",
    "journal.reserve": "the SQLite COMMIT of what a unit, or a slice of it, may spend",
    "journal.keep": "the SQLite COMMIT of a slice's replies, before its unit is whole",
    "journal.abandon": "the SQLite COMMIT of what a dead process had reserved",
    "journal.add_seconds": "the SQLite COMMIT of a stage's wall time",
    "journal.record": "the SQLite COMMIT of an event",
    "journal.set_meta": "the SQLite COMMIT of facts about the run",
    "object.put": "sending an object to the bucket and asking whether it arrived",
    "object.copy": "copying an object within the bucket",
    "object.delete": "removing an object of the bucket",
    "head.take": "taking the next epoch of a run in a bucket",
    "snapshot": "sending a snapshot of the journal to the bucket",
    "lake.commit": "committing a group of units",
}
_PLACES = {
    "lake.recover": "before what interrupted writes left is swept, at the start",
    "lake.seal": "before rows of a stage are moved into a file",
    "stage.begin": "before a stage is planned",
    "stage.planned": "after a stage was planned, before its first unit",
    "stage.unit": "when a unit's result is known, before it is handed to the store",
    "stage.end": "when all units of a stage are done",
    "checkpoint.trained": "when a trainer has ended, before its model is published",
    "checkpoint.published": "when a model is published, before the journal refers to it",
    "checkpoint.committed": "when the journal refers to a new model",
    "trainer.checkpoint.saved": "in the trainer: a checkpoint is written, not sealed",
    "trainer.checkpoint.sealed": "in the trainer: a checkpoint has its manifest",
    "trainer.step.written": "in the trainer: an online method's step is written, not yet announced",
    "trainer.step.saved": "in the trainer: a policy on the way is saved, its step not announced",
    "trainer.model.saved": "in the trainer: the final model is written",
    "trainer.result": "in the trainer: before the result is written",
    "training.copied": "when the files of a checkpoint are in the bucket, before its list",
    "takeover.taken": "when a takeover has the next epoch, and no journal yet",
    "takeover.fetched": "when a takeover has fetched the journal, before it has its name",
    "control.command": "when a command has come by the control socket, before it takes effect",
}


def _declared() -> dict[str, str]:
    around = dict(_STEPS)
    for purpose, (noun, operations) in _DURABLE.items():
        for name, text in operations.items():
            around[f"{purpose}.{name}"] = text.format(noun)
    return {
        **{
            f"{name}.{side}": f"{side} {text}"
            for name, text in around.items()
            for side in ("before", "after")
        },
        **_PLACES,
    }


FAILPOINTS: Mapping[str, str] = MappingProxyType(_declared())
"""Every failpoint's name and location."""
