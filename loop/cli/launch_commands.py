"""`lpfloop launch slurm`: submit a run to Slurm, or print its batch file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import Exit
from .options import Lake, refuse_secrets, with_options
from .run_commands import run

if TYPE_CHECKING:
    from ...configs.schema import RunConfig
    from ..daemon.slurm import Allocation


def launch(
    where: Annotated[str, typer.Argument(help="The scheduler.", metavar="slurm")],
    options: Annotated[
        list[str] | None, typer.Argument(help="Options for `lpfloop run`, after --.")
    ] = None,
    *,
    name: Annotated[str, typer.Option("--run", help="Name of the run.")],
    lake: Lake = DEFAULT_LAKE,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes; more than one are a Ray cluster.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 1,
    cpus: Annotated[int, typer.Option(min=1, help="CPU cores of each node.")] = 8,
    mem: Annotated[str, typer.Option(help="Memory of each node, in Slurm's notation.")] = "64G",
    time: Annotated[str, typer.Option(help="Time limit.")] = "24:00:00",
    partition: Annotated[str | None, typer.Option(help="Partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Account to charge.")] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print what would be submitted.")
    ] = False,
) -> None:
    """Hand a run to Slurm.

    It stops before the time limit; Slurm starts it again.
    """
    from ...configs.schema import ConfigError
    from ..daemon.slurm import Allocation, submit

    if where != "slurm":
        raise ConfigError(
            f"launch {where}: the scheduler is slurm; elsewhere start `lpfloop run` itself"
        )
    refuse_secrets(options or ())
    allocation = Allocation(
        nodes=nodes,
        partition=partition,
        account=account,
        gpus=gpus,
        cpus=cpus,
        mem=mem,
        time=time,
    )
    text = _batch_file(name, lake, options or [], allocation)
    typer.echo(text if only_print else submit(text), nl=False)


def _batch_file(name: str, lake: Path, words: list[str], allocation: "Allocation") -> str:
    from ..daemon.slurm import batch_file, placed_in_ray, sampling_nodes

    sampling = 0
    if allocation.nodes > 1:
        config = _read_config(words)
        sampling = sampling_nodes(config, allocation.nodes)
        words = [*words, *(placed_in_ray(config) if sampling else ())]
    return batch_file(name, lake, words, allocation, sampling=sampling, resumable=Exit.STOPPED)


def _read_config(words: Sequence[str]) -> "RunConfig":
    """Return the configuration that options of `run` mean, read as `run` reads them."""
    import inspect

    from ..daemon.run_request import RunOptions

    reader = typer.Typer(add_completion=False)
    reader.command("run")(with_options(run))
    command = typer.main.get_command(reader)
    given = command.make_context("lpfloop run", list(words)).params
    # Models and data are downloaded where the run is, not here.
    known = set(inspect.signature(RunOptions).parameters) - {"download"}
    return RunOptions(**{k: v for k, v in given.items() if k in known and v is not None}).resolve()
