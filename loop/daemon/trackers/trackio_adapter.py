# pyright: basic, reportMissingImports=false
"""Trackio: a local database; `trackio show` looks at it."""

from pathlib import Path

from .tracked_batch import TrackedBatch


def send(batch: TrackedBatch, _: Path) -> None:
    """Log the rows that the database does not have yet; its folder is set by TRACKIO_DIR."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    name = f"{batch.run}-{batch.identity[:8]}"
    known = {log.get("step") for log in SQLiteStorage.get_logs(batch.project, name)}
    run = trackio.init(project=batch.project, name=name, resume="allow", embed=False)
    for row in batch.rows:
        if row.place not in known:
            run.log({row.axis: row.x, **row.values}, step=row.place)
    run.finish()
