"""Each published file, imported into a lake of its own: what it becomes, and what is left out."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.imports.import_files import Import, import_files

from .study import Found, Study, counts

LLMBAR = ("llmbar_LLMBar__Natural.json", "llmbar_LLMBar__Adversarial__Neighbor.json")
JOINED: Mapping[str, Sequence[str]] = {
    "llmbar_judge_completions.jsonl": LLMBAR,
    "llmbar_judge_winners.csv": LLMBAR,
}
"""Files about rows of others, which are imported before them."""
NO_DATA = ("PROVENANCE.json",)
ENDINGS = (".jsonl", ".json", ".csv")


def _imports(folder: Path) -> Found:
    found = Found()
    for path in sorted(folder.iterdir()):
        if path.suffix in ENDINGS and path.name not in NO_DATA:
            found.figures[path.name] = _imported(folder, path.name)
    return found


def _imported(folder: Path, name: str) -> str:
    files = tuple(folder / file for file in (*JOINED.get(name, ()), name))
    with tempfile.TemporaryDirectory() as lake:
        try:
            done = import_files(Import(lake=Path(lake), name="published", files=files))
        except InputError as error:
            return f"refused: {str(error).replace(f'{folder}/', '')}"
    said = f"{done.read:,} rows of {done.form}: {counts(done.rows)}"
    unused = done.notes.unused.sentence()
    return f"{said}; {unused}" if unused else said


IMPORTS: Mapping[str, Study] = {
    "imports": Study(through="lpfloop import, each file in a lake of its own", find=_imports)
}
