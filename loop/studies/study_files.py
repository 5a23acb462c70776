"""The files that arms of studies read: in the lake's folder `studies`, the same for every seed."""

import json
from collections.abc import Mapping
from pathlib import Path

from ...stores.durable import make_folder, write_file
from .study import StudyArm

FOLDER = "studies"


def places_of(lake: Path, arm: StudyArm) -> Mapping[str, Path]:
    """Return where each file of an arm is, by the setting that names it."""
    folder = (lake / FOLDER).resolve()
    return {file.setting: folder / f"{file.name}.jsonl" for file in arm.files}


def write_files(lake: Path, arm: StudyArm) -> None:
    """Write the files of an arm, unless they are there as they should be."""
    for file, place in zip(arm.files, places_of(lake, arm).values(), strict=True):
        data = "".join(f"{json.dumps(row)}\n" for row in file.rows()).encode()
        if not (place.exists() and place.read_bytes() == data):
            make_folder(place.parent)
            write_file(place, data)
