"""Each published file, imported into a separate lake: the resulting rows, and the skipped ones."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.imports.import_files import Import, import_files

from .study import Found, Study, counts

LAYOUTS: Mapping[str, str] = {
    "finegrained": "fine_grained",
    "gsm8k_model": "solutions",
    "justeval": "just_eval",
    "llmbar_LLMBar": "llmbar",
    "mtbench_question": "mt_bench",
    "pandalm": "pandalm",
    "prometheus": "prometheus",
    "qwen_maj8": "solutions",
    "wildbench": "wildbench",
}
"""Files that a function of examples/imports reads, by the beginning of their names."""
EXAMPLES = Path(__file__).parents[2] / "examples" / "imports"
SCALES = {"just_eval": "1-5", "prometheus": "1-5", "wildbench": "1-10"}
NO_DATA = ("PROVENANCE.json",)
ENDINGS = (".jsonl", ".json", ".csv")


def _imports(folder: Path) -> Found:
    found = Found()
    for path in sorted(folder.iterdir()):
        if path.suffix in ENDINGS and path.name not in NO_DATA:
            found.figures[path.name] = _imported(folder, path.name)
    return found


def _imported(folder: Path, name: str) -> str:
    own = next((own for start, own in LAYOUTS.items() if name.startswith(start)), None)
    form = None if own is None else f"{EXAMPLES}/{own}.py:rows"
    scale = None if own is None else SCALES.get(own)
    with tempfile.TemporaryDirectory() as lake:
        try:
            done = import_files(
                Import(
                    lake=Path(lake),
                    name="published",
                    files=(folder / name,),
                    form=form,
                    scale=scale,
                )
            )
        except InputError as error:
            return f"refused: {str(error).replace(f'{folder}/', '')}"
    said = f"{done.read:,} rows of {done.form}: {counts(done.rows)}"
    return "; ".join([said, *done.notes.sentences()])


IMPORTS: Mapping[str, Study] = {
    "imports": Study(through="lpfloop import, each file in a lake of its own", find=_imports)
}
