"""Measuring what a run left: its checkpoints on the user's prompts, its critic by the verifier.

A checkpoint is measured as a side eval.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from ...configs.load import stored_config
from ...configs.schema import RunConfig
from ...critics.checks import require_deciders
from ...critics.verify import Verifier, own_verifier
from ...stores.frames import frame_rows
from ...stores.lake import RunReader
from ...stores.records import Checkpoint, Evaluation, Prompt
from ...stores.side_evals import side_eval_name
from ..data.files import InputError
from ..data.prompts import notes_of, read_prompts, shape_of
from ..data.row_notes import BAD_SHARE
from ..data.splits import HELD_OUT
from ..data.stage_names import step_benchmark
from ..evaluation.assess import evaluate
from ..evaluation.assessable import require_matchable
from ..evaluation.critic_answers import AnswerDraw, CheckBy, judged_groups
from ..evaluation.critic_check import AnswerGroup
from ..lake.imports import require_loop
from ..lake.query.forms import FormError
from ..lake.query.model_names import LATEST, model_of, policy_of
from ..lake.query.policy_figures import measured_on
from ..lake.query.runs import open_run
from ..lake.trace.published_model import configuration
from ..run.handles import chunk_prompts, content_key
from ..run.reporter import Reporter
from ..run.stop import StopSignal
from .iterations import iteration
from .job import Job, require_own_files
from .opening import open_job

_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*)=(.+)", re.DOTALL)


def evaluate_run(
    lake: Path, name: str, which: str | None, files: Mapping[str, Path], reporter: Reporter
) -> list[Evaluation]:
    """Return the numbers of a run's checkpoints; with files of prompts, measure one on each.

    `which` is an iteration's number, or a model's name such as `M_2` or `best`. Each file is a
    benchmark under its name.

    Raises:
        NoSuchRunError: if the run, or the iteration's checkpoint, does not exist.
        InputError: if a file of prompts cannot be used.
    """
    with closing(open_run(lake, name)) as run:
        policy = None if which is None else policy_of(run, which)
    measured = _measure(lake, name, policy, files, reporter) if files else ()
    step = None if policy is None else policy.at_step
    measure = pl.col("benchmark").is_in(measured) if files else measured_on(HELD_OUT, step)
    if policy is not None:
        measure &= pl.col("iteration") == policy.iteration
    with closing(open_run(lake, name)) as run:
        return frame_rows(Evaluation, run.scan("evaluations").filter(measure).collect())


def files_of(places: Iterable[str]) -> dict[str, Path]:
    """Return the files of prompts by their names: `NAME=FILE`, or a file, which names itself.

    Raises:
        InputError: if two have one name.
    """
    found: dict[str, Path] = {}
    for place in places:
        given = None if Path(place).exists() else _NAMED.fullmatch(place)
        name, path = (
            (Path(place).stem, Path(place)) if given is None else (given[1], Path(given[2]))
        )
        if name in found:
            raise InputError(f"{path}: {name!r} is {found[name]} already; name it: NAME={path}")
        found[name] = path
    return found


def _measure(
    lake: Path,
    name: str,
    policy: Checkpoint | None,
    files: Mapping[str, Path],
    reporter: Reporter,
) -> list[str]:
    """Measure a checkpoint on each file, and return their benchmarks."""
    with closing(open_run(lake, name)) as reader:
        require_loop(reader.journal)
        require_own_files(reader.journal)
        config = stored_config(json.loads(reader.journal.meta("config") or "{}"), (), os.environ)
        asked_of = policy or model_of(reader, LATEST)
        own = frame_rows(Prompt, reader.scan("prompts").collect())
    sets, every = dict[str, list[Prompt]](), list[Prompt]()
    for called, path in files.items():
        prompts = _read(config, path, [*own, *every])
        sets[side_eval_name(called, content_key(prompts))] = prompts
        every += prompts
    job, step = Job(config=config, lake=lake, name=name), asked_of.at_step
    with open_job(job, every, reporter, StopSignal()) as run:
        it = iteration(run, asked_of.iteration, asked_of)
        for benchmark, prompts in sets.items():
            chunks = chunk_prompts(prompts, config.prompts.chunk)
            evaluate(it, chunks, benchmark=benchmark, step=step)
    return [step_benchmark(benchmark, step) for benchmark in sets]


def _read(config: RunConfig, path: Path, taken: Sequence[Prompt]) -> list[Prompt]:
    """Read a file of prompts, none of which may have the id of one in `taken`."""
    settings = config.prompts
    notes = notes_of(settings)
    prompts = read_prompts(
        path,
        task=settings.task,
        shape=shape_of(settings),
        split="held-out",
        run=taken,
        notes=notes,
    )
    notes.require_few(BAD_SHARE, "prompts.skip_bad")
    require_matchable(config, prompts)
    require_deciders(check for prompt in prompts for check in prompt.checks)
    return prompts


def named_groups(words: str) -> tuple[CheckBy, ...]:
    """Return the groups of a list with commas.

    Raises:
        FormError: if a group does not exist.
    """
    known = [name.value for name in CheckBy]
    groups = [word.strip() for word in words.split(",") if word.strip()]
    for word in groups:
        if word not in known:
            raise FormError(f"--by {word}: no such group; the groups are {', '.join(known)}")
    return tuple(CheckBy(word) for word in dict.fromkeys(groups))


def run_groups(run: RunReader, draw: AnswerDraw) -> Sequence[AnswerGroup]:
    """Return the judged answers of a run, verified as in the run.

    Raises:
        ConfigError: if a file of the user's is not as it was.
    """
    require_own_files(run.journal)
    config = configuration(run)
    own, matches = own_verifier(config.critic.verifier), config.facts.judge == "sentence_match"
    workers = max(2, os.cpu_count() or 2)
    with Verifier(own, sentence_match=matches, workers=workers) as verifier:
        return judged_groups(run, draw, verifier)
