# pyright: basic
"""How a policy's turns are trained: as they are sampled, with their thoughts if configured."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from ...policies.trainers.job import TurnForm
from ...stores.durable import make_folder
from ...stores.frames import as_arrow, as_frame
from ...stores.keys import Json
from ...stores.lake import RunReader
from ...stores.records import Demonstration, Pair, UnpairedAnswer
from ...stores.schemas import to_table
from ...stores.sealing import write_rows
from ..data.pairs import TrainedRow
from ..run.models import Served
from ..run.run import Run

IDS: Mapping[TrainedRow, tuple[str, ...]] = {
    Pair: ("chosen_id", "rejected_id"),
    Demonstration: ("candidate_id",),
    UnpairedAnswer: ("candidate_id",),
}


def turn_form(run: Run, policy: Served, thoughts: Path | None = None) -> TurnForm:
    """Return how the turns of a policy are rendered to train it."""
    return TurnForm(
        values=policy.engine.chat_template_kwargs,
        tags=policy.engine.think_tags,
        thought=run.config.training.thought,
        thoughts=thoughts,
    )


def thought_params(run: Run) -> dict[str, Json]:
    """Return the setting of thoughts if it can change a checkpoint."""
    thought = run.config.training.thought
    return {} if thought == "none" else {"thought": thought}


def thoughts_file(run: Run, row_type: TrainedRow, keys: Sequence[str], folder: Path) -> Path | None:
    """Leave the thoughts of the answers in rows in a file, where they are trained; else None."""
    if run.config.training.thought != "own":
        return None
    tables = [as_frame(run.store.table(row_type, key)) for key in keys]
    ids = pl.concat(
        [table.select(candidate_id=pl.col(name)) for table in tables for name in IDS[row_type]]
    )
    with closing(RunReader(run.store.folder)) as reader:
        found = reader.scan("candidates", columns=("candidate_id", "reasoning"))
        told = (
            found.drop_nulls("reasoning")
            .join(ids.unique().lazy(), on="candidate_id", how="semi")
            .unique("candidate_id")
            .sort("candidate_id")
            .select("candidate_id", "reasoning")
            .collect()
        )
    return write_rows(make_folder(folder), as_arrow(told))


def rows_file(folder: Path, row_type: TrainedRow, rows: pl.DataFrame) -> Path:
    """Leave rows to train on in a file of a folder, and return it."""
    return write_rows(make_folder(folder), to_table(row_type, as_arrow(rows)))
