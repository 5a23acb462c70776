"""Critiquing the rows of a file: a separate run, without a policy and without a loop.

Its configuration is the critic's alone, so that other settings cannot make it another run. Existing
critiques are re-used, whatever ended the run before.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...configs.engines import EngineConfig
from ...configs.load import semantic
from ...configs.schema import (
    ConfigError,
    CriticConfig,
    PolicyConfig,
    PromptsConfig,
    RunConfig,
)
from ...critics.feedback import FeedbackCritic
from ...policies.engines.engine import EngineError
from ...policies.workers.identity import model_digest
from ...stores.committer import if_there_is_room
from ...stores.keys import digest
from ...stores.records import Candidate, Prompt
from ...stores.schemas import RowsByType
from ..data.prompts import TINY
from ..lake.imports.answers_file import AnswersFile
from ..lake.imports.import_files import IMPORT
from ..run.handles import Planned
from ..run.models import NO_MODEL, is_endpoint, locate_model
from ..run.reporter import Reporter, UnitStats
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from ..run.stop import StopSignal
from ..stages.critique import CRITIQUE, critique_stage
from .job import Job, own_digests, own_files
from .loop import work_until_whole
from .opening import open_job

KEEP_ANSWERS = Verb("answers")
CRITIQUES = f"critique:{IMPORT}"
UNOPENED = EngineConfig(kind="scripted")
"""The engine of a model that is never called."""


def critique_config(config: RunConfig) -> RunConfig:
    """Return the part of a configuration on which critiques depend, and the limits of a run."""
    critic = config.critic
    if critic.kind == "verifier":
        critic = critic.model_copy(update={"model": NO_MODEL, "engine": UNOPENED})
    return RunConfig(
        iterations=0,
        seed=config.seed,
        injection_guard=config.injection_guard,
        critic=critic,
        # Not read. Older runs contain it, from when this was the default.
        prompts=PromptsConfig(source=TINY, chunk=config.prompts.chunk),
        policy=PolicyConfig(engine=UNOPENED),
        shutdown_timeout_s=config.shutdown_timeout_s,
        budget=config.budget,
        prices=config.prices,
    )


def name_of(answers: AnswersFile, config: RunConfig) -> str:
    """Return the name of the run in which a critic critiques a file: the same for the same two.

    Raises:
        ConfigError: if the critic cannot be used.
    """
    content = [answers.facts, semantic(config), FeedbackCritic.from_config(config.critic).digest]
    judge = [_identity(config.critic), own_digests(own_files(config))]
    stem = re.sub(r"[^a-z0-9._-]+", "-", Path(answers.source).stem.lower())[:40]
    return f"critique-{stem}-{digest([*content, *judge])[:8]}"


def critique_answers(
    job: Job,
    reporter: Reporter,
    stop: StopSignal,
    *,
    on_open: Callable[[Path], None] = lambda _: None,
) -> None:
    """Critique the answers of a job, each once.

    Raises:
        Stopped: if the user stopped it, or a budget ended; the run can be resumed.
        ConfigError: if the critic cannot be used, or the run exists with other settings.
        InputError: if the file is needed and cannot be read.
    """
    if job.answers is None:
        raise ValueError(f"job {job.name} contains no answers to critique")
    answers = job.answers
    with open_job(job, (), reporter, stop, on_open=on_open) as run:
        work_until_whole(run, lambda: _critique(run, _commit_answers(run, answers)))
        whole = f"done: {answers.rows} answers of {answers.source}"
        if_there_is_room(lambda: run.store.journal.record("end", whole))


def _identity(critic: CriticConfig) -> str:
    try:
        return model_digest(locate_model(critic.model), critic.engine)
    except EngineError as error:
        names = "" if is_endpoint(critic.model) else "; by name there are tiny and verifier"
        raise ConfigError(f"critic.model: {error}{names}") from error


def _commit_answers(run: Run, answers: AnswersFile) -> Planned:
    """Commit the prompts and answers of the file, unit by unit."""
    size = run.config.prompts.chunk
    work = Work(
        verb=KEEP_ANSWERS,
        params=size,
        upstream=(answers.sha256, str(answers.task), answers.source),
        reads=lambda: [(answers.sha256, str(n)) for n in range(-(-answers.rows // size))],
    )

    def run_units(stage: Stage) -> None:
        pending = {unit.chunk: unit for unit in stage.pending}
        for chunk, unit in enumerate(answers.units(size)):
            if chunk in pending:
                stage.flow.admit()
                tables: RowsByType = {
                    Prompt: [prompt for prompt, _ in unit],
                    Candidate: [candidate for _, candidate in unit],
                }
                stage.commit(pending[chunk], tables, UnitStats(rows=len(unit)))

    return run.run_stage(0, IMPORT, work, run_units)


def _critique(run: Run, answers: Planned) -> None:
    """Critique each answer; prompts are in memory only while their unit is critiqued."""
    journal = run.store.journal
    run.prompts = prompts = dict[str, Prompt]()
    at_hand = dict[int, Sequence[Prompt]]()

    def candidates(chunk: int) -> Sequence[Candidate]:
        key = answers.key(journal, chunk)
        at_hand[chunk] = run.store.rows(Prompt, key)
        prompts.update((prompt.prompt_id, prompt) for prompt in at_hand[chunk])
        return run.store.rows(Candidate, key)

    def forget(chunk: int) -> None:
        for prompt in at_hand.pop(chunk):
            del prompts[prompt.prompt_id]

    judging = replace(critique_stage(run, 0, candidates), committed=forget)
    work = Work(
        verb=CRITIQUE,
        params=judging.params,
        upstream=(answers.identity,),
        reads=lambda: [(key,) for key in answers.keys(journal)],
    )
    judging.plan(CRITIQUES, work)
