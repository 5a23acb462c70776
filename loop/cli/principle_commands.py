"""`lpfloop config principles`: list the shipped ones, or generate more with a model."""

from pathlib import Path
from typing import Annotated

import typer

from .common import AsJson, Replace, exit_codes

COUNT = 10
"""How many principles a model writes by default: as in the paper."""


def principles(
    *,
    aspect: Annotated[str | None, typer.Option(help="Only this aspect.")] = None,
    writer: Annotated[
        str | None, typer.Option(help="A model that writes more of an aspect: folder or URL.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, max=100, help=f"How many it writes; default {COUNT}.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Root of all random draws; default: 0.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="What to write: a YAML file of all, the shipped ones first."
        ),
    ] = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """List principles for completions, or have more written."""
    import polars as pl

    from ...configs.schema import ConfigError
    from ...stores.outputs import output_file
    from ...stores.targets import file_target
    from ..data.principles import as_yaml, shipped_aspects, shipped_texts
    from ..lake.query.row_output import write_frame

    with exit_codes():
        aspects = shipped_aspects() if aspect is None else (aspect,)
        found = {name: list(shipped_texts(name)) for name in aspects}
        if aspect is None and (writer is not None or out is not None):
            raise ConfigError(f"an aspect is needed, with --aspect: {', '.join(aspects)}")
        if writer is None and (count is not None or seed is not None):
            raise ConfigError("--count and --seed need a model that writes, with --writer")
        if out is not None:
            file_target(out, force=force)
        written: list[str] = []
        if aspect is not None and writer is not None:
            written = _written(writer, aspect, found[aspect], count or COUNT, seed or 0)
        if aspect is not None and out is not None:
            output_file(out, as_yaml([*found[aspect], *written]).encode(), force=force)
        rows = [
            {"aspect": name, "by": by, "principle": text}
            for name, texts in found.items()
            for by, group in (("lpfloop", texts), (writer, written))
            for text in group
        ]
        write_frame(pl.DataFrame(rows), as_json=as_json)


def _written(model: str, aspect: str, examples: list[str], count: int, seed: int) -> list[str]:
    """Open the model, and generate principles."""
    import tempfile

    from ...configs.engines import EngineConfig
    from ...policies.workers.open import open_engine
    from ..run.models import located
    from ..stages.write_principles import generate

    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(
            located(model), EngineConfig(replicas=1), log=Path(folder) / "engine.log"
        )
        try:
            return generate(engine, aspect, examples, count, seed=seed)
        finally:
            engine.close()
