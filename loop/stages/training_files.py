# pyright: basic
"""Files in a trainer's work folder: rows to train on, the thoughts of answers, prompts."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl
import pyarrow as pa

from ...policies.trainers.step_files import REFERENCE_ENDED, REFERENCE_REWARD, ReferenceReward
from ...stores.durable import make_folder
from ...stores.frames import as_arrow, as_frame
from ...stores.lake import RunReader
from ...stores.records import Demonstration, Pair, Prompt, UnpairedAnswer
from ...stores.schemas import to_table
from ...stores.verified import write_rows
from ..data.pairs import TrainedRow
from ..run.run import Run

IDS: Mapping[TrainedRow, tuple[str, ...]] = {
    Pair: ("chosen_id", "rejected_id"),
    Demonstration: ("candidate_id",),
    UnpairedAnswer: ("candidate_id",),
}
"""The columns with the answers in rows."""


def thoughts_file(run: Run, row_type: TrainedRow, keys: Sequence[str], folder: Path) -> Path | None:
    """Write the thoughts of the answers into a file if they are trained; else return None."""
    if run.config.training.thought != "own":
        return None
    tables = [as_frame(run.store.table(row_type, key)) for key in keys]
    ids = pl.concat(
        [table.select(candidate_id=pl.col(name)) for table in tables for name in IDS[row_type]]
    )
    with closing(RunReader(run.store.folder)) as reader:
        found = reader.scan("candidates", columns=("candidate_id", "reasoning"))
        rows = (
            found.drop_nulls("reasoning")
            .join(ids.unique().lazy(), on="candidate_id", how="semi")
            .unique("candidate_id")
            .sort("candidate_id")
            .select("candidate_id", "reasoning")
            .collect()
        )
    return write_rows(make_folder(folder), as_arrow(rows))


def rows_file(folder: Path, row_type: TrainedRow, rows: pl.DataFrame) -> Path:
    """Write rows to train on into a file of a folder, and return it."""
    return write_rows(make_folder(folder), to_table(row_type, as_arrow(rows)))


def prompts_file(
    folder: Path,
    prompts: Sequence[Prompt],
    references: Mapping[str, ReferenceReward] | None = None,
) -> Path:
    """Write the prompts into a Parquet file in a folder, and return it; equal prompts, equal file.

    With `references`, one for each prompt's id, it has the columns of these, too.
    """
    table: pa.Table = to_table(Prompt, prompts)
    if references is not None:
        found = [references[prompt.prompt_id] for prompt in prompts]
        table = table.append_column(REFERENCE_REWARD, pa.array([r.score for r in found]))
        table = table.append_column(REFERENCE_ENDED, pa.array([r.ended for r in found]))
    return write_rows(make_folder(folder), table)
