"""`lpfloop launch`: hand a run to a scheduler, or print what it would be handed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import Exit, Lake, exit_codes
from .run_commands import refuse_secrets, run

if TYPE_CHECKING:
    from ...configs.schema import RunConfig
    from ..daemon.launching import Allocation

FINAL = (Exit.BAD_INPUT, Exit.NOTHING_TO_TRAIN_ON, Exit.REGRESSED)
"""Exit codes of a run that another try gives again."""


def launch(
    where: Annotated[str, typer.Argument(help="The scheduler.", metavar="slurm|ray|k8s")],
    options: Annotated[
        list[str] | None, typer.Argument(help="Options for `lpfloop run`, after --.")
    ] = None,
    *,
    name: Annotated[str, typer.Option("--run", help="Name of the run.")],
    lake: Lake = DEFAULT_LAKE,
    nodes: Annotated[
        int, typer.Option(min=1, help="Nodes: the loop's, and those of its workers.")
    ] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 1,
    cpus: Annotated[int, typer.Option(min=1, help="CPU cores of each node.")] = 8,
    mem: Annotated[str, typer.Option(help="Memory of each node, in Slurm's notation.")] = "64G",
    time: Annotated[str, typer.Option(help="Slurm: time limit.")] = "24:00:00",
    partition: Annotated[str | None, typer.Option(help="Slurm: partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm: account to charge.")] = None,
    image: Annotated[str | None, typer.Option(help="Kubernetes: image that has lpfloop.")] = None,
    claim: Annotated[
        str | None, typer.Option(help="Kubernetes: volume claim of the lake, if that is a folder.")
    ] = None,
    storage: Annotated[
        str, typer.Option(help="Kubernetes: volume for the journal of a lake in a bucket.")
    ] = "100Gi",
    only_print: Annotated[
        bool, typer.Option("--print", help="Print what would be submitted.")
    ] = False,
) -> None:
    """Hand a run to a cluster: to Slurm, to Ray, or to Kubernetes.

    It stops in time, and starts again where the scheduler can.
    """
    from ...configs.schema import ConfigError
    from ..daemon.launching import Allocation
    from ..daemon.submitting import submit

    with exit_codes():
        words = list(options or ())
        refuse_secrets(words)
        allocation = Allocation(
            nodes=nodes,
            partition=partition,
            account=account,
            gpus=gpus,
            cpus=cpus,
            mem=mem,
            time=time,
        )
        match where:
            case "slurm":
                text = _for_slurm(name, lake, words, allocation)
            case "ray":
                text = _for_ray(name, lake, words, allocation)
            case "k8s":
                text = _for_k8s(name, lake, words, allocation, (image, claim, storage))
            case _:
                raise ConfigError(f"launch {where}: the schedulers are slurm, ray and k8s")
        typer.echo(text if only_print else submit(where, text), nl=False)


def _for_slurm(name: str, lake: Path, words: list[str], allocation: "Allocation") -> str:
    from ..daemon.launching import (
        launched_run,
        listening,
        placed_elsewhere,
        port_of,
        refuse_launcher,
        worker_nodes,
    )
    from ..daemon.slurm import Joining, batch_file, token_file

    if allocation.nodes == 1:
        plain = launched_run(name, lake, words)
        return batch_file(plain, lake, allocation, resumable=Exit.STOPPED)
    config = _configured(words)
    refuse_launcher(config, "slurm", "ray")
    workers = worker_nodes(config, allocation.nodes)
    token = token_file(lake, name)
    if workers:
        words += [*placed_elsewhere(config, "tcp"), *listening(config, name, str(token))]
    _warn_of(lake)
    joining = Joining(
        workers=workers,
        port=port_of(config, name),
        token=Path(config.workers.token_file or token).absolute(),
    )
    return batch_file(
        launched_run(name, lake, words),
        lake,
        allocation,
        joining if workers else None,
        resumable=Exit.STOPPED,
    )


def _for_ray(name: str, lake: Path, words: list[str], allocation: "Allocation") -> str:
    from ...configs.schema import ConfigError
    from ..daemon.launching import launched_run, placed_elsewhere, refuse_launcher
    from ..daemon.ray_job import ray_script

    config = _configured(words)
    if allocation.nodes > 1:
        raise ConfigError(f"--nodes {allocation.nodes}: a Ray cluster has its nodes; leave it out")
    refuse_launcher(config, "ray", "srun")
    words += placed_elsewhere(config, "ray")
    _warn_of(lake)
    return ray_script(launched_run(name, lake, words), config, allocation)


def _for_k8s(
    name: str,
    lake: Path,
    words: list[str],
    allocation: "Allocation",
    pods: tuple[str | None, str | None, str],
) -> str:
    from ...configs.schema import ConfigError
    from ...stores.address import bucket_of
    from ..daemon.k8s_manifests import SECRET, STATE, TOKEN, PodSettings, manifests
    from ..daemon.launching import (
        launched_run,
        listening,
        placed_elsewhere,
        port_of,
        refuse_launcher,
        worker_nodes,
    )

    image, claim, storage = pods
    if image is None:
        raise ConfigError("launch k8s: name the image that has lpfloop: --image REGISTRY/NAME:TAG")
    if (claim is None) is (bucket_of(lake) is None):
        raise ConfigError(
            "launch k8s: the pods must see the lake: give --lake s3://BUCKET/PREFIX, or --claim "
            "with the name of a volume claim and --lake with the folder where it is mounted"
        )
    if claim is not None and not lake.is_absolute():
        raise ConfigError(
            f"--lake {lake}: --claim {claim} is mounted there in every pod; name a whole path, "
            "such as /lake"
        )
    config = _configured(words)
    for launcher in ("srun", "ray"):
        refuse_launcher(config, "k8s", launcher)
    workers = worker_nodes(config, allocation.nodes)
    if workers:
        words += [*placed_elsewhere(config, "tcp"), *listening(config, name, f"{SECRET}/{TOKEN}")]
    settings = PodSettings(
        image=image,
        claim=claim,
        lake=str(lake),
        state=storage,
        workers=workers,
        port=port_of(config, name),
        resumable=Exit.STOPPED,
        final=FINAL,
    )
    return manifests(launched_run(name, lake, words, Path(STATE)), allocation, settings)


def _configured(words: Sequence[str]) -> "RunConfig":
    """Return the configuration that options of `run` mean, read as `run` reads them."""
    import inspect

    from ..daemon.run_request import RunOptions

    reader = typer.Typer(add_completion=False)
    reader.command("run")(run)
    command = typer.main.get_command(reader)
    given = command.make_context("lpfloop run", list(words)).params
    # What is downloaded is so where the run is.
    known = set(inspect.signature(RunOptions).parameters) - {"download"}
    return RunOptions(**{k: v for k, v in given.items() if k in known and v is not None}).resolved()


def _warn_of(lake: Path) -> None:
    from ..daemon.launching import unseen
    from ..run.terminal import say

    told = unseen(lake)
    if told is not None:
        say(told)
