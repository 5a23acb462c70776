"""Evaluating a run's checkpoint on prompts of the user's own, beside its loop."""

import json
import os
from contextlib import closing
from pathlib import Path

import polars as pl

from ...configs.load import stored_config
from ...critics.checks import require_deciders
from ...stores.beside import benchmark_beside
from ...stores.frames import frame_rows
from ...stores.records import Checkpoint, Evaluation, Prompt
from ..data.prompts import notes_of, read_prompts, shape_of
from ..data.splits import HELD_OUT
from ..data.step_names import step_benchmark
from ..evaluation.assess import evaluate, require_matchable
from ..lake.imports import require_loop
from ..lake.query.model_names import LATEST, model_of, policy_of
from ..lake.query.runs import open_run
from ..run.handles import chunked, content_key
from ..run.reporter import Reporter
from ..run.stop import StopSignal
from .job import Job
from .loop import iteration
from .opening import opened
from .own_files import require_own_files


def evaluate_run(
    lake: Path, name: str, which: str | None, prompts: Path | None, reporter: Reporter
) -> list[Evaluation]:
    """Return the numbers of a run's checkpoints; with a prompts file, measure one checkpoint on it.

    `which` is an iteration's number, or a model's name such as `M_2` or `best`.

    Raises:
        NoSuchRunError: if the run, or the iteration's checkpoint, does not exist.
        InputError: if the prompts file cannot be used.
    """
    with closing(open_run(lake, name)) as run:
        policy = None if which is None else policy_of(run, which)
    benchmark = _own_benchmark(HELD_OUT, policy)
    if prompts is not None:
        benchmark = _measure(lake, name, policy, prompts, reporter)
    reader = open_run(lake, name)
    frame = reader.scan("evaluations").filter(pl.col("benchmark") == benchmark).collect()
    reader.close()
    found = [Evaluation(**row) for row in frame.to_dicts()]
    return [e for e in found if policy is None or e.iteration == policy.iteration]


def _own_benchmark(benchmark: str, policy: Checkpoint | None) -> str:
    """Return the benchmark under which a policy's numbers are, or those of all M_t."""
    step = None if policy is None else policy.at_step
    return benchmark if step is None else step_benchmark(benchmark, step)


def _measure(
    lake: Path, name: str, policy: Checkpoint | None, path: Path, reporter: Reporter
) -> str:
    reader = open_run(lake, name)
    require_loop(reader.journal)
    require_own_files(reader.journal)
    config = stored_config(json.loads(reader.journal.meta("config") or "{}"), (), os.environ)
    asked_of = policy or model_of(reader, LATEST)
    own = frame_rows(Prompt, reader.scan("prompts").collect())
    reader.close()
    asked = config.prompts
    notes = notes_of(asked)
    prompts = read_prompts(
        path, task=asked.task, shape=shape_of(asked), split="held-out", run=own, notes=notes
    )
    notes.require_few(asked.bad_share, "prompts.bad_share")
    require_matchable(config, prompts)
    require_deciders(check for prompt in prompts for check in prompt.checks)
    stem = _own_benchmark(path.stem, asked_of)
    benchmark = benchmark_beside(stem, content_key(prompts))
    job = Job(config=config, lake=lake, name=name)
    with opened(job, prompts, reporter, StopSignal()) as run:
        it = iteration(run, asked_of.iteration, asked_of)
        evaluate(it, chunked(prompts, config.prompts.chunk), benchmark=benchmark)
    return benchmark
