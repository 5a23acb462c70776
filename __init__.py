"""A loop that improves a language model by its own feedback, and keeps every sentence of evidence.

This module is the public Python interface. It imports nothing heavy: neither torch nor an engine,
and Polars only when a run is opened.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

# Polars, LanceDB and Ray read these when they are imported or first used. They are set here, before
# any of their threads runs: `setenv` next to a `getenv` of another thread can end the process.
for _name, _value in {
    # A bucket answers many requests at a time, while Polars opens as many objects as it has cores.
    "POLARS_NUM_READERS_PRE_INIT": "64",
    "POLARS_MAX_CONCURRENT_SCANS": "64",
    # LanceDB's log lines about its own maintenance are not for users.
    "LANCEDB_LOG": "error",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_name, _value)

if TYPE_CHECKING:
    import polars as pl

    from .configs.judging import People
    from .loop.daemon.child_run import Display
    from .loop.data.judged_candidates import Agreement
    from .loop.lake.derive.derivation import KeptTable
    from .loop.library.api_runs import Configuration, Place
    from .loop.library.read_only_run import ReadOnlyRun

__all__ = [
    "__version__",
    "evaluate",
    "import_files",
    "judge_check",
    "open",
    "rebuild_pairs",
    "recipes",
    "reparse",
    "resume",
    "run",
    "take_over",
    "train",
]

__version__ = "0.2.0"


def open(  # noqa: A001 -- `lpfloop.open` reads as what it does
    run: "Place | None" = None, *, lake: "Place | None" = None
) -> "ReadOnlyRun":
    """Open a run for reading, also while it works.

    `run` is the folder of a run, or its name in a lake (a folder, or `s3://BUCKET/PREFIX`; by
    default `$LPFLOOP_LAKE`, or `./lake`). Without it, the latest run is opened. The result is also
    a context manager.

    Raises:
        NoSuchRunError: if the run does not exist; the message lists the runs of the lake.
    """
    from .loop.library.read_only_run import open_folder_or_name

    return open_folder_or_name(run, lake)


def run(
    config: "Configuration | None" = None,
    *,
    recipe: str | None = None,
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
    """Run the loop to its end and return the run; an existing run of that name continues.

    The loop works in a child process, so any thread may call this. An interrupt stops it cleanly;
    `resume` continues.

    Args:
        config: a preset (`tiny`, `own`), a YAML file, a mapping with the content of such a file, or
            a `RunConfig`; default: the tiny world, or `own` if prompts or models are given.
        recipe: a recipe's name, or your function as `./FILE.py:NAME`.
        iterations: how many iterations to reach.
        name: the run's name; default: from configuration and recipe.
        lake: the folder that holds the runs, or `s3://BUCKET/PREFIX`.
        prompts: a file, a folder, or `hf:OWNER/NAME`.
        policy: a folder, a name of the hub, a URL, or `RUN:M_2`.
        critic: the same, for the critic.
        seed: the root of all random numbers.
        set: settings by their dotted paths, such as `{"training.dpo.beta": 0.2}`.
        fork: a run whose units are reused if they are still valid.
        download: whether to fetch what the hub's cache lacks.
        display: `auto` is live on a terminal, and lines on stderr elsewhere; `plain`; or `none`.

    Raises:
        ValueError: for bad input, with nothing written (`errors.ConfigError` and others).
        errors.Stopped: if it was stopped, or a budget ended.
        errors.NothingToTrainOn: if an iteration has too little to train on.
        errors.Regressed: if the policy got worse, or an alarm stopped the run.
        errors.FaultError: if a model, a training or a file failed.
        KeyboardInterrupt: after an interrupt, once the run has stopped.
    """
    from .loop.library.api_runs import lake_at, run_loop, run_options

    options = run_options(
        config,
        set,
        recipe=recipe,
        iterations=iterations,
        prompts=prompts,
        policy=policy,
        critic=critic,
        seed=seed,
        download=download,
    )
    return run_loop(options, lake_at(lake), name, fork, display)


def resume(
    run: "Place | ReadOnlyRun | None" = None,
    *,
    lake: "Place | None" = None,
    iterations: int | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 -- as the option is called
    retry_unscored: bool = False,
    display: "Display" = "auto",
) -> "ReadOnlyRun":
    """Continue a run to its end with its stored configuration, and return it.

    Without a name, the latest run continues. `set` raises a budget (`{"budget.tokens": N}`) or
    changes another setting that made no row; `retry_unscored` asks judges again whose replies did
    not parse. If a daemon works on the run, this only ends its pause and returns.

    Raises:
        ValueError: if the run does not exist or cannot continue with these settings.
        Exception: as `run`.
    """
    from .loop.library.api_runs import resume

    changes = {**({} if iterations is None else {"iterations": iterations}), **(set or {})}
    return resume(run, lake, changes, retry_unscored=retry_unscored, display=display)


def take_over(lake: "Place", run: str | None = None, *, force: bool = False) -> "ReadOnlyRun":
    """Take over a run in a bucket whose machine is lost, and return it.

    It starts from the latest journal in the bucket. Without a name, it takes the only run there
    that is not on this machine. `force` also takes a run whose machine may be alive. `resume`
    continues it.

    Raises:
        ValueError: if the bucket has no such run, or the run is on this machine already.
        RuntimeError: if another machine took it over at the same moment.
        OSError: if the bucket cannot be used.
    """
    from .loop.library.api_runs import take_over

    return take_over(lake, run, force=force)


def rebuild_pairs(
    run: "Place | ReadOnlyRun",
    *,
    rule: str,
    lake: "Place | None" = None,
    top_k: int | None = None,
    distinct: bool | None = None,
    people: "People | None" = None,
    agreement: "Agreement | None" = None,
    iteration: int | None = None,
    seed: int | None = None,
    table: str | None = None,
    derived: str | None = None,
    name: str | None = None,
) -> "KeptTable":
    """Make pairs or demonstrations from a run's stored rows under another rule, without a model.

    `derived` names critiques of `reparse`, to use instead of those of the run. Pass the result's
    `derived.name` to `run.pairs(derived=...)` and `train`.

    Raises:
        ValueError: if the run, rule or table does not exist, or the rows lack what the rule reads.
    """
    from .loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
    from .loop.library.api_runs import reading

    request = DerivationRequest(
        rule=rule,
        table=table,
        top_k=top_k,
        distinct=distinct,
        people=people,
        agreement=agreement,
        seed=seed,
        iteration=iteration,
        critiques=derived,
        name=name,
    )
    with reading(run, lake) as reader:
        return rebuild_pairs(reader, request)


def reparse(
    run: "Place | ReadOnlyRun", *, name: str | None = None, lake: "Place | None" = None
) -> "KeptTable":
    """Parse the stored critiques of a run again with the installed parser.

    Raises:
        ValueError: if the run does not exist, or is without critiques.
    """
    from .loop.lake.derive.reparse import reparse
    from .loop.library.api_runs import reading

    with reading(run, lake) as reader:
        return reparse(reader, name)


def train(
    run: "Place | ReadOnlyRun",
    *,
    derived: str | None = None,
    reward: bool = False,
    name: str | None = None,
    iteration: int | None = None,
    config: "Configuration | None" = None,
    prompts: "Place | None" = None,
    policy: "Place | None" = None,
    seed: int | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 -- as the option is called
    lake: "Place | None" = None,
    display: "Display" = "auto",
) -> "ReadOnlyRun":
    """Train a policy, or a reward model, on the table `derived` as a new run, and return that run.

    For an imported run give the `policy`; without `derived` it trains on its comparisons. The other
    arguments are those of `run`; a run of the loop keeps its settings and accepts only `set`.

    Raises:
        ValueError: if the run or table does not exist, or its rows cannot train a model.
        Exception: as `run`.
    """
    from .loop.daemon.training_job import TrainingRequest
    from .loop.library.api_runs import run_options, train_run

    options = run_options(config, set, prompts=prompts, policy=policy, seed=seed)
    request = TrainingRequest(
        derived=derived, iteration=iteration, reward=reward, name=name, options=options
    )
    return train_run(run, lake, request, display)


def evaluate(
    run: "Place | ReadOnlyRun",
    *,
    iteration: str | None = None,
    prompts: "Place | Mapping[str, Place] | None" = None,
    lake: "Place | None" = None,
) -> "pl.DataFrame":
    """Return the metrics of a run's models; with `prompts`, first measure a model on that file.

    `prompts` may map names of benchmarks to files. `iteration` is a model's name, such as `M_2`,
    `latest` or `best`.

    Raises:
        ValueError: if the run or model does not exist, or the file is invalid.
    """
    from pathlib import Path

    from .loop.daemon.evaluate_run import evaluate_run
    from .loop.daemon.logs import LogReporter
    from .loop.library.api_runs import run_of
    from .stores.frames import rows_frame
    from .stores.records import Evaluation

    root, name = run_of(run, lake)
    if isinstance(prompts, Mapping):
        files = {called: Path(place) for called, place in prompts.items()}
    else:
        files = {} if prompts is None else {Path(prompts).stem: Path(prompts)}
    found = evaluate_run(root, str(name), iteration, files, LogReporter())
    return rows_frame(Evaluation, found)


def import_files(
    files: "Place | Sequence[Place]",
    *,
    name: str,
    format: str | None = None,  # noqa: A002 -- as the option is called
    source: str | None = None,
    default_task: str | None = None,
    scale: str | None = None,
    failure: float | None = None,
    success: float | None = None,
    skip_bad: bool = False,
    bad_share: float = 0.5,
    lake: "Place | None" = None,
) -> "ReadOnlyRun":
    """Import prompts, answers, ratings and votes as a new run, and return that run.

    Raises:
        ValueError: if a file cannot be read in its format; then nothing is written.
    """
    from pathlib import Path

    from .loop.lake.imports.import_files import Import
    from .loop.lake.imports.import_files import import_files as import_all
    from .loop.library.read_only_run import lake_at, open_folder_or_name

    several = [files] if isinstance(files, str | Path) else files
    job = Import(
        lake=lake_at(lake),
        name=name,
        files=tuple(map(Path, several)),
        form=format,
        source=source,
        task=default_task,
        scale=scale,
        failure=failure,
        success=success,
        skip_bad=skip_bad,
        bad_share=bad_share,
    )
    import_all(job)
    return open_folder_or_name(job.name, job.lake)


def judge_check(
    *sources: "Place",
    format: str | None = None,  # noqa: A002 -- as the option is called
    human: Sequence[str] = (),
    by: str | None = None,
    second: str | None = None,
    model: str | None = None,
    plot: "Place | None" = None,
    force: bool = False,
    lake: "Place | None" = None,
) -> "pl.DataFrame":
    """Compare judges of files or runs with people: agreement, bias, variance, consistency.

    Returns the rows of `lpfloop judge-check`, one for each annotator and task type.

    Raises:
        ValueError: if the sources lack comparisons of two outputs, or the plot cannot be written.
    """
    from pathlib import Path

    from .loop.evaluation.judge_report import judge_report, plot_report
    from .loop.evaluation.judgment_sources import JudgmentReading
    from .loop.evaluation.plots import check_plot
    from .loop.lake.imports.import_formats import named_layout
    from .loop.library.api_runs import lake_at

    if plot is not None:
        check_plot(Path(plot), force=force)
    report = judge_report(
        list(map(str, sources)),
        lake_at(lake),
        JudgmentReading(human=human, by=by, layout=named_layout(format)),
        second=second,
        model=model,
    )
    if plot is not None:
        plot_report(Path(plot), report, force=force)
    return report.frame


def recipes() -> "pl.DataFrame":
    """Return the recipes: the values of `recipe` in `run`."""
    from .loop.recipes import recipe_table

    return recipe_table()
