"""The command that runs a critic over rows from outside: `critique`."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import TINY, critic_overrides, model_folder
from .options import DefaultTask, Lake, Settings, preset_names, run_names
from .session import stop_signal, turn

if TYPE_CHECKING:
    from ...configs.load import Override
    from ...configs.schema import RunConfig
    from ...stores.records import Critique
    from ..daemon.job import Job


OWN = "own"


def critique(
    file: Annotated[Path, typer.Argument(help="JSONL, JSON list, CSV or Parquet.", metavar="FILE")],
    *,
    critic: Annotated[
        str | None,
        typer.Option(
            help="Critic: folder, hub name, URL, RUN:M_2, tiny, verifier or ./FILE.py:NAME.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            help="Preset or YAML file: settings of the critic.",
            autocompletion=preset_names,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--run", help="Name of the run that takes the critiques.", autocompletion=run_names
        ),
    ] = None,
    task: DefaultTask = None,
    settings: Settings = None,
    lake: Lake = DEFAULT_LAKE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: one line for each row.")
    ] = False,
) -> None:
    """Rate the answers in a file by a critic.

    The critiques are stored as a run, and printed in the order of the rows.
    """
    from ...stores.lake import run_folder
    from ..daemon.critique_run import critique_config, name_of
    from ..daemon.job import Job
    from ..lake.imports.answers_file import answers_file
    from ..run.terminal import say

    critic = model_folder(lake, "critic", critic)
    loaded = critique_config(_config(critic, config, settings or ()))
    answers = answers_file(file, task)
    run = name or name_of(answers, loaded)
    run_folder(lake, run)
    say(f"{answers.rows:,} rows of {file}; run {run}")
    job = Job(config=loaded, lake=lake, name=run, answers=answers)
    work_on_answers(job, as_json=as_json)


def work_on_answers(
    job: "Job", *, as_json: bool = False, lift_pause: bool = False, announce: int | None = None
) -> None:
    """Critique a job's answers, then print all critiques in the order of the rows."""
    from ..lake.query.critiqued_answers import as_json_line, as_text, critiques_in_order
    from ..lake.query.row_output import write_lines
    from ..lake.query.runs import open_run
    from ..run.terminal import say

    turn(job, stop_signal(job.config, lift_pause=lift_pause), announce)
    reader = open_run(job.lake, job.name)
    counts, width = Counter[str](), shutil.get_terminal_size().columns
    try:
        rows = _count_statuses(critiques_in_order(reader), counts)
        write_lines(as_json_line(row) if as_json else as_text(row, width) for row in rows)
    finally:
        reader.close()
    say(_describe_counts(counts))
    where = in_lake(job.lake)
    say(f"look at it: `lpfloop critiques {job.name}{where}`, `lpfloop show ID{where}`")


def _config(critic: str | None, config: str | None, settings: Sequence[str]) -> "RunConfig":
    """Return the configuration: `--config`, or the critic's default; then the critic, `--set`."""
    from ...configs.load import load_config
    from ...configs.schema import ConfigError
    from .options import refuse_secrets

    if critic is None and config is None:
        raise ConfigError(
            "--critic is missing: name tiny, a model folder, an OpenAI-compatible URL, verifier, "
            "or your own function as ./FILE.py:NAME"
        )
    refuse_secrets(settings)
    chosen = config or (TINY if critic == TINY else OWN)
    return load_config(chosen, None, [*_overrides(critic), *settings], os.environ)


def _overrides(critic: str | None) -> "list[Override]":
    """Return the settings of `--critic`: the model rates, also if `--config` has a verifier."""
    from ...configs.load import Override

    if critic is None:
        return []
    named = Override(source="--critic", path="critic.kind", value="feedback")
    return [named, *critic_overrides(critic)]


def _count_statuses(rows: "Iterable[Critique]", counts: Counter[str]) -> "Iterator[Critique]":
    for row in rows:
        counts[row.status] += 1
        yield row


def _describe_counts(counts: Counter[str]) -> str:
    """Return how many rows were scored, and how many not, by reason."""
    from ...stores.records import SCORED

    missing = [f"{count:,} {status}" for status, count in counts.most_common() if status != SCORED]
    scored = f"{counts[SCORED]:,} of {counts.total():,} scored"
    return f"{scored}; unscored: {', '.join(missing)}" if missing else scored
