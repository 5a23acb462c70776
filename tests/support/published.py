"""A run with three models whose files are real: M_0 as it is shipped, M_1 and M_2 published."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from told import HELD_OUT, write_run

from examples import CHECKPOINT, EVALUATION, SCORE
from lpfloop.stores.durable import publish_folder
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.objects import objects_of
from lpfloop.stores.records import Checkpoint, Evaluation, Prompt, Score

FIRST = "0f" * 32
ADAPTED = 2
"""The iteration whose model has adapters beside its weights."""
Measured = Mapping[str, Sequence[Sequence[float]]]
"""The values of a metric on the held-out prompts, for each of the models."""
SUCCESS: Measured = {
    "math_accuracy": [[0, 0, 0, 0, 0, 1], [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 1]],
    "mean_length": [[9] * 6, [8] * 6, [20] * 6],
}


def published_run(
    lake: Path, policy: Path, name: str = "r", measured: Measured = SUCCESS
) -> list[str]:
    """Write the run; return the ids of its models."""
    folder = run_folder(lake, name)
    rows = [replace(CHECKPOINT, checkpoint_id=FIRST, path=str(policy))]
    write_run(lake, name, {})
    for number in (1, 2):
        draft = folder / "work" / f"draft-{number}"
        shutil.copytree(policy, draft)
        (draft / "number.txt").write_text(str(number))
        if number == ADAPTED:
            (draft / "adapter").mkdir()
            (draft / "adapter" / "adapter_model.safetensors").write_bytes(b"adapters")
        identity = publish_folder(draft, folder / "checkpoints")
        objects_of(folder).publish(folder / "checkpoints" / identity)
        parent = rows[-1].checkpoint_id
        rows.append(
            replace(
                CHECKPOINT,
                checkpoint_id=identity,
                parent_id=parent,
                reference_id=parent,
                iteration=number,
                recipe="rlrf",
                path=f"checkpoints/{identity}",
                steps=number,
            )
        )
    made = {row.iteration: {Checkpoint: [row], **numbers(row, measured)} for row in rows}
    add_rows(folder, {**made, 0: {Prompt: HELD_OUT, **made[0]}})
    return [row.checkpoint_id for row in rows]


def numbers(row: Checkpoint, measured: Measured) -> dict[type, list]:
    """Return a model's scores and their means."""
    own = {metric: values[row.iteration] for metric, values in measured.items()}
    place = {"iteration": row.iteration, "checkpoint_id": row.checkpoint_id}
    return {
        Score: [
            replace(SCORE, **place, metric=metric, prompt_id=prompt.prompt_id, value=float(value))
            for metric, values in own.items()
            for prompt, value in zip(HELD_OUT, values, strict=False)
        ],
        Evaluation: [
            replace(
                EVALUATION,
                **place,
                metric=metric,
                value=sum(values) / len(values),
                stderr=0.1,
                n=len(values),
            )
            for metric, values in own.items()
            if values
        ],
    }


def add_rows(folder: Path, tables: Mapping[int, Mapping]) -> None:
    """Commit the rows of each iteration as one unit."""
    writer = RunWriter(Journal(folder))
    for iteration, rows in tables.items():
        unit = f"models-{iteration}"
        writer.journal.plan(iteration, "models", unit, lambda unit=unit: [unit])
        writer.commit(unit, rows, {})
    writer.close()
