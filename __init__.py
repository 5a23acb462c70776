"""A loop that improves a language model by its own feedback, and keeps every sentence of evidence.

This module is the public Python interface. It imports nothing heavy: neither torch nor an engine,
and Polars only when a run is opened.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .loop.library.read_only_run import ReadOnlyRun
    from .loop.library.working import Configuration, Display, Place

__all__ = ["__version__", "open", "resume", "run"]

__version__ = "0.1.0"


def open(  # noqa: A001 -- `lpfloop.open` reads as what it does
    run: "Place | None" = None, *, lake: "Place | None" = None
) -> "ReadOnlyRun":
    """Open a run for reading, also while it is written.

    `run` is the folder of a run, or its name in a lake (a folder, or `s3://BUCKET/PREFIX`; by
    default `$LPFLOOP_LAKE`, or `./lake`); without one, the run written last. The result can stand
    in a `with` statement.

    Raises:
        NoSuchRunError: if there is no such run, naming those that there are.
    """
    from .loop.library.read_only_run import open_folder_or_name

    return open_folder_or_name(run, lake)


def run(
    config: "Configuration | None" = None,
    *,
    variant: str | None = None,
    iterations: int | None = None,
    name: str | None = None,
    lake: "Place | None" = None,
    prompts: "Place | None" = None,
    policy: "Place | None" = None,
    critic: "Place | None" = None,
    seed: int | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 -- as the option is called
    fork: str | None = None,
    download: bool = False,
    display: "Display" = "auto",
) -> "ReadOnlyRun":
    """Run the loop to its end, and return the run; with the same name again, continue it.

    It works in a child process, from any thread. An interrupt stops it cleanly, and `resume` goes
    on where it stopped.

    Args:
        config: a preset (`tiny`, `own`), a YAML file, what such a file would hold, or a
            `RunConfig`; default: the tiny world, or `own` where prompts or models are named.
        variant: the recipe: a name, or a function of your own as `./FILE.py:NAME`.
        iterations: how many iterations to reach.
        name: the run's name; default: from configuration and recipe.
        lake: the folder that holds the runs, or `s3://BUCKET/PREFIX`.
        prompts: a file, a folder, or `hf:OWNER/NAME`.
        policy: a folder, a name of the hub, a URL, or `RUN:M_2`.
        critic: the same, for the critic.
        seed: the root of all random numbers.
        set: settings by their dotted paths, such as `{"training.dpo.beta": 0.2}`.
        fork: a run whose units are re-used where they are still valid.
        download: whether to fetch what the hub's cache lacks.
        display: `auto` is live on a terminal, and lines on stderr elsewhere; `plain`; or `none`.

    Raises:
        ValueError: for bad input, with nothing written (`errors.ConfigError` and others).
        errors.Stopped: if somebody stopped it, or a budget ended.
        errors.NothingToTrainOn: if an iteration has too little to train on.
        errors.Regressed: if the policy got worse, or an alarm stopped the run.
        errors.FaultError: if a model, a training or a file failed.
        KeyboardInterrupt: if it was interrupted, when it has stopped.
    """
    from .loop.library.working import RunOptions, lake_at, run_loop, run_options

    options = RunOptions(
        variant=variant,
        iterations=iterations,
        prompts=None if prompts is None else str(prompts),
        policy=None if policy is None else str(policy),
        critic=None if critic is None else str(critic),
        seed=seed,
        download=download,
    )
    wanted = run_options(config, set, options)
    return run_loop(wanted, lake_at(lake), name, fork, display)


def resume(
    run: "Place | ReadOnlyRun | None" = None,
    *,
    lake: "Place | None" = None,
    iterations: int | None = None,
    max_tokens: int | None = None,
    max_judge_calls: int | None = None,
    max_money: float | None = None,
    max_hours: float | None = None,
    max_disk_gib: float | None = None,
    on_alarm: str | None = None,
    retry_unscored: bool = False,
    display: "Display" = "auto",
) -> "ReadOnlyRun":
    """Continue a run to its end with its stored configuration, and return it.

    Without a name it is the run written last. Limits that are given are raised; `retry_unscored`
    asks again where replies could not be read. Where a daemon works on the run, its pause is lifted
    and nothing is waited for.

    Raises:
        ValueError: if it cannot be continued so, or there is no such run.
        Exception: as `run`.
    """
    from .loop.library.working import resume

    limits = {
        "iterations": iterations,
        "max_tokens": max_tokens,
        "max_judge_calls": max_judge_calls,
        "max_money": max_money,
        "max_hours": max_hours,
        "max_disk_gib": max_disk_gib,
        "on_alarm": on_alarm,
    }
    return resume(run, lake, limits, retry_unscored=retry_unscored, display=display)
